"""Which timed rows of this paper's tables a configuration makes: of its launches of `elastic`, and emulated of Fig. 10.

A launch that is not of as many seeds as an interval needs decides nothing but whether a seed is reproducible.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration import schemes
from gradsync.configuration.launches import ElasticTraining
from gradsync.configuration.settings import Settings
from gradsync.papers.coverage import Keys, Row, has_interval
from gradsync.papers.coverage import cores as cores_of
from gradsync.papers.easgd_knl.names import CHIP_PARTS, FIGURES, LEVELS, TARGETS
from gradsync.papers.easgd_knl.testbed import EASGD, PAPER
from gradsync.papers.easgd_knl.training_runs import ROUNDING, TRAINED
from gradsync.statistics.intervals import repeats_needed

WHY = "no code puts such runs into this table yet"
NEVER = {
    ("fig10", "measured"): WHY,
    **{("table4", rung): WHY for rung in ("emulated", "measured")},
    ("fig12", "emulated"): "parts of a chip share memory, and emulated hosts have memory of their own",
}
OF_SEEDS = ("table3", "fig6", "time_to_error", "stability", "fig12", "fig13", "batch", "exchanges")
OTHER_DATA = ("fig12", "fig13", "batch")  # whose levels are not those of Fig. 6 and 8
OF_ITS_RATES = ("batch", "fig12")  # whose rows are no points of the band of training
SHARES = (0.5, 1.0)  # of the time on one machine, Fig. 13


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if rung == "emulated" and table == "fig10":
        for emulated in filter(has_interval, settings.emulated_of(PAPER)):
            for scheme in emulated.schemes:
                yield Row({"model": emulated.model, "nodes": emulated.ranks, "scheme": scheme})
    if rung not in TRAINED:
        return
    known = schemes.load(settings.schemes)
    launches = [(launch, name) for launch in settings.elastic_of(PAPER) for name in launch.methods]
    for launch, name in launches:
        if (launch.testbed is not None) != (rung == "emulated"):
            continue
        waits = launch.testbed is not None and launch.compute_seconds is not None
        cores = 0 if waits else cores_of(known[name].ranks(launch.workers), settings)
        for keys in _keys(table, launch, name, settings):
            yield Row(keys, cores, "" if table in OF_ITS_RATES else _point(launch))


def _keys(table: str, launch: ElasticTraining, name: str, settings: Settings) -> Iterator[Keys]:
    base: Keys = {"scheme": name, "nodes": launch.workers}
    again, known = launch.again > 0, len(launch.seeds) >= repeats_needed()
    if table == "determinism":
        if launch.again + 1 >= repeats_needed():
            yield base
    elif table == "exchanges" and not again:
        yield base
    elif again or not known or (launch.data not in LEVELS and table not in OTHER_DATA):
        return
    elif table == "table3" and name in EASGD and _gets_to(launch, 1 - TARGETS[launch.data]):
        yield base
    elif table in ("fig6", "stability") and launch.stop_at_target:
        return  # has no length
    elif table == "stability" and name in FIGURES:
        yield base
    elif table == "time_to_error" and name in FIGURES:
        yield from ({**base, "level": n} for n, e in enumerate(LEVELS[launch.data], 1) if _gets_to(launch, e))
    elif table == "fig6" and name in FIGURES:
        yield from ({**base, "point": point} for point in range(1, 1 + _lengths(launch, name, settings)))
    elif table == "fig12" and name == CHIP_PARTS:
        yield {"parts": launch.workers}
    elif table == "fig13" and name == "knl_easgd":
        for share in SHARES:
            yield {"nodes": launch.workers, "share": share}
    elif table == "batch" and name == "single" and launch.workers == 1:
        yield {"batch": launch.batch}


def _point(launch: ElasticTraining) -> str:
    """What tells the points of the band apart, and emulated hosts."""
    hosts = launch.testbed, launch.rate, launch.flow_rate, launch.compute_seconds
    return f"{launch.lr:g} {launch.lr * launch.rho:g} {launch.batch} {hosts if launch.testbed else ''}"


def _gets_to(launch: ElasticTraining, error: float) -> bool:
    """Whether a launch may train on until so small an error."""
    return not launch.stop_at_target or min(launch.target_errors, default=0.0) <= error + ROUNDING


def _lengths(launch: ElasticTraining, name: str, settings: Settings) -> int:
    """How many launches differ from this one in their iterations alone."""
    fields = ("model", "workers", "lr", "rho", "batch", "data", "testbed", "rate", "flow_rate", "compute_seconds")
    alike = [
        each
        for each in settings.elastic_of(PAPER)
        if name in each.methods
        and not (each.again or each.stop_at_target)
        and all(getattr(each, f) == getattr(launch, f) for f in fields)
    ]
    return len({(each.iterations, each.epochs) for each in alike})
