"""DeAR (Zhang et al.; ICDCS 2023): the table that its claims are decided on, a figure of it, and timelines."""

from __future__ import annotations

from pathlib import Path

from gradsync.papers.dear.overlap import overlap
from gradsync.papers.declaration import Paper, counted, figure, kept, table, testbed

COMPUTATION = kept(Path("config/papers/ascwfbp/testbed.yaml"))
MODELS = counted("resnet152", "densenet201", "inceptionv4", "bert_base")

PAPER = Paper(
    quick_seconds=20,
    inputs=(testbed,),
    tables={"overlap": table(overlap, COMPUTATION, MODELS)},
    figures={"overlap": figure("overlap"), "timelines": figure(sources=(testbed, COMPUTATION, MODELS))},
)
