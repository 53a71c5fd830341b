"""The benchmark of emulated testbeds: what it takes for a result, on numbers that were made up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradsync.cli import main
from gradsync.errors import InputError, RunError
from gradsync.measure import emulated_runs, testbed_speed
from gradsync.measure.testbed_speed import BML, SERVER, Contender
from gradsync.results import Result
from gradsync.runtime.transfers import Transfers

LARGE, SMALL = 4_000_000, 65536


# Links


@pytest.mark.parametrize(
    ("shares", "enough", "repeatable"),
    [
        ([0.956, 0.955, 0.956], True, True),
        ([0.956, 0.929, 0.956], False, False),  # one link is enough to miss
        ([0.931, 0.952, 0.952], True, False),
        ([0.912, 0.912, 0.912], False, True),
    ],
)
def test_links_are_held_against_their_rate_and_one_another(shares, enough, repeatable):
    rate, spread = testbed_speed.link_rows(2e8, shares)
    assert (rate["met"], spread["met"]) == (enough, repeatable)
    assert (rate["ratio"], spread["ratio"]) == pytest.approx((min(shares), max(shares) / min(shares)))


def test_testbeds_of_all_rates_take_turns(monkeypatch):
    asked = []

    def check(rate):
        asked.append(rate)
        return {"possible": True, "links": [{"share_of_rate": 0.95}, {"share_of_rate": 0.95 + len(asked) / 1000}]}

    monkeypatch.setattr(testbed_speed, "check", check)
    rows = testbed_speed.links()
    assert asked == [2e8, 4e8] * 3
    assert [row["ratio"] for row in rows] == pytest.approx([0.95, 0.955 / 0.95, 0.95, 0.956 / 0.95])


def test_where_no_testbed_can_be_made_one_message_says_why(monkeypatch, tmp_path, capsys):
    def refuse():
        raise InputError("the command 'tc' is missing: install iproute2")

    monkeypatch.setattr(testbed_speed.privileges, "enter", refuse)
    assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "gradsync: the command 'tc' is missing: install iproute2\n"
    assert not list(tmp_path.iterdir())

    monkeypatch.setattr(testbed_speed.privileges, "enter", lambda: None)
    monkeypatch.setattr(testbed_speed, "check", lambda rate: {"possible": False, "reason": "a link carries nothing"})
    assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "gradsync: benchmark testbed: a link carries nothing\n"


# BML beside a parameter server


def times(bml: float, server: float, size: int = LARGE, messages: int = 10) -> dict[Contender, list]:
    """Two launches each, the second of which is slower by a thousandth."""
    return {
        which: [{size: [seconds] * messages}, {size: [1.001 * seconds] * messages}]
        for which, seconds in ((BML, bml), (SERVER, server))
    }


@pytest.mark.parametrize(("server", "met"), [(1.91, True), (1.89, False)])
def test_from_4_mb_up_bml_must_be_nearly_twice_as_fast(server, met):
    (row,) = testbed_speed.comparison(times(1.0, server))
    assert row["ratio"] == pytest.approx(server)
    assert row["met"] is met
    (small,) = testbed_speed.comparison(times(1.0, server, SMALL))
    assert (small["target_ratio"], small["met"]) == (None, True)


def test_a_row_tells_both_with_their_intervals_and_launches():
    (row,) = testbed_speed.comparison(times(0.15, 0.3))
    assert (row["bml_seconds_low"], row["bml_seconds_high"]) == pytest.approx((0.15, 0.15015))
    assert row["ps_p2p_launch_seconds"] == pytest.approx([0.3, 0.3003])
    assert (row["bml_messages"], row["ps_p2p_messages"]) == (20, 20)
    (heading, line) = testbed_speed.table([row]).splitlines()
    assert heading.split() == "bytes BML ms at line rate PS ms at line rate PS / BML".split()
    assert line.split()[:5] == ["4000000", "150.1", "(150.0", "..", "150.2)"]


@pytest.mark.parametrize("size", [16384, 13_098_536])
def test_the_links_alone_take_what_the_paper_says(size):
    server, bml = (testbed_speed.line_rate_seconds(which, size) for which in (SERVER, BML))
    assert server == pytest.approx(2 * 8 / 9 * size * 8 / 2e8)
    assert bml == pytest.approx(server / 2)


def test_the_interval_of_a_ratio_covers_the_true_one():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        low, ratio, high = testbed_speed.ratio_interval(2 * rng.lognormal(0, 0.1, 20), rng.lognormal(0, 0.1, 20))
        assert low <= ratio <= high
        covered += low <= 2 <= high
    assert covered >= 0.95 * 300


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.5, 0.5, 1.5, 2.0], np.sqrt(20_000 * 40_000)),  # half of the way, in the logarithm
        ([1.2, 0.9, 1.0, 2.0], 40_000),  # from there on for good
        ([0.5, 0.8, 0.9, 1.1], np.sqrt(40_000 * 80_000)),
        ([1.1, 1.5, 1.6, 2.0], None),
        ([0.5, 0.6, 0.7, 0.9], None),
    ],
)
def test_the_crossing_lies_between_the_sizes_around_it(ratios, expected):
    rows = [{"bytes": 10_000 * 2**i, "ratio": ratio} for i, ratio in enumerate(ratios)]
    row = testbed_speed.crossing(rows)
    assert row["met"]
    assert row["bytes"] == (expected if expected is None else pytest.approx(expected, abs=1))
    if expected is None:
        assert ("not the faster one up to 80000 B" in row["task"]) is (ratios[-1] < 1)


def test_they_take_turns(monkeypatch, tmp_path):
    order = []

    def launched(contender, folder, config, sizes):
        order.append(contender)
        return {size: [len(order)] for size in sizes}

    monkeypatch.setattr(testbed_speed, "launched", launched)
    found = testbed_speed.in_turn(tmp_path, "some.yaml", (SMALL,))
    assert order == [BML, SERVER, SERVER, BML]
    assert found == {BML: [{SMALL: [1]}, {SMALL: [4]}], SERVER: [{SMALL: [2]}, {SMALL: [3]}]}


def test_one_row_that_misses_is_a_miss(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(testbed_speed.privileges, "enter", lambda: None)
    monkeypatch.setattr(testbed_speed, "links", lambda: testbed_speed.link_rows(2e8, [0.956, 0.956]))
    for server, status in ((2.0, 0), (1.5, 1)):
        monkeypatch.setattr(testbed_speed, "in_turn", lambda *_, server=server: times(1.0, server))
        assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == status
        said = capsys.readouterr().err
        assert "run snakemake emulated first" in said
        answer = json.loads((tmp_path / "benchmarks" / "testbed.json").read_text())
        assert answer["met"] is (status == 0)
        assert len(answer["rows"]) == 4
        assert answer["machine"]["cores"] > 0
    assert "missed its target: ps_p2p on switch:9 / bml on bcube:3,2, 4000000 B: 1.500" in said


def test_a_wrong_sum_is_no_result(alone, monkeypatch):
    found = testbed_speed.message_seconds("ring", (1,), (4096, 64), 0, 1)
    assert all(len(found[size]) % 5 == 0 and len(found[size]) >= 10 for size in (4096, 64))
    monkeypatch.setattr(Transfers, "run", lambda self: self_buffers.pop().zero_())
    self_buffers = []
    monkeypatch.setattr(testbed_speed.torch, "equal", lambda *_: False)
    with pytest.raises(RunError, match="ring gave a wrong sum of 64 B"):
        testbed_speed.message_seconds("ring", (1,), (4096, 64), 0, 1)
