"""Which timed rows of this paper's tables a configuration makes: Fig. 6, 9 and 10."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk import convergence
from gradsync.papers.coverage import Row, scheme_names
from gradsync.statistics.intervals import repeats_needed

NEVER = {("table5", "measured"): "no code puts such runs into this table yet"}
LOADERS = ("naive", "local_files", "datacache")


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if rung != "measured":
        return
    if table == "fig6" and settings.selection.rounds >= repeats_needed():
        for elements in settings.selection.elements:
            for scheme in ("exact_topk", "dgc_topk", "mstopk"):
                yield Row({"scheme": scheme, "elements": elements, "device": settings.device})
    elif table == "fig9" and settings.loading.blocks >= repeats_needed():
        for loader in LOADERS:
            yield Row({"loader": loader, "model": settings.loading.job, "device": settings.device})
    elif table == "fig10":
        known = schemes.load(settings.schemes)
        sparse = convergence.sparse_schemes(settings, known)
        for launch in convergence.shown(settings):
            whole = not launch.iterations and not convergence.undecidable(launch, settings)
            for name in scheme_names(launch, settings) if whole and len(launch.seeds) >= repeats_needed() else ():
                scheme, _ = convergence.of_band(known[name], sparse)
                yield Row({"data": launch.data, "model": launch.model, "scheme": scheme})
