"""Cells of repeated quantities: they survive the file of their table, and pairs are pairs of one launch only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gradsync.errors import InputError
from gradsync.papers import repeats
from gradsync.papers.table import read
from gradsync.statistics.quiet import UNDER_LOAD
from made_up_repeats import MOMENTS


def row(launch: str = "a", number: float = 1.0, moments: tuple[float, ...] = MOMENTS) -> dict:
    return {"launch": launch, "repeats": len(moments), **repeats.cells("seconds", number * np.array(moments))}


def test_cells_survive_their_file(tmp_path):
    samples = np.random.default_rng(0).exponential(size=7)
    frame = pd.DataFrame([{"launch": "a", **repeats.cells("seconds", samples)}, {"launch": "b"}])
    frame.to_csv(tmp_path / "t.csv", index=False)
    again = read(tmp_path / "t.csv", ["launch", *repeats.columns("seconds")])
    assert repeats.samples(again.iloc[0], "seconds").tolist() == samples.tolist()
    assert again.seconds[0] == np.median(samples)
    assert repeats.ends(again.iloc[0], "seconds") == (samples.min(), samples.max())
    assert not len(repeats.samples(again.iloc[1], "seconds"))
    assert np.isnan(repeats.ends(again.iloc[1], "seconds")).all()
    assert repeats.text(again.iloc[1], "seconds", ".1f") == "-"


def test_too_few_have_their_median_and_no_ends():
    cells = repeats.cells("x", [1.0, 2.0])
    assert (cells["x"], cells["x_low"], cells["x_high"], cells["x_samples"]) == (1.5, None, None, "[1.0, 2.0]")
    assert repeats.text(cells, "x", ".1f") == "1.5 (no interval)"


@pytest.mark.parametrize("samples", [[], [np.nan, 1.0], [np.inf] * 7])
def test_what_is_no_number_has_no_cells(samples):
    assert repeats.cells("x", samples) == {}


def test_pairs_are_of_one_launch():
    def ratio(mine, theirs):
        return mine / theirs

    assert repeats.paired(ratio, row(number=3), row(), "seconds") == pytest.approx([3.0] * 6)
    for other in (row("b"), row("a", moments=MOMENTS[1:]), {"launch": "a"}):
        assert not len(repeats.paired(ratio, row(), other, "seconds"))
    assert not len(repeats.paired(ratio, row(""), row(""), "seconds"))


@pytest.mark.parametrize("cell", ["1.0", '{"a": 1}', "[1, [2]]", "[1, 'x']", '["x"]', "[1"])
def test_what_is_no_list_of_repeats_is_named(cell):
    with pytest.raises(InputError, match="seconds_samples: no list of numbers"):
        repeats.samples({"seconds_samples": cell}, "seconds")


def test_times_beside_other_work_are_shown_and_have_no_interval():
    timed = {"launch": "a", **repeats.cells("seconds", [1.0, 2.0, 3.0, 2.0, 2.0, 2.0])}
    note = f"launch: {UNDER_LOAD} 40% of the cores: measure again on a quiet machine"
    assert repeats.of_a_quiet_machine(timed, ["2 ranks share 1 cores"]) == timed
    assert repeats.of_a_quiet_machine(timed, ["other", note]) == {"launch": "a", "seconds": 2.0}
