"""A chip in parts: which cores a part has, what is refused, and into how many parts it is best cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gradsync.cli import main
from gradsync.clusters import chip, chip_times
from gradsync.clusters.chip import Core
from gradsync.errors import InputError

KNL = Path(__file__).parents[3] / "config/chips/knl7250.yaml"
ROUND, SERIAL, WORK, UPDATE = 1e-3, 4e-3, 24e-3, 2e-3
PART = {"parts": 1, "cores": 4, "compute_seconds": [1.0] * 9, "update_seconds": [1.0] * 9, "sum_seconds": []}


def cores(*of_nodes: int) -> list[Core]:
    """Cores of NUMA nodes, so many on each, with two threads each."""
    every = [(node, number) for node, count in enumerate(of_nodes) for number in range(count)]
    return [Core(node, 0, number, (i, i + len(every))) for i, (node, number) in enumerate(every)]


def times(folder: Path, **changes: object) -> Path:
    """Times of a chip of 8 cores in 1, 2 and 4 parts, exactly by the model; a part computes a batch of 10."""
    timed = [
        {
            "parts": parts,
            "cores": 8 // parts,
            "compute_seconds": [SERIAL + WORK * parts / 8] * 6,
            "update_seconds": [UPDATE] * 6,
            "sum_seconds": [2 * rounds * ROUND] * 6 if rounds else [],
        }
        for parts, rounds in ((1, 0), (2, 1), (4, 2))
    ]
    content = {"version": 1, "model": "tiny", "batch": 10, "weights_bytes": 249e6, "timed": timed, "provenance": {}}
    path = folder / "times.json"
    path.write_text(json.dumps(content | changes))
    return path


@pytest.mark.parametrize(
    ("nodes", "count", "sizes", "straddling"),
    [
        ((4, 4), 2, [4, 4], 0),
        ((4, 4), 4, [2, 2, 2, 2], 0),
        ((4, 4), 1, [8], 1),
        ((2, 2, 2, 2), 2, [4, 4], 2),
        ((3, 3), 4, [1, 2, 1, 2], 0),
        ((4, 4), 3, [2, 3, 3], 1),
        ((1, 7), 4, [2, 2, 2, 2], 1),  # the first node has no core for two parts
        ((5,), 5, [1] * 5, 0),
    ],
)
def test_parts_are_numa_nodes_or_even_shares_of_them(nodes, count, sizes, straddling):
    every = cores(*nodes)
    parts = chip.cut(every[::-1], count)
    assert [len(part) for part in parts] == sizes
    assert sorted(core for part in parts for core in part) == every
    assert sum(len({core.node for core in part}) > 1 for part in parts) == straddling


@pytest.mark.parametrize("count", [0, 9])
def test_more_parts_than_cores_are_refused(count):
    with pytest.raises(InputError, match=rf"this machine: {count} parts of 8 core\(s\).*1 to 8"):
        chip.cut(cores(8), count)


def test_copies_that_do_not_fit_are_refused_with_their_sum():
    knl = chip.load(KNL)
    assert (knl.cores, knl.fast_memory_bytes) == (68, 16e9)
    chip.refuse_copies(17, 249e6, 687e6, knl.fast_memory_bytes, "knl")
    message = r"knl: 18 copies of 249.0 MB of weights and 687.0 MB of data are 16848.0 MB.*16000.0 MB: at most 17 parts"
    with pytest.raises(InputError, match=message):
        chip.refuse_copies(18, 249e6, 687e6, knl.fast_memory_bytes, "knl")
    with pytest.raises(InputError, match="not even one fits"):
        chip.refuse_copies(1, 249e6, 687e6, 1e6, "knl")


def test_a_fit_gives_back_what_the_times_are_made_of(tmp_path):
    fit = chip_times.fitted(chip_times.load(times(tmp_path)))
    assert fit == pytest.approx((SERIAL, WORK, ROUND, UPDATE))


def test_the_best_number_of_parts_has_the_most_samples_a_second_and_is_told_with_the_reason(tmp_path, capsys):
    path = str(times(tmp_path))
    assert main(["parts", "--json", "--times", path]) == 0
    answer = json.loads(capsys.readouterr().out)
    seconds = [
        SERIAL + WORK / 8 + UPDATE,
        SERIAL + WORK / 4 + UPDATE + 2 * ROUND,
        SERIAL + WORK / 2 + UPDATE + 4 * ROUND,
    ]
    expected = [count * 10 / each for count, each in zip((1, 2, 4), seconds, strict=True)]
    assert [row["samples_per_second"] for row in answer["rows"]] == pytest.approx(expected)
    assert answer["parts"] == 4
    assert "next is 2, 0.786 of that" in answer["why"]
    assert answer["warnings"] == []


def rows_of(folder: Path, **measured: object) -> list[chip_times.Row]:
    """The rows of one number of parts with these measured times."""
    made = chip_times.load(times(folder, timed=[{**PART, **measured}]))
    count = made.timed[0].parts
    return chip_times.rows(made, [count], 8, memory_bytes=1e12, data_bytes=0.0, elsewhere=False)


@pytest.mark.parametrize("wide", ["compute_seconds", "update_seconds", "sum_seconds"])
def test_an_interval_holds_all_three_parts_of_an_iteration(tmp_path, wide):
    """Nine repeats 1 .. 9 of one part: at 98.3 % the median lies between the first and the last."""
    every = {key: [1.0] * 9 for key in ("compute_seconds", "update_seconds", "sum_seconds")}
    (row,) = rows_of(tmp_path, parts=2, **{**every, wide: [float(i) for i in range(1, 10)]})
    assert (row.iteration_seconds, row.low, row.high) == (7.0, 3.0, 11.0)


def test_an_interval_of_iterations_holds_what_their_medians_add_up_to(tmp_path):
    random, inside = np.random.default_rng(1), []
    for _ in range(300):
        draws = {key: random.lognormal(0.0, 0.5, 20).tolist() for key in ("compute_seconds", "sum_seconds")}
        (row,) = rows_of(tmp_path, parts=2, update_seconds=random.lognormal(0.0, 0.5, 20).tolist(), **draws)
        inside.append(row.low <= 3.0 <= row.high)
    assert np.mean(inside) >= 0.95


@pytest.mark.parametrize("few", ["compute_seconds", "update_seconds", "sum_seconds"])
def test_an_iteration_of_which_one_part_is_unsure_has_no_interval(tmp_path, few):
    every = {key: [1.0] * 9 for key in ("compute_seconds", "update_seconds", "sum_seconds")}
    (row,) = rows_of(tmp_path, parts=2, **{**every, few: [1.0] * 5})
    assert (row.iteration_seconds, row.low, row.high) == (3.0, None, None)


@pytest.mark.parametrize("parts", ["0", "-1", "1 0", "99999"])
def test_parts_that_this_machine_has_no_cores_for_are_refused_as_parts(tmp_path, capsys, parts):
    words = ["measure", "parts", "--model", "lenet5", "--output", str(tmp_path / "x.json"), "--parts"]
    assert main([*words, *parts.split()]) == 2
    error = capsys.readouterr().err
    assert f"--parts {parts.split()[-1]}: " in error
    assert "--ranks" not in error


def test_of_a_described_chip_cores_and_memory_bound_the_parts(tmp_path, capsys):
    words = ["parts", "--json", "--times", str(times(tmp_path)), "--chip", str(KNL), "--data-bytes", "687e6"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["parts"] == 16
    by_parts = {row["parts"]: row for row in answer["rows"]}
    assert by_parts[16]["iteration_seconds"] == pytest.approx(SERIAL + WORK * 16 / 68 + 8 * ROUND + UPDATE)
    assert "at most 17 parts" in by_parts[32]["refused"]
    assert "by a fit, whose error nobody knows" in answer["why"]
    assert main([*words, "--parts", "69"]) == 2
    assert "69 parts of 68 core(s)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timed": []}, "timed"),
        ({"batch": 0}, "batch"),
        ({"nonsense": 1}, "nonsense"),
        ({"timed": [{**PART, "parts": 2}]}, "timed.0: 2 parts have gradients to sum, and sum_seconds is empty"),
    ],
)
def test_times_that_are_none_are_refused_in_one_line(tmp_path, capsys, changes, message):
    assert main(["parts", "--times", str(times(tmp_path, **changes))]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
