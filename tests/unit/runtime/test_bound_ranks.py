"""Which cores a rank is bound to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradsync.clusters.chip import Core
from gradsync.errors import InputError
from gradsync.runtime import binding

FOUR = [Core(0, 0, number, (number,)) for number in range(4)]


def machine(folder: Path) -> Path:
    """Two NUMA nodes of two cores, whose processors Linux numbers thread after thread."""
    for cpu in range(8):
        topology = folder / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 4 // 2}\n")
        (topology / "core_id").write_text(f"{cpu % 2}\n")
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
    return folder


def test_a_core_is_its_threads_and_what_is_not_usable_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 6})
    assert binding.cores(machine(tmp_path)) == [Core(0, 0, 0, (0, 4)), Core(0, 0, 1, (1, 5)), Core(1, 1, 0, (6,))]


def test_a_machine_that_says_nothing_of_itself_has_a_core_per_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    assert binding.cores(tmp_path) == [Core(0, 0, 2, (2,)), Core(0, 0, 3, (3,))]


@pytest.fixture
def bound(monkeypatch):
    """bound(rank, cores of each rank): what that rank is bound to."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: asked.update(cpus=cpus))
    monkeypatch.setattr(binding.torch, "set_num_threads", lambda count: asked.update(threads=count))

    def bind(rank: int, every: list[list[Core]]) -> dict[str, object]:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr(binding, "cores", lambda: every[rank])
        monkeypatch.setattr(binding, "gathered_by_node", lambda _: {"here": list(enumerate(every))})
        binding.bind()
        return asked

    return bind


def test_ranks_that_may_use_all_cores_get_a_part_each(bound):
    assert bound(1, [FOUR, FOUR]) == {"cpus": {2, 3}, "threads": 2}
    assert bound(2, [FOUR] * 3) == {"cpus": {2, 3}, "threads": 2}
    assert bound(0, [FOUR] * 3) == {"cpus": {0}, "threads": 1}


def test_ranks_that_are_bound_already_stay_there(bound):
    assert bound(1, [FOUR[:3], FOUR[3:]]) == {"cpus": {3}, "threads": 1}


def test_ranks_that_share_some_cores_and_too_many_ranks_are_refused(bound):
    with pytest.raises(InputError, match="bound to some of the cores of others"):
        bound(0, [FOUR[:3], FOUR[2:]])
    with pytest.raises(InputError, match=r"5 parts of 4 core\(s\)"):
        bound(0, [FOUR] * 5)


def test_threads_of_one_core_are_no_cores_of_their_own(bound):
    first, second = ([Core(0, 0, number, (number + shift,)) for number in range(2)] for shift in (0, 2))
    for every in ([first, second], [first[:1], second[:1]], [first[1:], second]):
        for rank in (0, 1):
            with pytest.raises(InputError, match="bound to some of the cores of others"):
                bound(rank, every)
    assert bound(1, [first[:1], second[1:]]) == {"cpus": {3}, "threads": 1}  # other cores


def test_cores_of_two_sockets_with_one_number_are_two(bound):
    assert bound(1, [[Core(0, 0, 0, (0,))], [Core(1, 1, 0, (1,))]]) == {"cpus": {1}, "threads": 1}
