"""Which timed rows of this paper's tables a configuration makes: emulated ones of Fig. 6 and 7."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.papers.bml_bcube.testbed import bench
from gradsync.papers.coverage import Row, enough
from gradsync.settings import Settings

MODELS = {"fig6": "lenet5", "fig7": "vgg19"}
NEVER = {
    (table, "measured"): "what has links of its own in the paper shares one network wherever ranks are measured"
    for table in MODELS
}


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them; a scheme is a row, on a network of its own."""
    model = MODELS.get(table)
    if model is None or rung != "emulated":
        return
    servers = bench(settings, model).servers
    for launch in filter(enough, settings.emulated_of("bml_bcube")):
        if launch.batch is not None and (launch.model, launch.ranks, launch.flow_share) == (model, servers, None):
            for scheme in launch.schemes:
                yield Row({"model": model, "nodes": servers, "batch": launch.batch, "scheme": scheme})
