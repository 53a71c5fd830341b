"""Table II, the drawn examples of Fig. 1 to 4, and the smallest counterexample to Theorem 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.papers.mgwfbp import testbed
from gradsync.papers.simulated import bounds_of, unsteady
from gradsync.papers.table import Table
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Workload
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds
from gradsync.topologies.switch import Switch

LARGEST = 64  # nodes of Table II
# The drawn examples: workload in config/papers/mgwfbp/examples and cost, in units of the drawing.
CASES = {
    "case1": ("four-layers-case1", Linear(1.2, 0.1, "drawn")),
    "case2": ("four-layers-case2", Linear(1.2, 0.1, "drawn")),
    "case3": ("four-layers-case3", Linear(1.2, 0.1, "drawn")),
    "counterexample": ("counterexample", Linear(8.0, 1.0, "drawn")),
}
FILES = [Path("config/papers/mgwfbp/examples") / f"{workload}.json" for workload, _ in CASES.values()]


def table2(settings: Settings, results: Path) -> Table:
    """Table II: closed forms (derived), and rounds that are put on the links of a switch one by one (simulated).

    The paper has the three logarithmic algorithms for powers of two only; for other N the rows have the rounds that
    come on top of those of the next smaller power of two, and no closed form.
    """
    cluster = testbed.cluster(settings)
    alpha, beta, gamma = cluster["alpha_seconds"]["value"], 8 / cluster["link_bits_per_second"]["value"], 1e-10
    size, speeds = 2.0**20, Speeds(alpha=alpha, bandwidth=1 / beta)
    rows = []
    for name, formula in alpha_beta.ALGORITHMS.items():
        rounds = 0  # of the largest power of two so far
        for n in range(2, LARGEST + 1):
            cost = flow_level.cost(name, Switch(n), speeds, add_seconds_per_byte=gamma)
            power = n & (n - 1) == 0
            rounds = cost.rounds if power else rounds
            row = {"rung": "simulated", "algorithm": name, "nodes": n, "seconds_rounds": cost.seconds(size)}
            row |= {"rounds": cost.rounds, "extra_rounds": np.nan if name == "ring" else cost.rounds - rounds}
            if power or name == "ring":
                closed_form = formula(n, alpha, beta, gamma)
                row |= {"seconds_formula": closed_form.seconds(size)}
                units = {"a_over_alpha": closed_form.a / alpha, "b_over_beta": formula(n, 0.0, 1.0, 0.0).b}
                rows.append({"rung": "derived", "algorithm": name, "nodes": n, **units})
            rows.append(row)
    frame = pd.DataFrame(rows)
    powers = frame[(frame.rung == "derived") & frame.nodes.isin([2, 4, 8, 16, 32, 64])]
    display = powers.pivot_table(index="algorithm", columns="nodes", values="a_over_alpha").round(2)
    display = display.add_prefix("a/alpha, N=").reset_index()
    worst = (frame.seconds_rounds / frame.seconds_formula - 1).abs().groupby(frame.algorithm).max()
    display["rounds differ by"] = [f"{worst[name]:.1e}" for name in display.algorithm]
    extra = frame.groupby("algorithm").extra_rounds.max()
    display["more rounds at other N"] = [
        "-" if np.isnan(extra[name]) else f"{extra[name]:.0f}" for name in display.algorithm
    ]
    caption = (
        "Table II: start-up of all-reduce algorithms in units of alpha. Rounds differ by: largest relative difference "
        "between the closed form and the rounds put on the links of a switch one by one (1 MiB; the ring at every N to "
        f"{LARGEST}, the others at powers of two). More rounds at other N: above those of the next smaller power of "
        "two; the paper has no formula for them."
    )
    return Table(frame, display, caption)


def timelines(settings: Settings, results: Path) -> Table:
    """Fig. 1 to 4 as numbers, and the smallest counterexample to Theorem 1 (MG-E09)."""
    rows = []
    for figure, case, scheme in TIMELINES:
        workload, plan, trace = example(case, scheme)
        seconds = CASES[case][1].seconds(workload.sizes())
        rows.append(
            {
                "rung": "simulated",
                "figure": figure,
                "case": case,
                "scheme": scheme,
                "iteration_seconds": trace.iteration_seconds(),
                "exposed_communication_seconds": trace.exposed_communication_seconds(),
                "over_optimal": trace.iteration_seconds() / example(case, "optimal")[2].iteration_seconds(),
                "t_f": workload.forward_seconds,
                "t_b": workload.backward_seconds,
                "t_c_sum": float(seconds.sum()),
                "t_c_first": float(seconds[-1]),
                **bounds_of(plan, workload, alpha_beta.around(CASES[case][1], 2), trace),
                "note": trace.note,
            }
        )
    frame = pd.DataFrame(rows)
    display = frame.drop(columns=["rung", "note"]).drop_duplicates(["case", "scheme"]).round(4)
    return Table(
        frame,
        display,
        "Fig. 1 to 4 and the counterexample to Theorem 1: drawn examples, simulated; times in units of the drawing."
        + unsteady(frame),
    )


TIMELINES = (
    ("fig1", "case3", "naive"),
    ("fig2", "case3", "wfbp"),
    ("fig2", "case3", "naive"),
    ("fig3", "case1", "wfbp"),
    ("fig3", "case2", "wfbp"),
    ("fig3", "case3", "wfbp"),
    ("fig4", "case3", "wfbp"),
    ("fig4", "case3", "mgwfbp"),
    ("counterexample", "counterexample", "mgwfbp"),
    ("counterexample", "counterexample", "optimal"),
)


def example(case: str, scheme: str) -> tuple[Workload, Plan, Trace]:
    """A drawn example under a scheme."""
    name, cost = CASES[case]
    workload = Workload.load(f"config/papers/mgwfbp/examples/{name}.json")
    plan = schemes.plan(schemes.Scheme(name=scheme), workload, cost, 2)
    return workload, plan, simulate(plan, workload, alpha_beta.around(cost, 2))
