"""How many transfers of all weights are in a row in an exchange of all workers, and how long they take.

Counted on the plans that ranks execute; the times are transfers of Table 3, as the band has them. Where ranks are real,
how many workers are served at one moment is counted on the trace of the last turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.engine.masters import masters, workers
from gradsync.papers.easgd_knl import gpu_node
from gradsync.papers.easgd_knl.names import EXCHANGES
from gradsync.papers.easgd_knl.testbed import bench, label
from gradsync.papers.easgd_knl.training_runs import Run, longest, runs
from gradsync.papers.labels import labels
from gradsync.papers.repeats import LAUNCH, REPEATS
from gradsync.papers.table import Table
from gradsync.plan import Plan
from gradsync.plan.trace import Span, Trace

NODES = (2, 4, 8, 16)
COLUMNS = [
    *("rung", "scheme", "nodes", "assumption", LAUNCH, REPEATS),
    *("transfers_in_a_row", "served_at_once", "exchange_seconds", "note"),
]
SHARED = ("shared_read", "shared_add")
SERVING = ("recv", "send", "reply")
NO_TIME = "ranks wait for one another in their messages, so that a trace does not tell what an exchange takes alone"


def exchanges(settings: Settings, results: Path) -> Table:
    """A row per method and number of workers at each point of the band, and one of each run."""
    here = [run for run in longest(runs(settings, results, EXCHANGES)) if run.launch.workers > 1]
    rows = [*_simulated(settings), *(_measured(run, results) for run in here)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    caption = (
        "Transfers of all weights in a row in an exchange of all workers (in brackets the milliseconds that they take "
        "over the band), and the most workers that are served at one moment. A broadcast and a reduction are binary "
        "trees; in Sync EASGD1 the CPU is one more member of them."
    )
    return Table(frame, _display(frame, settings), caption)


def _simulated(settings: Settings) -> Iterator[dict[str, Any]]:
    file = bench(settings)
    for point in gpu_node.band(settings):
        parts = gpu_node.constants(file, point["constants"])
        for scheme in EXCHANGES:
            for nodes in NODES:
                yield {
                    **{"rung": "simulated", "scheme": scheme, "nodes": nodes, "assumption": label(**point)},
                    "transfers_in_a_row": gpu_node.transfers_in_a_row(scheme, nodes),
                    "served_at_once": gpu_node.served_at_once(scheme, nodes),
                    "exchange_seconds": gpu_node.exchange_seconds(scheme, nodes, parts),
                    "note": "",
                }


def _measured(run: Run, results: Path) -> dict[str, Any]:
    folder = results / "runs" / "elastic" / run.launch.job / run.scheme
    plan = Plan.from_json((folder / "plan.json").read_text(), str(folder / "plan.json"))
    trace = Trace.from_json((folder / "trace.json").read_text(), str(folder / "trace.json"))
    return {
        **{key: value for key, value in run.keys.items() if key in COLUMNS},
        "transfers_in_a_row": gpu_node.transfers_in_a_row(run.scheme, run.launch.workers),
        "served_at_once": served_at_once(plan, trace.spans),
        "note": NO_TIME,
    }


def served_at_once(plan: Plan, spans: Iterable[Span]) -> int:
    """The most workers that exchange with the centre at one moment of a trace.

    A master exchanges with one of whom it takes or to whom it gives; in shared memory, who reads or adds does.
    """
    spans, hosts = list(spans), masters(plan)
    if not any(span.verb in SHARED or (span.rank in hosts and span.verb in SERVING) for span in spans):
        return len(workers(plan))  # a collective is one of all
    operations = {(rank, op.name): op for rank in range(plan.ranks) for op in plan.role_of[rank].flat}
    took = {(span.rank, span.turn, span.operation): span.source for span in spans if span.verb == "recv_any"}
    changes: list[tuple[float, int, int]] = []
    for span in spans:
        if span.verb in SHARED:
            worker: Any = span.rank
        elif span.rank in hosts and span.verb in SERVING:
            op = operations[span.rank, span.operation]
            to = getattr(op, "to", None)
            worker = took.get((span.rank, span.turn, to)) if isinstance(to, str) else to
            worker = getattr(op, "source", None) if worker is None else worker
        else:
            continue
        if worker is not None:  # who waits for anybody serves nobody
            changes += [(span.start, 1, worker), (span.end, -1, worker)]
    now: Counter[int] = Counter()
    most = 0
    for _, change, worker in sorted(changes):
        now[worker] += change
        most = max(most, sum(count > 0 for count in now.values()))
    return most


def _display(frame: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    label_of = labels(settings)
    rows = []
    for (rung, scheme), part in frame.groupby(["rung", "scheme"], sort=False):
        row = {"method": label_of(str(scheme)), "rung": rung}
        for nodes, of_nodes in part.groupby("nodes"):
            times = 1e3 * of_nodes.exchange_seconds.dropna()
            row[f"{nodes} workers"] = f"{of_nodes.transfers_in_a_row.iloc[0]:.0f}" + (
                f" ({times.min():.1f} .. {times.max():.1f})" if len(times) else ""
            )
        four = part[part.nodes == 4]
        row["served at once, of 4"] = f"{four.served_at_once.iloc[0]:.0f}" if len(four) else "-"
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")
