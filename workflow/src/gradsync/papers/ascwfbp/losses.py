"""How often ASC-WFBP loses, and how much: under its own model, and against other schedules on a shared link.

Under the pairwise model on random nets against WFBP, MG-WFBP and the best of all choices of layer types (ASC-E17), as
corrected and as printed (ASC-E04); and on the four models, from Table IV.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync import schedules
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear
from gradsync.papers.ascwfbp import iterations, pairwise_model
from gradsync.papers.ascwfbp.testbed import MODELS, bench
from gradsync.papers.table import Table, file, read
from gradsync.plan.workload import Layer, Workload
from gradsync.schedules import ascwfbp
from gradsync.schedules.ascwfbp import Kind

INSTANCES, SEED = 400, 0
FEW, MANY = 5, 20  # layers; all choices of layer types can be tried for few
LINE = Linear(1.0, 0.01, "random nets")
ROUNDING = 1e-9
ASC, PRINTED, ARGMIN, BEST = "ascwfbp", "ascwfbp_as_printed", "ascwfbp_argmin", "best"
OPTIONS: dict[str, dict[str, Any]] = {ASC: {}, PRINTED: {"as_printed": True}, ARGMIN: {"rule": "argmin"}}
AGAINST = ("wfbp", "mgwfbp", BEST)


def pairwise_model_table(settings: Settings, results: Path) -> Table:
    """Rows of random nets (one scheme against another), then of the four models (one scheme at a point of the band)."""
    gamma = bench(settings).gamma
    models = _models(settings, results)
    pairwise = models[models.contention == iterations.PAIRWISE].drop(columns="over_model_bound")
    frame = pd.concat([_random(gamma, FEW), _random(gamma, MANY), pairwise], ignore_index=True)
    frame = frame.fillna({"model": "", "assumption": "", "note": "", "against": ""})
    caption = (
        f"Under the paper's own model (gamma = {gamma:g}): on random nets of {FEW} and {MANY} layers, {INSTANCES} "
        "each, how many are slower than with another scheme, by how much in the mean of those and at worst (best: of "
        "all choices of layer types on two lanes; argmin: the least of Eq. 15 to 17 layer by layer in place of Theorem "
        "1); then on the four models with the paper's constants, a as stated, over its own iteration. As printed, the "
        "rule that collapses (ASC-E04) sends more at once."
    )
    return Table(frame, _losses_display(frame), caption)


def shared_link(settings: Settings, results: Path) -> Table:
    """The four models on a shared link: more than two messages at once, pieces, searches; the model's bound."""
    frame = _models(settings, results)
    frame = frame[frame.contention != iterations.PAIRWISE].reset_index(drop=True)
    rows = []
    shown = {str(each): each.contention for each in iterations.SHOWN if each.startup == iterations.STATED}
    for (model, scheme), part in frame[frame.assumption.isin(shown)].groupby(["model", "scheme"], sort=False):
        cells = {"model": MODELS[str(model)], "scheme": str(scheme)}
        for _, row in part.iterrows():
            cells[f"{row.contention} [ms]"] = f"{1e3 * row.iteration_seconds:.1f}"
            cells[f"{row.contention}: over ASC-WFBP"] = f"{row.over_asc:.3f}"
            cells[f"{row.contention}: over the model's bound"] = f"{row.over_model_bound:.3f}"
        rows.append(cells)
    caption = (
        "Beyond the paper, simulated with its a and b on a link that carries 2 / gamma messages at full speed at a "
        "time (gamma) and on one that a single message fills (full): more messages at once (kway), each split over "
        "lanes (striped), and a search; iteration, over that of ASC-WFBP, and over the model's bound, which no plan is "
        "below with that b and link."
    )
    return Table(frame, pd.DataFrame(rows).fillna("-"), caption)


def nets(layers: int, count: int = INSTANCES) -> list[Workload]:
    """Random nets, the same in each call: a layer's transfer and backward take 0.1 to 10 start-ups each."""
    rng = np.random.default_rng(SEED)
    workloads = []
    for number in range(count):
        sizes = np.round(LINE.a / LINE.b * 10 ** rng.uniform(-1, 1, layers)).astype(int)
        seconds = LINE.a * 10 ** rng.uniform(-1, 1, layers)
        layers_backward = tuple(
            Layer(name=f"layer {layers - i}", bytes=int(size), backward_seconds=float(t))
            for i, (size, t) in enumerate(zip(sizes, seconds, strict=True))
        )
        workloads.append(Workload(name=f"random {number}", forward_seconds=0.0, layers=layers_backward))
    return workloads


