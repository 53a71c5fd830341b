"""What a training was evaluated at: the accuracy at the end of each epoch, seed by seed, and BLEU of translations."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.errors import InputError
from gradsync.papers.table import read

METRICS = ["seed", "step", "epoch", "accuracy"]  # columns needed of the metrics of a run
BLEU = "bleu"  # a column that those of translations have


def evaluated(path: Path) -> pd.DataFrame:
    """A row per seed and epoch: columns seed, epoch (how many are complete), steps (taken until then), accuracy, bleu.

    Without BLEU, which only translations have, it is NaN.

    The metrics file has a row per turn. Raises InputError if it is missing or another file.
    """
    metrics = read(path, METRICS)
    if BLEU not in metrics:
        metrics[BLEU] = float("nan")
    if not all(pd.api.types.is_numeric_dtype(metrics[column]) for column in (*METRICS, BLEU)):
        raise InputError(f"{path}: not metrics of a training: a cell is no number: delete it and run again")
    turns_an_epoch = (metrics.epoch == 0).groupby(metrics.seed).transform("sum")
    # accuracy is taken after the block in which an epoch ends, so maybe some turns into the next one
    numbered = metrics.assign(epoch=(metrics.step + 1) // turns_an_epoch, steps=metrics.step + 1)
    return numbered.dropna(subset=["accuracy"])[["seed", "epoch", "steps", "accuracy", BLEU]]
