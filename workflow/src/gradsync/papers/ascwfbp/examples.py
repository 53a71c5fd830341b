"""Fig. 1 to 3 as plans, and the counterexample to Theorem 1: drawn examples, in units of the drawing.

Each is simulated by processor sharing on a link that carries 2 / gamma messages at full speed, and timed by the
paper's pairwise model and by its closed forms. The two differ if a message starts up while another travels: the paper
takes start-up for transfer (ASC-E11).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from gradsync import schedules, updates
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, alpha_beta, pairwise_contention
from gradsync.costs.contention import Contended
from gradsync.engine.simulate import simulate
from gradsync.papers.ascwfbp import pairwise_model
from gradsync.papers.simulated import bounds_of
from gradsync.papers.table import Table
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Layer, Workload
from gradsync.schedules import Message

GAMMA = 1.5
ONE, TWO = "network0", "network1"
WFBP, MERGED, SIMULTANEOUS, ASC = "wfbp", "merged", "simultaneous", "ascwfbp"


class Case(NamedTuple):
    """A drawn net; `layers` in backward order, each with its bytes and its seconds of backward."""

    line: Linear
    forward: float
    layers: tuple[tuple[int, float], ...]

    def workload(self) -> Workload:
        """The workload of the net; layers are named by their number, L first."""
        count = len(self.layers)
        return Workload(
            name="drawn",
            forward_seconds=self.forward,
            layers=tuple(
                Layer(name=f"layer {count - i}", bytes=size, backward_seconds=seconds)
                for i, (size, seconds) in enumerate(self.layers)
            ),
        )


DRAWN = Linear(1.5, 0.1, "drawn")
STARTUP_FREE = Linear(0.0, 0.1, "drawn, without start-up")
CASES = {
    "fig1": Case(DRAWN, 2.0, ((8, 1.0), (8, 1.0), (8, 1.0), (8, 1.0))),
    # both gradients are ready at the same time, or the second once half of the first is through
    "fig2": Case(STARTUP_FREE, 1.0, ((40, 0.0), (40, 0.0))),
    "fig2 half": Case(STARTUP_FREE, 1.0, ((40, 0.0), (40, 2.0))),
    # layers l+1, l and l-1; of Fig. 3, in which the second layer is ready after the first
    "fig3": Case(Linear(1.0, 1.0, "drawn"), 0.0, ((9, 0.0), (9, 2.0), (1, 5.0))),
    "counterexample": Case(Linear(1.0, 1.0, "drawn"), 0.0, ((9, 0.0), (9, 2.0), (1, 8.5))),
}
SEQUENTIAL = (Message(0, 0), Message(1, 1))
CONTENDING = (Message(0, 0, ONE), Message(1, 1, TWO))
THREE = {
    WFBP: (Message(0, 0), Message(1, 1), Message(2, 2)),
    MERGED: (Message(0, 0), Message(1, 2)),
    SIMULTANEOUS: (Message(0, 0, ONE), Message(1, 1, TWO), Message(2, 2, TWO)),
}
# (figure, name of the timeline in it): case and messages
TIMELINES: dict[tuple[str, str], tuple[str, tuple[Message, ...]]] = {
    ("fig1", WFBP): ("fig1", tuple(Message(i, i) for i in range(4))),
    ("fig1", MERGED): ("fig1", (Message(0, 1), Message(2, 3))),
    ("fig1", SIMULTANEOUS): ("fig1", tuple(Message(i, i, (ONE, TWO)[i % 2]) for i in range(4))),
    ("fig2", "sequential"): ("fig2", SEQUENTIAL),
    ("fig2", "full"): ("fig2", CONTENDING),
    ("fig2", "half"): ("fig2 half", CONTENDING),
    **{("fig3", name): ("fig3", messages) for name, messages in THREE.items()},
    **{("counterexample", name): ("counterexample", messages) for name, messages in THREE.items()},
}


def example(figure: str, name: str) -> tuple[Workload, Plan, Trace]:
    """A drawn example, simulated on the shared link."""
    case, messages = _case_and_messages(figure, name)
    workload = case.workload()
    plan = updates.plan("ssgd", f"{figure} {name}", workload, messages, 2)
    return workload, plan, simulate(plan, workload, alpha_beta.around(Contended(case.line, 2 / GAMMA), 2), turns=2)


def timelines(settings: Settings, results: Path) -> Table:
    """Fig. 1 to 3 and the counterexample as numbers: simulated, by the pairwise model, by the closed forms."""
    rows = []
    for figure, name in (*TIMELINES, ("counterexample", ASC)):
        case, messages = _case_and_messages(figure, name)
        workload, plan, trace = example(figure, name)
        paper_times = pairwise_model.timed(workload, messages, case.line, GAMMA)
        rows.append(
            {
                "rung": "simulated",
                "figure": figure,
                "schedule": name,
                # the scheme, if the schedule is that of one
                "scheme": name if name in (WFBP, ASC) else "",
                "messages": len(messages),
                "iteration_seconds": trace.iteration_seconds(),
                "exposed_communication_seconds": trace.exposed_communication_seconds(),
                "own_seconds": paper_times.iteration_seconds,
                "formula_seconds": formula(figure, name),
                "penalty_seconds": _penalty(figure, case, messages),
                **bounds_of(plan, workload, alpha_beta.around(Contended(case.line, 2 / GAMMA), 2), trace),
            }
        )
    frame = pd.DataFrame(rows)
    display = frame.drop(columns=["rung", "scheme"]).round(4).astype(object)
    display = display.where(frame.drop(columns=["rung", "scheme"]).notna(), "-")
    display = display.rename(columns=lambda column: column.replace("_", " "))
    caption = (
        "Fig. 1 to 3 and the counterexample to Theorem 1 (ASC-E17), drawn examples in units of the drawing: simulated "
        f"on a link that carries 2 / {GAMMA} messages at full speed (iteration), by the paper's pairwise model with "
        f"gamma = {GAMMA} (own), and by its closed forms, Eq. 15 to 17. Penalty: what the second message takes longer "
        "than alone, simulated."
    )
    return Table(frame, display, caption)


def formula(figure: str, name: str) -> float:
    """Eq. 15, 16 and 17; NaN if the paper has no formula for the schedule."""
    if figure not in ("fig3", "counterexample") or name not in THREE:
        return np.nan
    case = CASES[figure]
    (m2, m1, m0), ready = case.workload().sizes(), case.workload().ready_seconds()  # of layers l+1, l, l-1
    a, b = case.line.a, case.line.b
    tau_c = max(ready[1], ready[0] + a + b * m2)  # of layer l, normal
    if name == WFBP:
        return float(tau_c + 2 * a + b * (m1 + m0))
    if name == MERGED:
        return float(max(tau_c, ready[2]) + a + b * (m1 + m0))
    pen = pairwise_contention.penalty(pairwise_contention.penalty_bytes(m2, ready[0], ready[1], m1, a, b), b, GAMMA)
    return float(max(ready[1] + a + b * m1 + pen, ready[2]) + a + b * m0)


def _case_and_messages(figure: str, name: str) -> tuple[Case, tuple[Message, ...]]:
    if name == ASC:
        case = CASES[figure]
        return case, schedules.messages("ascwfbp", case.workload(), case.line, {"gamma": GAMMA})
    case_name, messages = TIMELINES[figure, name]
    return CASES[case_name], messages


def _penalty(figure: str, case: Case, messages: tuple[Message, ...]) -> float:
    """Seconds that the second message takes longer than alone, simulated; NaN outside of Fig. 2."""
    if figure != "fig2" or messages == SEQUENTIAL:
        return np.nan
    workload = case.workload()
    plan = updates.plan("ssgd", "fig2", workload, messages, 2)
    trace = simulate(plan, workload, alpha_beta.around(Contended(case.line, 2 / GAMMA), 2), turns=1)
    second = list(plan.communications())[1]
    span = next(span for span in trace.spans if span.operation == second.name)
    return float(span.end - span.start - case.line.seconds(workload.layers[1].bytes))
