"""How often ASC-WFBP loses, and how much: under its own model, and against what else may send at once on a shared link.

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
from gradsync.papers.ascwfbp import iterations, own_model
from gradsync.papers.ascwfbp.testbed import MODELS, bench
from gradsync.papers.table import Table, file, read
from gradsync.plan.workload import Layer, Workload
from gradsync.schedules import ascwfbp
from gradsync.schedules.ascwfbp import Kind

INSTANCES, SEED = 400, 0
FEW, MANY = 5, 20  # layers; of few all choices of types can be tried
LINE = Linear(1.0, 0.01, "random nets")
ROUNDING = 1e-9
ASC, PRINTED, ARGMIN, BEST = "ascwfbp", "ascwfbp_as_printed", "ascwfbp_argmin", "best"
OPTIONS: dict[str, dict[str, Any]] = {ASC: {}, PRINTED: {"as_printed": True}, ARGMIN: {"rule": "argmin"}}
AGAINST = ("wfbp", "mgwfbp", BEST)


def own_model_table(settings: Settings, results: Path) -> Table:
    """Rows of random nets (a scheme against another), then of the four models (a scheme at a point of the band)."""
    gamma = bench(settings).gamma
    models = _models(settings, results)
    own = models[models.contention == iterations.PAIRWISE].drop(columns="over_model_bound")
    frame = pd.concat([_random(gamma, FEW), _random(gamma, MANY), own], ignore_index=True)
    frame = frame.fillna({"model": "", "assumption": "", "note": "", "against": ""})
    caption = (
        f"Under the paper's own model (gamma = {gamma:g}): on random nets of {FEW} and {MANY} layers, {INSTANCES} "
        "each, how many are slower than with another scheme, by how much in the mean of those and at worst (best: of "
        "all choices of layer types on two lanes; argmin: the least of Eq. 15 to 17 layer by layer in place of Theorem "
        "1); then on the four models with the paper's constants, a as stated, over its own iteration. As printed, the "
        "rule that collapses (ASC-E04) sends more at once."
    )
    return Table(frame, _own_display(frame), caption)


def shared_link(settings: Settings, results: Path) -> Table:
    """The four models on a shared link: more than two at once, or pieces, or searches; the model's bound."""
    frame = _models(settings, results)
    frame = frame[frame.contention != iterations.PAIRWISE].reset_index(drop=True)
    rows = []
    shown = {str(each): each.contention for each in iterations.SHOWN if each.startup == iterations.STATED}
    for (model, scheme), part in frame[frame.assumption.isin(shown)].groupby(["model", "scheme"], sort=False):
        row = {"model": MODELS[str(model)], "scheme": str(scheme)}
        for _, at in part.iterrows():
            row[f"{at.contention} [ms]"] = f"{1e3 * at.iteration_seconds:.1f}"
            row[f"{at.contention}: over ASC-WFBP"] = f"{at.over_asc:.3f}"
            row[f"{at.contention}: over the model's bound"] = f"{at.over_model_bound:.3f}"
        rows.append(row)
    caption = (
        "Beyond the paper, simulated with its a and b on a link that carries 2 / gamma messages at full speed at a "
        "time (gamma) and on one that a single message fills (full): more messages at once (kway), each split over "
        "lanes (striped), and a search; iteration, over that of ASC-WFBP, and over the model's bound, which no plan is "
        "below with that b and link."
    )
    return Table(frame, pd.DataFrame(rows).fillna("-"), caption)


def nets(layers: int, count: int = INSTANCES) -> list[Workload]:
    """Random nets, the same each time: a layer's transfer and backward take 0.1 to 10 start-ups each."""
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(count):
        sizes = np.round(LINE.a / LINE.b * 10 ** rng.uniform(-1, 1, layers)).astype(int)
        seconds = LINE.a * 10 ** rng.uniform(-1, 1, layers)
        made = tuple(
            Layer(name=f"layer {layers - i}", bytes=int(size), backward_seconds=float(t))
            for i, (size, t) in enumerate(zip(sizes, seconds, strict=True))
        )
        found.append(Workload(name=f"random {number}", forward_seconds=0.0, layers=made))
    return found


