"""Factors of interference: between sizes, measured, and in files, with faults and without."""

from __future__ import annotations

import pytest

from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.errors import InputError

FACTORS = Interference(
    ranks=2,
    points=(
        InterferencePoint(bytes=100, computation=1.0, communication=4.0),
        InterferencePoint(bytes=10_000, computation=2.0, communication=2.0),
    ),
)


def test_factors_lie_between_those_of_the_nearest_sizes():
    assert FACTORS.factors(1000) == pytest.approx((1.5, 3.0))  # half way on a logarithmic scale
    assert FACTORS.factors(1) == (1.0, 4.0)
    assert FACTORS.factors(1e9) == (2.0, 2.0)
    assert FACTORS.factors(10**30) == (2.0, 2.0)  # beyond 64 bits


def test_a_measured_factor_below_one_is_noise():
    point = InterferencePoint.of(8, (0.8, 0.9, 1.1), (1.0, 1.5, 2.0))
    assert (point.computation, point.communication) == (1.0, 1.5)
    assert point.computation_interval == (0.8, 1.1)  # what was measured stays to be seen


@pytest.mark.parametrize("ends", [(None, 1.5), (1.2, None), (None, None)])
def test_half_an_interval_is_none(ends):
    point = InterferencePoint.of(8, (ends[0], 1.3, ends[1]), (1.0, 1.5, 2.0))
    assert point.computation_interval is None
    assert point.communication_interval == (1.0, 2.0)


def test_factors_survive_their_file_and_belong_to_their_ranks(tmp_path):
    path = tmp_path / "interference.json"
    path.write_text(FACTORS.to_json())
    assert Interference.load(path, 2) == FACTORS
    with pytest.raises(InputError, match="between 2 ranks, the plan is for 4: measure it with --ranks 4"):
        Interference.load(path, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "points"),
        ("nonsense", "not JSON"),
        ('{"version": 9, "points": [{"bytes": 1, "computation": 1, "communication": 1}]}', "version 9"),
        ('{"points": [{"bytes": 1, "computation": 0.5, "communication": 1}]}', "computation"),
        (
            '{"points": [{"bytes": 2, "computation": 1, "communication": 1},'
            ' {"bytes": 2, "computation": 1, "communication": 1}]}',
            "ascending",
        ),
        (f'{{"points": [{{"bytes": {10**30}, "computation": 1, "communication": 1}}]}}', "68719476736"),
    ],
)
def test_a_bad_interference_is_refused(tmp_path, content, message):
    path = tmp_path / "interference.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        Interference.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="can't be read"):
        Interference.load(tmp_path / "nowhere.json")
