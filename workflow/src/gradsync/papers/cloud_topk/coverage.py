"""Which timed rows of this paper's tables a configuration makes: those of its emulated launches."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.emulated_runs import STEPS_OF, shape, trainings
from gradsync.papers.cloud_topk.emulation import CASES, elements_of
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.steps import METHODS, by_step
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.coverage import Keys, Row, has_interval

NEVER = {
    **{
        (table, "measured"): "no code puts such runs into this table yet"
        for table in ("table3", "table4", "table5", "fig1", "fig7", "fig8")
    },
    ("pto", "measured"): "no code times the ratios of LARS and LAMB by themselves, on ranks that deal them, yet",
}


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if rung != "emulated":
        return
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
