"""The timelines of DeAR's page: all-gathers lie under the next forward, and what is drawn is what is simulated."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from gradsync.configuration import settings
from gradsync.papers.ascwfbp import testbed as ascwfbp
from gradsync.papers.dear import timelines as simulated
from gradsync.papers.dear.drawing.timelines import timelines
from tiny_workloads import workload

ROOT = Path(__file__).parents[3]
LAYERS = 12


@pytest.fixture(scope="module")
def drawn() -> pd.DataFrame:
    """A net whose messages last as long as its computation, in the place of the paper's."""
    load = workload([20_000_000] * LAYERS, [0.02] * LAYERS, forward=0.12, forwards=[0.01] * LAYERS, dtype="float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(ascwfbp, "workload", lambda *_: load)
        figure, frame = timelines(settings.load(ROOT / "config" / "quick.yaml"), ROOT)
    plt.close(figure)
    return frame


def under(frame: pd.DataFrame, scheme: str, kind: str, below: str) -> float:
    """Seconds of messages of a kind while that is computed."""
    part = frame[frame.scheme == scheme]
    return sum(
        max(0.0, min(message.end, each.end) - max(message.start, each.start))
        for message in part[part.kind == kind].itertuples()
        for each in part[part.kind == below].itertuples()
    )


def test_gathers_lie_under_forward_and_all_reduces_under_backward_alone(drawn):
    for scheme in ("dear", "pipelined"):
        assert under(drawn, scheme, "all-gather", "forward") > 0.05
        assert under(drawn, scheme, "reduce-scatter", "backward") > 0.2
        assert under(drawn, scheme, "reduce-scatter", "forward") == 0
    for scheme in ("wfbp", "mgwfbp", "optimal"):
        assert under(drawn, scheme, "all-reduce", "backward") > 0.1
        assert under(drawn, scheme, "all-reduce", "forward") == 0
    assert {*drawn.scheme} == {*simulated.SCHEMES}


def test_two_whole_turns_of_computation_are_drawn_and_no_row_overlaps_itself(drawn):
    for _, part in drawn.groupby("scheme"):
        assert part.end.max() <= simulated.TURNS * part.turn_seconds.iloc[0] * (1 + 1e-9)
        computed = part[part.row == "compute"]
        assert (computed.end - computed.start).sum() == pytest.approx(simulated.TURNS * LAYERS * 0.03)
        for _, row in part.groupby("row"):
            in_order = row.sort_values("start")
            assert (in_order.start.to_numpy()[1:] >= in_order.end.to_numpy()[:-1] - 1e-9).all()
