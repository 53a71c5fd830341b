"""Section 5.4: LARS and LAMB by PTO beside what each GPU would compute alone, over numbers of GPUs.

Timed are the ratios of all layers and their All-Gather, not the update by them. The serial time of LARS is published,
that of LAMB is as many times as long as its kernel moves bytes (counted). How the serial time is spread over layers is
not published: each takes as long (`time by layers`), as launches of kernels do, or each element does (`elements`).

printed: layers are dealt two a GPU in turn (Section 4.2, CT-E21), and the GPU that has most decides. balanced: the plan
that `transforms/pto.py` makes is simulated. The All-Gather of a number a layer takes start-ups alone: a ring those of
P - 1 rounds, recursive doubling those of log2 P, between nodes once it leaves one.

measured: the ratios alone between ranks of this machine or cluster (`measure/ratios.py`), dealt by the balanced plan.
If ranks share cores, or other work took cores, rows have no intervals and decide nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gradsync import optimizers, updates
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, Network
from gradsync.costs.ratio_times import RatioTimes
from gradsync.engine.simulate import simulate
from gradsync.kernels import KERNELS, Form
from gradsync.papers.cloud_topk.models import FLOAT32, in_order, sizes_of
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.declaration import Place
from gradsync.papers.labels import MODELS
from gradsync.papers.published import Published
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, shown_only, text
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.plan import Local, Plan
from gradsync.plan.workload import Layer, Workload
from gradsync.schedules import Message
from gradsync.statistics.quiet import load_warnings
from gradsync.transforms.step import Step

TIMED = ("resnet50", "transformer")
OPTIMIZERS = ("lars", "lamb")
WORKERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GATHERS = {"poor": 0, "good": 1}  # network: which entry of `all_gather` goes with it
RING = "ring"
BY = ("layers", "elements")
FREE = Linear(0.0, 0.0)


class BandPoint(NamedTuple):
    """A point of the band of what is not published."""

    network: str
    all_gather: str
    inside: str
    time_by: str

    @property
    def label(self) -> str:
        """Its full name."""
        return ", ".join(f"{key.replace('_', ' ')} {name}" for key, name in self._asdict().items())


def points(file: Testbed) -> list[BandPoint]:
    """All of them; the first is the one that is drawn as such."""
    gathers = file.band("all_gather", "value")
    return [
        BandPoint(network, gathers[GATHERS[network]], inside, by)
        for network, inside, by in product(("good", "poor"), ("fast", "slow"), BY)
    ]


def measured_ratios(place: Place) -> list[Path]:
    """Times of ratios between ranks, if the configuration has any measured: a file per model and number of ranks."""
    numbers = place.settings.ratios.ranks if place.settings.ratios else []
    return [_measured_file(place.results, model, ranks) for model, ranks in product(TIMED, numbers)]


def _measured_file(results: Path, model: str, ranks: int) -> Path:
    return results / "profile" / "ratios" / f"{model}-{ranks}.json"


def pto(settings: Settings, results: Path) -> Table:
    """The published times, a row per model, optimizer, number of workers and point of the band, and measured ones."""
    file, known = Testbed(settings.of_paper(PAPER).testbed), Published(PAPER, settings)
    rows = list(_published(file))
    for model in TIMED:
        sizes, serial = sizes_of(model, results), file.positive("lars_seconds", "serial", model)
        rows += _simulated(model, sizes, serial, int(known.value("layers-per-gpu")), file)
    for model, ranks in product(TIMED, settings.ratios.ranks if settings.ratios else []):
        rows += _measured(model, RatioTimes.load(_measured_file(results, model, ranks)))
    frame = pd.DataFrame(rows).fillna({"assumption": "", "note": ""})
    frame["speedup"] = frame.serial_seconds / frame.pto_seconds
    workers = int(file.positive("workers", "value"))
    caption = (
        f"Section 5.4: seconds of LARS's and LAMB's ratios and their All-Gather, on {workers} GPUs, simulated with the "
        f"published serial time, and up to how many GPUs (a power of 2, at most {WORKERS[-1]}) PTO is faster than "
        "serial. printed: two layers a GPU; balanced: as planned here. time by: each layer takes as long, or each "
        "element. LAMB takes as many times as long as LARS as its kernel moves bytes."
    )
    if (frame.rung == "measured").any():
        frame = frame.reindex(columns=[*dict.fromkeys([*frame.columns, *columns("serial_seconds", "pto_seconds")])])
        caption += " measured: between ranks here, the mean of all ranks, in brackets 95 %."
    return Table(frame, _display(frame, workers), caption)


def _published(file: Testbed) -> Iterator[dict[str, Any]]:
    for model in TIMED:
        serial, dealt = (file.positive("lars_seconds", how, model) for how in ("serial", "pto"))
        workers = int(file.positive("workers", "value"))
        base = {"rung": "published", "model": model, "optimizer": "lars", "workers": workers}
        yield {**base, "serial_seconds": serial, "pto_seconds": dealt}


def _simulated(model: str, sizes: list[int], lars: float, a_gpu: int, file: Testbed) -> Iterator[dict[str, Any]]:
    mean = [max(1, round(sum(sizes) / len(sizes)))] * len(sizes)
    moved = {name: _moved(_planned(name, sizes, 1, dealt=False)) for name in OPTIMIZERS}
    share: dict[tuple[str, int], float] = {}  # of the serial time, on the GPU that has most of the balanced plan
    for by, workers in product(BY, WORKERS):
        weights = sizes if by == "elements" else mean
        share[by, workers] = _period(_planned("lars", weights, workers), weights)
    for name, point, workers in product(OPTIMIZERS, points(file), WORKERS):
        serial, gather = lars * moved[name] / moved["lars"], gather_seconds(workers, point, file)
        shares, by = in_order(sizes, workers, a_gpu), point.time_by
        most = max(elements if by == "elements" else layers for layers, elements in shares)
        yield {
            "rung": "simulated",
            "model": model,
            "optimizer": name,
            "workers": workers,
            "assumption": point.label,
            "serial_seconds": serial,
            "pto_seconds": serial * most / (sum(sizes) if by == "elements" else len(sizes)) + gather,
            "balanced_seconds": serial * share[by, workers] + gather,
            "gather_seconds": gather,
        }


def _measured(model: str, times: RatioTimes) -> Iterator[dict[str, Any]]:
    """A row per optimizer of a measurement between ranks."""
    file = f"{model}-{times.ranks}"
    notes = [*times.notes, *load_warnings(times.provenance, f"ratios of {file}")]
    for point in times.points:
        row: dict[str, Any] = {
            **{"rung": "measured", "model": model, "optimizer": point.optimizer, "workers": times.ranks},
            **{"device": times.device, "note": "; ".join(notes)},
            **{REPEATS: len(point.serial_seconds), LAUNCH: f"ratios of {file}, {point.optimizer}"},
            **cells("serial_seconds", point.serial_seconds),
            **cells("pto_seconds", point.pto_seconds),
        }
        yield shown_only(row) if notes else row


def gather_seconds(workers: int, point: BandPoint, file: Testbed) -> float:
    """Start-ups of an All-Gather over so many workers: `scalar_gather_seconds` of the testbed."""
    a_node = int(file.positive("gpus_per_node", "value"))
    within = file.number("inside", point.inside, "alpha_seconds")
    between = file.number("network", point.network, "alpha_seconds")
    if point.all_gather == RING:  # each round has a transfer between nodes, if there are several
        return (workers - 1) * (within if workers <= a_node else between)
    inside = ceil(log2(min(workers, a_node)))
    return inside * within + (ceil(log2(workers)) - inside) * between


def _planned(name: str, sizes: list[int], workers: int, dealt: bool = True) -> Plan:
    """A step of that optimizer, whose gradients are one message."""
    workload = _workload(sizes, {})
    message = (Message(0, len(sizes) - 1),)
    step = Step(pto=dealt)
    return updates.plan("ssgd", name, workload, message, workers, optimizer=optimizers.get(name), step=step)


def _workload(sizes: list[int], kernels: dict[str, float]) -> Workload:
    """Layers of so many elements that take no time."""
    layers = (Layer(name=f"layer{i}", bytes=FLOAT32 * size, backward_seconds=0.0) for i, size in enumerate(sizes))
    return Workload(name="ratios", forward_seconds=0.0, layers=tuple(layers), kernels=kernels)


def _ratios(plan: Plan) -> Local:
    (ratios,) = (op for op in plan.roles[0].flat if isinstance(op, Local) and KERNELS[op.kernel].dealt)
    return ratios


def _moved(plan: Plan) -> float:
    """Bytes that the ratios of all layers move."""
    ratios = _ratios(plan)
    return KERNELS[ratios.kernel].moved(Form(plan, ratios))


def _period(plan: Plan, sizes: list[int]) -> float:
    """An iteration of which nothing takes time but the ratios, in the time that those of all layers take one rank."""
    alone = dataclasses.replace(_ratios(plan), writes=(_ratios(plan).writes[0]._replace(mine=()),))
    per_byte = 1 / KERNELS[alone.kernel].moved(Form(plan, alone))
    workload = _workload(sizes, {alone.kernel: per_byte})
    network = Network({"all_reduce": FREE, "all_gather": FREE})
    return simulate(plan, workload, network, turns=2).iteration_seconds()


def crossing(part: pd.DataFrame, column: str = "pto_seconds") -> int | None:
    """The most workers for which dealing is faster, of rows of one point; None if it is for none."""
    faster = part[part[column] < part.serial_seconds].workers
    return int(faster.max()) if len(faster) else None


def _display(frame: pd.DataFrame, workers: int) -> pd.DataFrame:
    rows = []
    for _, part in frame[frame.rung != "measured"].groupby(["model", "optimizer", "assumption"], sort=False):
        row = part[part.workers == workers].iloc[0]
        simulated = row.rung == "simulated"
        rows.append(
            {
                "model": MODELS[row.model],
                "optimizer": row.optimizer.upper(),
                "assumption": row.assumption if simulated else "published",
                "serial [ms]": f"{1e3 * row.serial_seconds:.3g}",
                "PTO, printed [ms]": f"{1e3 * row.pto_seconds:.3g}",
                "PTO, balanced [ms]": f"{1e3 * row.balanced_seconds:.3g}" if simulated else "-",
                "All-Gather [ms]": f"{1e3 * row.gather_seconds:.3g}" if simulated else "-",
                "speed-up": f"{row.speedup:.2f}",
                "faster up to": (crossing(part) or "none") if simulated else "-",
            }
        )
    return pd.DataFrame([*rows, *(_shown(row) for _, row in frame[frame.rung == "measured"].iterrows())])


def _shown(row: pd.Series) -> dict[str, Any]:
    """A measured row as people read it."""
    return {
        "model": MODELS[row["model"]],
        "optimizer": row["optimizer"].upper(),
        "assumption": "; ".join(filter(None, (f"measured, {row['workers']} ranks, {row['device']}", row["note"]))),
        "serial [ms]": text(row, "serial_seconds", ".3g", 1e3),
        "PTO, printed [ms]": "-",
        "PTO, balanced [ms]": text(row, "pto_seconds", ".3g", 1e3),
        "All-Gather [ms]": "-",
        "speed-up": f"{row['speedup']:.2f}",
        "faster up to": "-",
    }
