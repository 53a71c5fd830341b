"""Fig. 10: Sync SGD with one packed message after backward, and with one a gradient tensor after backward.

Simulated, messages are summed by a binary tree, on each network of Table 2. Emulated, they are summed by the backend's
own all-reduce between hosts on links like those of one network. What the workers compute is not published: it is the
counted operations of a batch at the peak of a KNL, the same for both layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import alpha_beta
from gradsync.papers.easgd_knl import networks
from gradsync.papers.easgd_knl.emulation import NETWORK, at, computation
from gradsync.papers.easgd_knl.networks import NETWORKS, SENT
from gradsync.papers.easgd_knl.testbed import PAPER, bench, counted
from gradsync.papers.emulated import NO_LAUNCH, Run, runs
from gradsync.papers.labels import MODELS
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, interval, of_a_quiet_machine, samples, text
from gradsync.papers.simulated import timed, unsteady
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.statistics.intervals import median_interval

PACKED, LAYERED = "single", "naive"
LAYOUTS = {PACKED: "one packed message", LAYERED: "one message per tensor"}
WORKERS = 4  # ours: the paper has no number
COLUMNS = list(
    dict.fromkeys(
        [
            *BY_SCHEME,
            *("network", "exchange_seconds", "update_seconds", "messages", "largest_difference"),
            *("computation_seconds", "exposed_communication_seconds", "hard_bound_seconds", "model_bound_seconds"),
            *(LAUNCH, REPEATS, *columns("iteration_seconds", "exchange_seconds")),
        ]
    )
)


def fig10(settings: Settings, results: Path) -> Table:
    """A row per layout and model at each point of the band, and one per layout, model and emulated launch."""
    rows = [*_simulated(settings, results), *_emulated(settings, results)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    caption = (
        f"Fig. 10: the exchange of all gradients between {WORKERS} workers after backward; in brackets how many "
        "messages it is. Simulated, a message is summed by a binary tree; smallest and largest over the start-ups and "
        "rates of a network. Emulated, the backend's own all-reduce sums it between hosts on limited links, in the "
        "paper's seconds, with the interval of 95 %."
    )
    missing = frame[(frame.rung == "emulated") & frame.exchange_seconds.isna()].note
    reasons = f" Emulated: {'; '.join(dict.fromkeys(missing))}." if len(missing) else ""
    return Table(frame, _display(frame), caption + reasons + unsteady(frame[frame.rung == "simulated"]))


def _simulated(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    file = bench(settings)
    known = schemes.load(settings.schemes)
    for model in SENT:
        workload = computation(file, counted(model, results))
        for network in NETWORKS:
            for point in networks.band(file):
                message = networks.message(file, network, point)
                cost = alpha_beta.binary_tree(WORKERS, message.a, message.b)
                for name in LAYOUTS:
                    plan = schemes.plan(known[name], workload, cost, WORKERS)
                    sent = plan.communications()
                    yield {
                        "rung": "simulated",
                        "model": model,
                        "scheme": name,
                        "network": network,
                        "assumption": at(network, point),
                        "nodes": WORKERS,
                        "exchange_seconds": sum(float(cost.seconds(plan.bytes_of(each.writes))) for each in sent),
                        "messages": len(sent),
                        "computation_seconds": workload.forward_seconds + workload.backward_seconds,
                        **timed(plan, workload, alpha_beta.around(cost, WORKERS))._asdict(),
                    }


def _emulated(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    launches = {each.model: each for each in settings.emulated_of(PAPER) if each.ranks == WORKERS}
    for model in SENT:
        base = {"rung": "emulated", "model": model, "network": NETWORK, "nodes": WORKERS, "assumption": ""}
        launch = launches.get(model)
        launched, reason = runs(launch, results) if launch else ([], NO_LAUNCH)
        by_name = {run.name: run for run in launched if run.name in LAYOUTS}
        # of each from the first contender: two layouts are as far apart as the farther one
        apart = max((_difference(run) for run in by_name.values()), default=np.nan)
        for name in LAYOUTS:
            if name not in by_name:
                yield {**base, "scheme": name, "note": reason or f"{NO_LAUNCH} with {name}"}
                continue
            run = by_name[name]
            row = {
                **base,
                "scheme": name,
                **run.repeated(),
                **cells("exchange_seconds", run.exposed()),  # nothing of it is behind backward
                "messages": run.result.summary["messages"],
                "largest_difference": apart if len(by_name) == len(LAYOUTS) else np.nan,
                "computation_seconds": run.computation_seconds,
                "exposed_communication_seconds": float(np.median(run.exposed())),
                "hard_bound_seconds": run.hard_bound_seconds,
                "model_bound_seconds": run.model_bound_seconds,
                "note": "; ".join(run.result.notes),
            }
            yield of_a_quiet_machine(row, run.result.notes)


def _difference(run: Run) -> float:
    return float(run.result.conformance.get("difference_to_first", 0.0))


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per model, network and rung with a column per layout, and how the layouts compare."""
    shown = []
    of_values = frame[frame.exchange_seconds.notna()]
    for (model, network, rung), part in of_values.groupby(["model", "network", "rung"], sort=False):
        by_layout = {name: part[part.scheme == name] for name in LAYOUTS if (part.scheme == name).any()}
        row = {"model": MODELS[str(model)], "network": NETWORKS[str(network)], "rung": rung}
        for name, of_layout in by_layout.items():
            row[f"{LAYOUTS[name]} [ms]"] = f"{_range(of_layout)} ({of_layout.messages.iloc[0]:g})"
        if len(by_layout) == len(LAYOUTS):
            row["packed / per tensor"] = _ratio(by_layout[PACKED], by_layout[LAYERED])
        shown.append(row)
    return pd.DataFrame(shown)


def _range(rows: pd.DataFrame) -> str:
    if (rows.rung == "emulated").any():
        return text(rows.iloc[0], "exchange_seconds", ".2f", 1e3)
    exchange = 1e3 * rows.exchange_seconds
    return f"{exchange.min():.3f} .. {exchange.max():.3f}"


def _ratio(packed: pd.DataFrame, layered: pd.DataFrame) -> str:
    if (packed.rung == "emulated").any():
        ratios = samples(packed.iloc[0], "exchange_seconds") / samples(layered.iloc[0], "exchange_seconds")
        low, middle, high = median_interval(ratios)
        return text(interval("ratio", middle, low, high), "ratio", ".3f")
    ratios = packed.exchange_seconds.to_numpy() / layered.exchange_seconds.to_numpy()
    return f"{ratios.min():.3f} .. {ratios.max():.3f}"
