"""Which timed rows of this paper's tables a configuration makes: Fig. 6, 9, 10, PTO, and those of emulated launches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk import convergence
from gradsync.papers.cloud_topk.emulated_runs import STEPS_OF, shape, trainings
from gradsync.papers.cloud_topk.emulation import CASES, elements_of
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.pto import OPTIMIZERS, TIMED
from gradsync.papers.cloud_topk.steps import METHODS, by_step
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.coverage import Keys, Row, cores, has_interval, scheme_names
from gradsync.statistics.intervals import repeats_needed

NEVER = {
    **{(table, "measured"): "no code puts such runs into this table yet" for table in ("fig1", "fig7", "fig8")},
    **{
        (table, "measured"): "measured rows are shown beside, since no launch deals norms as the paper does (PTO)"
        for table in ("table3", "table4")
    },
    ("table5", "measured"): "trainings here stop at a top-1 accuracy, and the paper's at a top-5 accuracy",
}
OF_SEEDS = ("fig10", "table2")
LOADERS = ("naive", "local_files", "datacache")


def never_of_row(table: str, rung: str, keys: Keys) -> str:
    """Why no configuration makes a row that decides a claim."""
    of_imagenet = (table, rung, keys.get("data")) == ("table2", "measured", "imagenet")
    return "accuracy on ImageNet is published as top-5, and here it is top-1" if of_imagenet else ""


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if rung == "emulated":
        yield from _emulated(table, settings)
    elif rung == "measured":
        yield from _measured(table, settings)


def _emulated(table: str, settings: Settings) -> Iterator[Row]:
    if table == "table3":
        for launch in filter(has_interval, trainings(settings)):
            for scheme in launch.schemes:
                yield Row({"model": CASES[launch.model], "nodes": shape(launch)[0], "scheme": scheme})
    elif table in ("fig7", "fig8"):
        yield from _vectors(table, settings)


def _vectors(table: str, settings: Settings) -> Iterator[Row]:
    known, densities = schemes.load(settings.schemes), bench(settings).file.numbers("emulated", "densities")
    for launch in filter(has_interval, settings.emulated_of(PAPER)):
        elements, (nodes, together) = elements_of(launch), shape(launch)
        at: Keys = {"nodes": nodes, "gpus_per_node": together}
        for scheme in map(known.__getitem__, launch.schemes if elements else ()):
            if table == "fig7" and scheme.collective in METHODS:
                for density in densities if scheme.density is None else (scheme.density,):
                    yield Row({**at, "scheme": scheme.collective, "elements": elements, "density": density})
            elif table == "fig8" and scheme.collective == "hitopk" and elements in STEPS_OF:
                for step in by_step({}):
                    keys: Keys = {"model": STEPS_OF[elements], "step": step, "density": scheme.density or 0.0}
                    yield Row({**at, **keys})


def _measured(table: str, settings: Settings) -> Iterator[Row]:
    if table == "fig6" and settings.selection.rounds >= repeats_needed():
        for elements in settings.selection.elements:
            for scheme in ("exact_topk", "dgc_topk", "mstopk", "mstopk_as_printed"):
                yield Row({"scheme": scheme, "elements": elements, "device": settings.device})
    elif table == "fig9" and settings.loading.blocks >= repeats_needed():
        needs = "" if settings.loading.data_folder else "`loading.data_folder` on the storage in question"
        for loader in LOADERS:
            keys: Keys = {"loader": loader, "model": settings.loading.job, "device": settings.device}
            yield Row(keys, needs=needs)
    elif table == "pto" and settings.ratios and settings.ratios.rounds >= repeats_needed():
        for model, name, ranks in product(TIMED, OPTIMIZERS, settings.ratios.ranks):
            yield Row({"model": model, "optimizer": name, "workers": ranks}, cores(ranks, settings))
    elif table in ("fig10", "table2"):
        known = schemes.load(settings.schemes)
        sparse = convergence.sparse_schemes(settings, known)
        for launch in convergence.shown(settings):
            decides = not convergence.undecidable(launch, settings)
            decides &= not never_of_row(table, "measured", {"data": launch.data})
            for name in scheme_names(launch, settings) if decides and len(launch.seeds) >= repeats_needed() else ():
                scheme, _ = convergence.of_band(known[name], sparse)
                data, model = convergence.case(launch)
                yield Row({"data": data, "model": model, "scheme": scheme})
