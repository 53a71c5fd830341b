"""Table IV: an iteration under each scheme on the paper's testbed, simulated, emulated, measured.

Differs from the paper: with its stated a no simulated WFBP is as fast as the measured one (ASC-E28), so a second point
of the band has the a that each model's WFBP of Table IV allows. Contention is a band too: the paper's pairwise gamma, a
link that carries 2 / gamma messages at full speed, and one that a single message fills (ASC-E32).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gradsync import schedules, updates
from gradsync.collectives import NATIVE
from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.bounds import hard_bound_seconds, refuse_below
from gradsync.errors import InputError
from gradsync.papers.ascwfbp import pairwise_model, timed_runs
from gradsync.papers.ascwfbp.testbed import CENTRE, MODELS, POINTS, SCHEMES, BandPoint, Bench, bench, workload
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, text
from gradsync.papers.simulated import BOUNDS
from gradsync.papers.simulated import timed as timed_plan
from gradsync.papers.table import Table
from gradsync.plan.workload import Workload

PAIRWISE, GAMMA, FULL = "pairwise", "gamma", "full"
CONTENTION = (PAIRWISE, GAMMA, FULL)
STATED, FITTED = "stated", "fitted"
LEFT_OUT = ("naive", "fixed_buckets")  # schedules that neither this paper nor what goes beyond it compares
PRINTED = "ascwfbp_as_printed"
PAIRS = (*SCHEMES, "single", "optimal", PRINTED)  # schemes that the pairwise model times; others plan by a shared link
COLUMNS = [
    *("rung", LAUNCH, "model", "nodes", "workers", "scheme", "assumption", "contention", "startup", "point"),
    *("startup_seconds", REPEATS, "iteration_seconds", "computation_seconds", "exposed_communication_seconds"),
    *("waiting_seconds", "messages", *BOUNDS, "over_published"),
    *("largest_speedup", "note"),  # S_max of emulated hosts over one of them
    *(f"{column}{end}" for end in (LOW, HIGH, SAMPLES) for column in timed_runs.SECONDS),
]


class Assumed(NamedTuple):
    """One point of the band."""

    contention: str
    startup: str
    point: BandPoint

    def __str__(self) -> str:
        return f"contention {self.contention}, a {self.startup}, {self.point}"


BAND = tuple(
    Assumed(contention, startup, point)
    for contention in CONTENTION
    for startup, point in (*((STATED, point) for point in POINTS), (FITTED, CENTRE))
)
SHOWN = tuple(Assumed(contention, startup, CENTRE) for startup in (STATED, FITTED) for contention in CONTENTION)


def compared(settings: Settings) -> list[schemes.Scheme]:
    """The schemes with the backend's own all-reduce, as in the paper, and the paper's algorithm to the letter.

    Schemes that overlap with the next forward too are none of them.
    """
    known = schemes.load(settings.schemes)
    natives = [
        scheme
        for scheme in known.values()
        if scheme.collective == NATIVE and not scheme.wire and scheme.schedule not in LEFT_OUT
        if scheme.update == "ssgd" and not scheme.compressor
        if not scheme.options.get("as_printed")
    ]
    return [*natives, schemes.Scheme(name=PRINTED, schedule="ascwfbp", options={"as_printed": True}, label=PRINTED)]


def table4(settings: Settings, results: Path) -> Table:
    """Table IV: a row per model, scheme and point of the band, and the published, emulated and measured ones."""
    testbed = bench(settings)
    frame = pd.DataFrame(
        [
            *_published(testbed),
            *simulated(settings, results),
            *timed_runs.emulated(settings, results, testbed),
            *timed_runs.measured(settings, results, testbed),
        ],
        columns=COLUMNS,
    )
    for model in MODELS:
        for scheme in SCHEMES:
            chosen = (frame.model == model) & (frame.scheme == scheme)
            frame.loc[chosen, "over_published"] = frame.iteration_seconds[chosen] / testbed.published(scheme, model)
    caption = (
        "Table IV: seconds of an iteration on 32 GPUs. Simulated at the middle of the band, t_f as published or "
        "derived and backward spread over the layers by counted operations, the other points in the CSV file: a stated "
        "or, in brackets, fitted so that WFBP takes what is published. pairwise: the paper's own model, gamma = "
        f"{testbed.gamma:g} for what two messages overlap; gamma: a link that carries 2 / gamma messages at full "
        "speed; full: a link that one message fills, as b says (ASC-E32). Emulated: real messages over limited links "
        "of this machine, computation replayed, on fewer hosts than the paper's 8 nodes where it says so. Measured: "
        "training on this machine, milliseconds, not the paper's models and GPUs where reduced."
    )
    return Table(frame, _display(frame), caption + timed_runs.reasons(frame))


def simulated(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """Every scheme at every point of the band."""
    testbed, contenders = bench(settings), compared(settings)
    for model in MODELS:
        for assumed in BAND:
            computation = workload(model, settings, results, assumed.point)
            line = startup_of(testbed, model, computation, assumed.startup)
            base = {"rung": "simulated", "model": model, "nodes": testbed.nodes, "workers": testbed.workers}
            base |= {"assumption": str(assumed), "contention": assumed.contention, "startup": assumed.startup}
            base |= {"point": str(assumed.point), "startup_seconds": line.a}
            computation_seconds = computation.forward_seconds + computation.backward_seconds
            for scheme in contenders:
                if scheme.name in PAIRS or (assumed in SHOWN and assumed.contention != PAIRWISE):
                    row = {**base, "scheme": scheme.name, "computation_seconds": computation_seconds}
                    yield row | timed(scheme, computation, line, testbed, assumed.contention)


def timed(
    scheme: schemes.Scheme, computation: Workload, line: Linear, testbed: Bench, contention: str
) -> dict[str, Any]:
    """An iteration of a scheme that is planned on `line` and that contention; cells of a row."""
    if contention == PAIRWISE:
        options = {"gamma": testbed.gamma} if "gamma" in schedules.options(scheme.schedule) else {}
        messages = schedules.messages(scheme.schedule, computation, line, {**scheme.options, **options})
        seconds = pairwise_model.timed(computation, messages, line, testbed.gamma).iteration_seconds
        alone = computation.forward_seconds + computation.backward_seconds
        row = {"iteration_seconds": seconds, "exposed_communication_seconds": seconds - alone}
        # the pairwise model knows of no link (ASC-E32): nothing but computation is certain
        plan = updates.plan("ssgd", scheme.name, computation, messages, testbed.workers)
        bound = hard_bound_seconds(plan, computation)
        refuse_below(seconds, bound, f"{scheme.name} of {computation.name} by the pairwise model")
        return row | {"messages": len(messages), "hard_bound_seconds": bound, "note": ""}
    cost = testbed.contended(line, contention)
    network = alpha_beta.around(cost, testbed.workers)
    plan = schemes.plan(scheme, computation, cost, testbed.workers)
    # an update waits for all messages: turns are alike
    iteration = timed_plan(plan, computation, network, testbed.links(contention), turns=2)
    return {**iteration._asdict(), "messages": len(plan.communications())}


def startup_of(testbed: Bench, model: str, computation: Workload, startup: str) -> Linear:
    """The line of Section VI-B, or one with the a at which WFBP takes what Table IV has (to 1e-9; 0 if none does)."""
    if startup == STATED:
        return testbed.line
    published, least, most = testbed.published("wfbp", model), 0.0, testbed.a
    if serial_seconds(computation, Linear(most, testbed.b)) <= published:
        raise InputError(f"{model}: WFBP with the stated a takes no more than published, there is nothing to fit")
    while most - least > 1e-9 * testbed.a:
        middle = (least + most) / 2
        least, most = (
            (middle, most) if serial_seconds(computation, Linear(middle, testbed.b)) < published else (least, middle)
        )
    return Linear(least, testbed.b, "a fitted to WFBP of Table IV")


def serial_seconds(computation: Workload, line: Linear) -> float:
    """Seconds of an iteration that sends tensor by tensor."""
    end = 0.0
    for ready, seconds in zip(computation.ready_seconds(), line.seconds(computation.sizes()), strict=True):
        end = max(end, float(ready)) + float(seconds)
    return end


def _published(testbed: Bench) -> Iterator[dict[str, Any]]:
    for model in MODELS:
        computation_seconds = testbed.computation(model)
        for scheme in SCHEMES:
            seconds = testbed.published(scheme, model)
            yield {
                "rung": "published",
                "model": model,
                "nodes": testbed.nodes,
                "workers": testbed.workers,
                "scheme": scheme,
                "assumption": "",
                "iteration_seconds": seconds,
                "computation_seconds": computation_seconds,
                "exposed_communication_seconds": seconds - computation_seconds,
                "note": "",
            }


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per model and scheme of the paper's testbed, a column per rung; then the rows measured on this machine."""
    rows = []
    for (model, scheme), part in frame[frame.model.isin(MODELS)].groupby(["model", "scheme"], sort=False):
        row = {"model": MODELS[str(model)], "scheme": scheme, "published": _seconds(part[part.rung == "published"])}
        for contention in CONTENTION:
            stated, fitted = (
                _seconds(part[part.assumption == str(Assumed(contention, startup, CENTRE))])
                for startup in (STATED, FITTED)
            )
            row[contention] = stated if stated == fitted == "-" else f"{stated} ({fitted})"
        emulated = part[(part.rung == "emulated") & part.iteration_seconds.notna()]
        emulated_cells = [
            f"{text(run, 'iteration_seconds', '.3f')}, {run.workers:.0f} hosts" for _, run in emulated.iterrows()
        ]
        row["emulated"] = " / ".join(emulated_cells) or "-"
        rows.append(row | {"measured here [ms]": "-"})
    measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
    for _, run in measured.iterrows():
        row = {"model": f"{run.model} on {run.workers:.0f} ranks", "scheme": str(run.scheme)}
        rows.append(row | {"measured here [ms]": text(run, "iteration_seconds", ".1f", 1e3)})
    return pd.DataFrame(rows).fillna("-")


def _seconds(at: pd.DataFrame) -> str:
    known = at[at.iteration_seconds.notna()]
    return " / ".join(f"{seconds:.3f}" for seconds in known.iteration_seconds) or "-"
