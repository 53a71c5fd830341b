"""Parts of a chip on real processes: bound to cores, summed in shared memory, bit by bit; killed, raising, refused."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from test_elastic import plan_file, start, trained
from test_execute import ranks_of_the_tests as ranks_of_the_tests
from test_training import children, gone

from gradsync.cli import main
from gradsync.errors import RunError
from gradsync.runtime import binding
from gradsync.runtime.launch import launch
from left_in_memory import left_in_memory, stays_in_memory
from waiting import HANGS_SECONDS

ENDS_SECONDS = 30


@pytest.mark.parametrize("ranks", [2, 4, *(pytest.param(n, marks=pytest.mark.deep) for n in (3, 5, 8))])
def test_two_runs_and_the_oracle_are_equal_bit_by_bit(on_ranks, ranks):
    parts = on_ranks("parts_of_a_chip", ranks)
    for part in parts:
        assert part.first == part.second == parts[0].first
        assert part.first["gradient"] == part.oracle["gradient"]
        if ranks.bit_count() == 1:  # else NumPy and torch round the mean otherwise
            assert part.first == part.oracle
        if ranks > 3:  # sums of three are in that order anyway
            assert part.in_rank_order["gradient"] != part.oracle["gradient"]
        assert part.shared_files == 0


def test_each_part_has_cores_and_threads_of_its_own(on_ranks):
    if len(binding.cores()) < 2:
        pytest.skip("needs two cores")
    first, second = on_ranks("parts_of_a_chip", 2)
    assert not first.cpus & second.cpus
    assert first.cpus | second.cpus == os.sched_getaffinity(0)
    assert first.threads + second.threads == len(binding.cores())


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("killed_part", "rank 1 was killed by SIGKILL"),
        pytest.param("raising_part", r"rank \d ended with status 1", marks=pytest.mark.deep),
    ],
)
def test_a_part_that_ends_ends_the_launch_and_leaves_no_memory(ranks_of_the_tests, program, message, capfd):
    before = left_in_memory()
    with pytest.raises(RunError, match=message):
        launch([program], 3)
    assert time.monotonic() - float((ranks_of_the_tests / "ended").read_text()) < ENDS_SECONDS
    assert not stays_in_memory(before)
    if program == "raising_part":
        assert "no gradient today" in capfd.readouterr().err


def test_more_parts_than_cores_are_refused_before_anything_starts(tmp_path, capsys, monkeypatch):
    plan = plan_file(tmp_path, "shared_tree", ranks=3)
    monkeypatch.setattr(binding, "cores", lambda: [object(), object()])
    assert main(["elastic", "--plan", plan, "--output", str(tmp_path / "out"), "--iterations", "4"]) == 2
    error = capsys.readouterr().err
    assert "3 parts of 2 core(s): a part needs a core of its own: 1 to 2" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.deep
def test_a_killed_part_ends_a_training_which_goes_on_to_the_same_parameters(tmp_path):
    if len(binding.cores()) < 2:
        pytest.skip("needs two cores")
    plan, before = plan_file(tmp_path, "shared_tree"), left_in_memory()
    # long enough that the checkpoint is seen while something is left to do
    arguments = ["--seed", "3", "--checkpoint-seconds", "0", "--iterations", "24"]
    trained(tmp_path / "whole", plan, *arguments)
    killed = tmp_path / "killed"
    process = start(killed, plan, *arguments)
    while not (killed / "checkpoint" / "latest.json").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    ranks = children(process)
    os.kill(ranks[1], signal.SIGKILL)
    since = time.monotonic()
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert time.monotonic() - since < ENDS_SECONDS
    assert "rank 1 was killed by SIGKILL; the other ranks were ended" in messages
    assert all(gone(pid) for pid in ranks)
    assert not stays_in_memory(before)
    trained(killed, plan, *arguments)
    ended = [json.loads((each / "shared_tree/result.json").read_text()) for each in (tmp_path / "whole", killed)]
    assert ended[0]["conformance"] == ended[1]["conformance"]  # with the digests of the final parameters
    assert ended[0]["conformance"]["oracle_difference"] < 1e-9
    assert ended[0]["summary"]["iterations"] == 24
