"""Fig. 10 simulated: Sync SGD with one packed message after backward, and with one a gradient tensor after backward.

Messages are summed by a binary tree, on each network of Table 2. What the workers compute is not published: it is the
counted operations of a batch at the peak of a KNL, the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import alpha_beta
from gradsync.papers.easgd_knl import networks
from gradsync.papers.easgd_knl.networks import NETWORKS, SENT
from gradsync.papers.easgd_knl.testbed import bench, counted, label
from gradsync.papers.labels import MODELS
from gradsync.papers.simulated import timed, unsteady
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload

LAYOUTS = {"single": "one packed message", "naive": "a message a tensor"}
WORKERS = 4  # ours: the paper has no number
COUNTED_RATE = 1e12  # operations per second of the counted workloads, one sample each
COLUMNS = [
    *BY_SCHEME,
    *("network", "exchange_seconds", "update_seconds", "messages", "largest_difference"),
    *("computation_seconds", "exposed_communication_seconds", "hard_bound_seconds", "model_bound_seconds"),
]


def fig10(settings: Settings, results: Path) -> Table:
    """A row per layout and model at each point of the band."""
    frame = pd.DataFrame(list(_rows(settings, results)), columns=COLUMNS)
    caption = (
        f"Fig. 10: the exchange of all gradients between {WORKERS} workers, simulated, smallest and largest over the "
        "start-ups and rates of a network; in brackets how many messages it is. A message is summed by a binary tree "
        "and sent after backward."
    )
    return Table(frame, _display(frame), caption + unsteady(frame))


def _rows(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    file = bench(settings)
    known = schemes.load(settings.schemes)
    for model in SENT:
        workload = _computation(file, counted(model, results))
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
                        "assumption": f"{label(networks=network)}, {point}",
                        "nodes": WORKERS,
                        "exchange_seconds": sum(float(cost.seconds(plan.bytes_of(each.writes))) for each in sent),
                        "messages": len(sent),
                        "computation_seconds": workload.forward_seconds + workload.backward_seconds,
                        **timed(plan, workload, alpha_beta.around(cost, WORKERS))._asdict(),
                    }


def _computation(file: Testbed, operations: Workload) -> Workload:
    slower = (
        file.positive("cifar_batch", "value") * COUNTED_RATE / file.positive("knl", "operations_per_second", "value")
    )
    return operations.scaled(
        forward_seconds=slower * operations.forward_seconds,
        backward_seconds=slower * operations.backward_seconds,
        update_seconds=0.0,
        note="a batch at the peak of a KNL",
    )


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per model and network, a column per layout."""
    rows = []
    for (model, network), part in frame.groupby(["model", "network"], sort=False):
        row = {"model": MODELS[str(model)], "network": NETWORKS[str(network)]}
        for scheme, of_scheme in part.groupby("scheme", sort=False):
            exchange = 1e3 * of_scheme.exchange_seconds
            row[f"{LAYOUTS[str(scheme)]} [ms]"] = (
                f"{exchange.min():.3f} .. {exchange.max():.3f} ({of_scheme.messages.iloc[0]})"
            )
        rows.append(row)
    return pd.DataFrame(rows)
