"""Which timed rows of this paper's tables a configuration makes: emulated ones of Fig. 6 and 7."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration.settings import Settings
from gradsync.papers.bml_bcube.testbed import bench
from gradsync.papers.coverage import Keys, Row, has_interval

MODELS = {"fig6": "lenet5", "fig7": "vgg19"}
NEVER = {
    (table, "measured"): "what has links of its own in the paper shares one network wherever ranks are measured"
    for table in MODELS
}


def common_keys(table: str, settings: Settings) -> Keys:
    """The keys that all rows of a table share and claims don't name: it is of one model, on one number of servers."""
    model = MODELS.get(table)
    return {"model": model, "nodes": bench(settings, model).servers} if model else {}


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them; each scheme is a row, on a network of its own."""
    shared_keys = common_keys(table, settings)
    if not shared_keys or rung != "emulated":
        return
    for launch in filter(has_interval, settings.emulated_of("bml_bcube")):
        is_of_table = {"model": launch.model, "nodes": launch.ranks} == shared_keys
        if launch.batch is not None and launch.flow_share is None and is_of_table:
            for scheme in launch.schemes:
                yield Row({**shared_keys, "batch": launch.batch, "scheme": scheme})
