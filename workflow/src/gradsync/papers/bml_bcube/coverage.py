"""Which timed rows of this paper's tables a configuration makes: emulated ones of Fig. 6 and 7."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration.settings import Settings
from gradsync.papers.bml_bcube.testbed import bench
from gradsync.papers.coverage import Keys, Row, enough

MODELS = {"fig6": "lenet5", "fig7": "vgg19"}
NEVER = {
    (table, "measured"): "what has links of its own in the paper shares one network wherever ranks are measured"
    for table in MODELS
}


def of(table: str, settings: Settings) -> Keys:
    """What all rows of a table have, though claims don't say it: a table is of one model, on one number of servers."""
    model = MODELS.get(table)
    return {"model": model, "nodes": bench(settings, model).servers} if model else {}


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them; a scheme is a row, on a network of its own."""
    every = of(table, settings)
    if not every or rung != "emulated":
        return
    for launch in filter(enough, settings.emulated_of("bml_bcube")):
        same = {"model": launch.model, "nodes": launch.ranks} == every
        if launch.batch is not None and launch.flow_share is None and same:
            for scheme in launch.schemes:
                yield Row({**every, "batch": launch.batch, "scheme": scheme})
