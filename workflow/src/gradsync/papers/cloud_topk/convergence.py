"""Fig. 10: accuracy over epochs of dense and sparse training, from the launches of this paper that train whole epochs.

Differs from the paper: small models on small data. It says neither at which density it trains nor that anything is done
with what isn't sent (CT-E18): a launch has schemes of several densities, with and without error feedback, and each is a
point of the band of its scheme. Every scheme starts from the same parameters and sees the same samples, seed by seed,
so that two of them are compared in pairs.

Values: mean_accuracy (of a seed the mean over its epochs) and accuracy (after the last epoch), medians over seeds; of
translations also bleu after the last epoch, and their accuracy is the share of tokens that are predicted from those
before them. Rows of a launch on another topology than the testbed's for small training have no intervals, so that they
decide nothing.

The claims call a translation of any other sentences than WMT17's `text`, and a small Transformer `transformer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync import topologies
from gradsync.configuration import schemes
from gradsync.configuration.launches import Training
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.declaration import Place
from gradsync.papers.evaluations import evaluated
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.published import Published
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, shown_only, text
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.papers.training import contenders

SMALL = ("digits", "cifar10", "translation")  # data of the stand-ins, whose topology the testbed states
DATA = {"translation": "text"}  # of a launch: its name in the claims
TRANSFORMERS = ("transformer_quarter", "transformer_small")  # that stand for the paper's
WMT17 = "wmt17"
DENSE = "dense_sgd"  # our name
SPARSE = ("topk_sgd", "mstopk_sgd", "recipe")  # the paper's names; the last is sparse first, then dense
KEYS = ["rung", "data", "model", "scheme", "assumption", "contender", "nodes", LAUNCH]
VALUES = [*columns("mean_accuracy", "accuracy"), "accuracy_least", "accuracy_most", *columns("bleu")]
FIG10 = [*KEYS, *VALUES, "epochs", REPEATS, "note"]
EPOCHS = [*KEYS, "epoch", "accuracy", "accuracy_least", "accuracy_most", "seeds"]


def fig10(settings: Settings, results: Path) -> Table:
    """A row per launch and contender."""
    frame = pd.DataFrame(list(_summaries(settings, results))).reindex(columns=FIG10)
    if frame.empty:
        nothing = "no training of this paper in this configuration"
        return Table(frame, pd.DataFrame({"model": [nothing]}), f"Fig. 10: {nothing}.")
    label_of = labels(settings)
    display = pd.DataFrame(
        [
            {
                "data": row["data"],
                "model": MODELS.get(row.model, row.model),
                "scheme": label_of(row.contender),
                "point": row.assumption or "-",
                "mean over epochs": text(row, "mean_accuracy", ".3f"),
                "after the last": text(row, "accuracy", ".3f"),
                "least and most": f"{row.accuracy_least:.3f} .. {row.accuracy_most:.3f}",
                "BLEU after the last": "-" if pd.isna(row.bleu) else text(row, "bleu", ".2f"),
                "epochs": row.epochs,
                "seeds": row[REPEATS],
            }
            for _, row in frame.iterrows()
        ]
    )
    notes = "".join(f" {note}." for note in dict.fromkeys(frame.note) if note)
    caption = (
        "Fig. 10 by small models and data: test accuracy, medians over seeds, in brackets 95 %, which fewer than six "
        f"seeds have not. All schemes of a launch have the same seeds and samples.{translated(settings)}{notes}"
    )
    return Table(frame, display, caption)


def fig10_epochs(settings: Settings, results: Path) -> Table:
    """Fig. 10 in full: a row per launch, contender and epoch, with the mean and the range over seeds."""
    frames = []
    for base, _, by_seed in _contenders(settings, results):
        grouped = by_seed.groupby("epoch").accuracy.agg(["mean", "min", "max", "count"]).reset_index()
        grouped = grouped.set_axis(EPOCHS[-5:], axis=1)
        frames.append(grouped.assign(**base))
    frame = pd.concat(frames, ignore_index=True)[EPOCHS] if frames else pd.DataFrame(columns=EPOCHS)
    display = frame.drop(columns=["rung", LAUNCH, "scheme"]).round(3)
    return Table(frame, display, "Fig. 10: test accuracy by epoch, the mean and the range over seeds.")


def _summaries(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    for base, launch, by_seed in _contenders(settings, results):
        last = by_seed[by_seed.epoch == by_seed.epoch.max()]
        row = {
            **base,
            **cells("mean_accuracy", by_seed.groupby("seed").accuracy.mean().to_numpy()),
            **cells("accuracy", last.accuracy.to_numpy()),
            **cells("bleu", last.bleu.to_numpy()),
            "accuracy_least": last.accuracy.min(),
            "accuracy_most": last.accuracy.max(),
            "epochs": by_seed.epoch.max(),
            REPEATS: by_seed.seed.nunique(),
            "note": undecidable(launch, settings) or _too_short(launch, by_seed, settings),
        }
        yield shown_only(row) if row["note"] else row


def _contenders(settings: Settings, results: Path) -> Iterator[tuple[dict[str, Any], Training, pd.DataFrame]]:
    """Keys of every contender that has trained whole epochs, its launch, its accuracy by seed and epoch."""
    known = schemes.load(settings.schemes)
    sparse = sparse_schemes(settings, known)
    for launch in shown(settings):
        folder, points = results / "runs" / "train" / launch.job, set[tuple[str, str]]()
        for name in contenders(folder):
            by_seed = evaluated(folder / name / "metrics.csv")
            scheme, point = of_band(known[name], sparse) if name in known else (name, "")
            if by_seed.empty or (scheme, point) in points:
                continue
            points.add((scheme, point))
            data, model = case(launch)
            base: dict[str, Any] = {"rung": "measured", "data": data, "model": model, "scheme": scheme}
            base |= {"assumption": point, "contender": name, "nodes": launch.ranks, LAUNCH: launch.job}
            yield base, launch, by_seed


def shown(settings: Settings) -> list[Training]:
    """The launches that are shown: of each model and data one, that on the testbed's topology if there is one.

    Launches of so many iterations are none of them, nor those in stages, whose epochs have other numbers of iterations.
    """
    first: dict[tuple[str, str], Training] = {}
    in_epochs = [launch for launch in settings.of(PAPER) if not (launch.recipe or launch.iterations)]
    for launch in sorted(in_epochs, key=lambda launch: bool(undecidable(launch, settings))):
        first.setdefault(case(launch), launch)
    return list(first.values())


def shown_launches(place: Place) -> list[Path]:
    """What the launches that are shown leave behind."""
    return [place.results / "runs" / "train" / launch.job / "schemes.json" for launch in shown(place.settings)]


def case(launch: Training) -> tuple[str, str]:
    """(data, model) of a launch, as the claims call them."""
    small = launch.data in DATA and launch.model in TRANSFORMERS
    return DATA.get(launch.data, launch.data), "transformer" if small else launch.model


def translated(settings: Settings) -> str:
    """What captions say of the sentences of translations; empty if none is shown."""
    kinds = {bool(launch.data_folder) for launch in shown(settings) if launch.data in DATA}
    if not kinds:
        return ""
    made = " and ".join("local files" if local else "a generated language, no natural one" for local in sorted(kinds))
    return (
        f" Translations (text) are of {made}, by a small Transformer: their accuracy is the share of tokens predicted "
        "from those before them, BLEU that of greedy translations of held-out sentences."
    )


def sparse_schemes(settings: Settings, known: dict[str, Scheme]) -> list[Scheme]:
    """The paper's own schemes with sparse messages, in all of the epochs or at first."""
    published = Published(PAPER, settings)
    return [known[name] for each in SPARSE if (name := published.scheme({"scheme": each})) in known]