def best_seconds(workload: Workload, line: Linear, gamma: float) -> float:
    """The least over all choices of layer types on two lanes; the last layer is always sent."""
    count = len(workload.layers)
    choices = product(Kind, repeat=count - 1)
    return min(
        max(one.end for one in ascwfbp.timed(workload, line, [*choice, last], gamma))
        for choice in choices
        for last in (Kind.NORMAL, Kind.SIMULTANEOUS)
    )


def _random(gamma: float, layers: int) -> pd.DataFrame:
    others = AGAINST if layers == FEW else AGAINST[:-1]
    found: dict[str, list[float]] = {name: [] for name in (*OPTIONS, *others)}
    for net in nets(layers):
        for name in (*OPTIONS, "wfbp", "mgwfbp"):
            options = {"gamma": gamma, **OPTIONS[name]} if name in OPTIONS else {}
            messages = schedules.messages(ASC if name in OPTIONS else name, net, LINE, options)
            found[name].append(own_model.timed(net, messages, LINE, gamma).iteration_seconds)
        if BEST in others:
            found[BEST].append(best_seconds(net, LINE, gamma))
    seconds = {name: np.array(times) for name, times in found.items()}
    rows: list[dict[str, Any]] = []
    for name, against in product(OPTIONS, others):
        over = seconds[name] / seconds[against] - 1
        losing = over > ROUNDING
        rows.append(
            {
                "rung": "simulated",
                "what": "random nets",
                "layers": layers,
                "scheme": name,
                "against": against,
                "instances": len(over),
                "losing": int(losing.sum()),
                "losing_share": float(losing.mean()),
                "mean_loss": float(over[losing].mean()) if losing.any() else 0.0,
                "worst_loss": float(max(over.max(), 0.0)),
                "mean_gain": float(-over[over < -ROUNDING].mean()) if (over < -ROUNDING).any() else 0.0,
            }
        )
    return pd.DataFrame(rows)


def _models(settings: Settings, results: Path) -> pd.DataFrame:
    found = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    found = found[(found.rung == "simulated") & found.model.isin(MODELS) & found.iteration_seconds.notna()]
    asc = found[found.scheme == ASC].set_index(["model", "assumption"]).iteration_seconds
    over = asc.reindex(pd.MultiIndex.from_frame(found[["model", "assumption"]])).to_numpy()
    return pd.DataFrame(
        {
            **{"rung": "simulated", "what": "models", "model": found.model, "nodes": found.nodes},
            **{"scheme": found.scheme, "assumption": found.assumption, "contention": found.contention},
            "iteration_seconds": found.iteration_seconds,
            "over_asc": found.iteration_seconds / over,
            "over_model_bound": found.iteration_seconds / found.model_bound_seconds,
        }
    )


def _own_display(frame: pd.DataFrame) -> pd.DataFrame:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for _, at in frame[frame.what == "random nets"].iterrows():
        name = f"{at.instances:.0f} nets of {at.layers:.0f} layers"
        row = rows.setdefault((name, at.scheme), {"on": name, "scheme": at.scheme})
        row[f"against {at.against}"] = f"{at.losing:.0f} slower, mean {at.mean_loss:.1%}, worst {at.worst_loss:.1%}"
    centre = str(iterations.SHOWN[0])
    seconds = frame[frame.assumption == centre].set_index(["model", "scheme"]).iteration_seconds
    for model, name in MODELS.items():
        for scheme in (ASC, PRINTED):
            row = {"on": name, "scheme": scheme}
            for other in ("wfbp", "mgwfbp"):
                over = seconds[model, scheme] / seconds[model, other] - 1
                row[f"against {other}"] = f"{abs(over):.1%} {'slower' if over > ROUNDING else 'faster'}"
            rows[name, scheme] = row
    return pd.DataFrame(rows.values()).fillna("-")
