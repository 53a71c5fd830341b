"""Fig. 6(b) and 7(b): accuracy by epoch of the real runs.

Differs from the paper: handwritten digits or whatever small data the configuration names, not 13 epochs of ImageNet. So
it shows whether a schedule changes the accuracy, which needs no cores to spare, and not the paper's accuracy.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.evaluations import evaluated
from gradsync.papers.labels import MODELS
from gradsync.papers.table import Table
from gradsync.papers.training import contenders

COLUMNS = [
    *("rung", "model", "nodes", "scheme", "data", "epoch"),
    *("accuracy", "accuracy_least", "accuracy_most", "seeds", "note"),
]


def fig6b(settings: Settings, results: Path) -> Table:
    """Fig. 6(b): GoogLeNet."""
    return _convergence("Fig. 6(b)", "googlenet", settings, results)


def fig7b(settings: Settings, results: Path) -> Table:
    """Fig. 7(b): ResNet-50."""
    return _convergence("Fig. 7(b)", "resnet50", settings, results)


def _convergence(place: str, model: str, settings: Settings, results: Path) -> Table:
    frames = []
    for job in settings.of("mgwfbp"):
        if job.model != model:
            continue
        folder = results / "runs" / "train" / job.job
        for name in contenders(folder):
            by_epoch = accuracies(folder / name / "metrics.csv")
            frames.append(by_epoch.assign(rung="measured", model=model, nodes=job.ranks, scheme=name, data=job.data))
    title = f"{place}, {MODELS[model]}: test accuracy by epoch"
    if not frames:
        nothing = f"no whole epoch of {model} in this configuration"
        return Table(pd.DataFrame(columns=COLUMNS), pd.DataFrame({"model": [nothing]}), f"{title}: {nothing}.")
    frame = pd.concat(frames, ignore_index=True).assign(note="")[COLUMNS]
    last = frame[frame.epoch == frame.groupby(["nodes", "scheme", "data"]).epoch.transform("max")]
    display = last.drop(columns=["rung", "model", "note"]).round(3)
    caption = (
        f"{title}, at the last epoch; mean and range over seeds. Data: {', '.join(frame.data.unique())} at reduced "
        "input, not ImageNet, so only differences between schemes say anything about the paper; every epoch is in the "
        "CSV file."
    )
    return Table(frame, display, caption)


def accuracies(path: Path) -> pd.DataFrame:
    """Columns epoch (how many are complete), accuracy (mean over seeds), accuracy_least, accuracy_most (range), seeds.

    Raises InputError if the file is missing or another one.
    """
    by_epoch = evaluated(path).groupby("epoch").accuracy.agg(["mean", "min", "max", "count"]).reset_index()
    return by_epoch.set_axis(["epoch", "accuracy", "accuracy_least", "accuracy_most", "seeds"], axis=1)