def of_band(scheme: Scheme, sparse: list[Scheme]) -> tuple[str, str]:
    """(scheme of the paper, its point of the band) that a contender is; any other one is itself, without a band.

    Any scheme that sums all of the gradients is the dense one: what it trains is equal but for the order of sums. A
    scheme with phases has the point of its first.
    """
    if scheme.averaged and not scheme.changes_training:
        return DENSE, ""
    for of_paper in sparse:
        if _trains(scheme) == _trains(of_paper):
            first = scheme.parts[0]
            feedback = "with" if first.error_feedback else "without"
            return of_paper.name, f"density {first.density:g}, {feedback} error feedback"
    return scheme.name, ""


def _trains(scheme: Scheme) -> tuple[Any, ...]:
    """What schemes have in common that are points of one band: of each phase its share, and how sparse messages go."""
    shares = [phase.share for phase in scheme.phases] or [1.0]
    ways = [(part.compressor, part.collective) if part.changes_training else DENSE for part in scheme.parts]
    return tuple(zip(shares, ways, strict=True))


def undecidable(launch: Training, settings: Settings) -> str:
    """Why no claim is decided on a launch, if so: small data have a topology, and the paper's own its training."""
    file = Testbed(settings.of_paper(PAPER).testbed)
    if launch.data not in SMALL:
        return _unlike(launch, file)
    stated = topologies.parse(file.text("small_training", "topology"))
    if (launch.ranks, launch.ranks_a_node) == (prod(stated.shape), stated.ranks_a_node):
        return ""
    nodes = f"{launch.ranks} ranks" + (f", {launch.ranks_a_node} of a node" if launch.ranks_a_node else "")
    return f"{launch.job}: {nodes}; what is judged trains on {stated.name}"


def _unlike(launch: Training, file: Testbed) -> str:
    """What a launch on the paper's own data has otherwise than the paper: ranks, and on ImageNet epochs and batch."""
    own, judged = [f"{launch.ranks} ranks"], [f"{_of_paper(file, 'workers')} ranks"]
    if launch.data == "imagenet":
        together = launch.ranks * launch.batch * launch.accumulate
        own += [f"{launch.epochs} epochs", f"{together} samples per step"]
        judged += [f"{_of_paper(file, 'epochs')} epochs", f"{_of_paper(file, 'global_batch')} samples per step"]
    if launch.target_accuracy is not None:
        own.append("an accuracy at which it ends")
    return "" if own == judged else f"{launch.job}: {', '.join(own)}; what is judged has {', '.join(judged)}"


def _too_short(launch: Training, by_seed: pd.DataFrame, settings: Settings) -> str:
    """Whether a training of the Transformer on WMT17 has fewer steps than the paper's, which no configuration tells."""
    judged, own = _of_paper(Testbed(settings.of_paper(PAPER).testbed), "steps_transformer"), by_seed.steps.max()
    return f"{launch.job}: {own} steps; what is judged has {judged}" if launch.data == WMT17 and own < judged else ""


def _of_paper(file: Testbed, key: str) -> int:
    """A number of the paper's own training."""
    return int(file.positive("training", "value", key))