def best_seconds(workload: Workload, line: Linear, gamma: float) -> float:
    """The least iteration over all choices of layer types on two lanes; the last layer is always sent."""
    count = len(workload.layers)
    choices = product(Kind, repeat=count - 1)
    return min(
        max(one.end for one in ascwfbp.timed(workload, line, [*choice, last], gamma))
        for choice in choices
        for last in (Kind.NORMAL, Kind.SIMULTANEOUS)
    )


def _random(gamma: float, layers: int) -> pd.DataFrame:
    others = AGAINST if layers == FEW else AGAINST[:-1]
    times: dict[str, list[float]] = {name: [] for name in (*OPTIONS, *others)}
    for net in nets(layers):
        for name in (*OPTIONS, "wfbp", "mgwfbp"):
            options = {"gamma": gamma, **OPTIONS[name]} if name in OPTIONS else {}
            messages = schedules.messages(ASC if name in OPTIONS else name, net, LINE, options)
            times[name].append(pairwise_model.timed(net, messages, LINE, gamma).iteration_seconds)
        if BEST in others:
            times[BEST].append(best_seconds(net, LINE, gamma))
    seconds = {name: np.array(samples) for name, samples in times.items()}
    rows: list[dict[str, Any]] = []
    for name, against in product(OPTIONS, others):
        excess = seconds[name] / seconds[against] - 1
        losing = excess > ROUNDING
        rows.append(
            {
                "rung": "simulated",
                "what": "random nets",
                "layers": layers,
                "scheme": name,
                "against": against,
                "instances": len(excess),
                "losing": int(losing.sum()),
                "losing_share": float(losing.mean()),
                "mean_loss": float(excess[losing].mean()) if losing.any() else 0.0,
                "worst_loss": float(max(excess.max(), 0.0)),
                "mean_gain": float(-excess[excess < -ROUNDING].mean()) if (excess < -ROUNDING).any() else 0.0,
            }
        )
    return pd.DataFrame(rows)


def _models(settings: Settings, results: Path) -> pd.DataFrame:
    iteration_rows = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    iteration_rows = iteration_rows[
        (iteration_rows.rung == "simulated")
        & iteration_rows.model.isin(MODELS)
        & iteration_rows.iteration_seconds.notna()
    ]
    asc = iteration_rows[iteration_rows.scheme == ASC].set_index(["model", "assumption"]).iteration_seconds
    asc_seconds = asc.reindex(pd.MultiIndex.from_frame(iteration_rows[["model", "assumption"]])).to_numpy()
    return pd.DataFrame(
        {
            **{"rung": "simulated", "what": "models", "model": iteration_rows.model, "nodes": iteration_rows.nodes},
            **{
                "scheme": iteration_rows.scheme,
                "assumption": iteration_rows.assumption,
                "contention": iteration_rows.contention,
            },
            "iteration_seconds": iteration_rows.iteration_seconds,
            "over_asc": iteration_rows.iteration_seconds / asc_seconds,
            "over_model_bound": iteration_rows.iteration_seconds / iteration_rows.model_bound_seconds,
        }
    )


def _losses_display(frame: pd.DataFrame) -> pd.DataFrame:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for _, losses in frame[frame.what == "random nets"].iterrows():
        name = f"{losses.instances:.0f} nets of {losses.layers:.0f} layers"
        row = rows.setdefault((name, losses.scheme), {"on": name, "scheme": losses.scheme})
        row[f"against {losses.against}"] = (
            f"{losses.losing:.0f} slower, mean {losses.mean_loss:.1%}, worst {losses.worst_loss:.1%}"
        )
    centre = str(iterations.SHOWN[0])
    seconds = frame[frame.assumption == centre].set_index(["model", "scheme"]).iteration_seconds
    for model, name in MODELS.items():
        for scheme in (ASC, PRINTED):
            row = {"on": name, "scheme": scheme}
            for other in ("wfbp", "mgwfbp"):
                excess = seconds[model, scheme] / seconds[model, other] - 1
                row[f"against {other}"] = f"{abs(excess):.1%} {'slower' if excess > ROUNDING else 'faster'}"
            rows[name, scheme] = row
    return pd.DataFrame(rows.values()).fillna("-")
