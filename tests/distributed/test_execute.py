"""Plans of every kind on real Gloo ranks: equal to the oracle, whole traces, and an end when a rank dies."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest

import real_ranks
import tiny_plans as tiny
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError, RunError
from gradsync.runtime.group import process_group
from gradsync.runtime.launch import _watch as watch
from gradsync.runtime.launch import launch
from gradsync.slurm.machine import free_ports
from rank_programs import HAMMER_TURNS, TINY_TURNS, pull_of, tiny_cases
from waiting import HANGS_SECONDS

# those of 2 and 4 have groups, too; other tests have sums of three ranks
RANKS = [2, pytest.param(3, marks=pytest.mark.deep), 4]
CASES = [
    pytest.param(ranks, name, id=f"{name}-{ranks}", marks=[pytest.mark.deep] if ranks == 3 else [])
    for ranks in (2, 3, 4)
    for name in tiny_cases(ranks)
]


@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_executed_buffers_equal_the_oracle(on_ranks, ranks, name):
    ended = [result[name] for result in on_ranks("all_tiny_plans", ranks)]
    plan = tiny_cases(ranks)[name]
    arrivals = {
        (span.rank, span.turn, span.operation): span.source
        for end in ended
        for span in end.trace.spans
        if span.verb == "recv_any"
    }
    first = tiny.start(plan.tensors[-1].stop)
    initial = {"parameter": first, "centre": first}
    expected = evaluate(plan, TINY_TURNS, pull_of(name), initial, arrivals=arrivals or None)
    for rank in range(ranks):
        for buffer in ("parameter", "centre", "residual", "ratios"):
            if buffer in plan.buffer:
                if name == "hogwild" and buffer == "parameter":
                    continue  # what a rank read from the shared buffer depends on who came first
                np.testing.assert_allclose(
                    ended[rank].buffers[buffer], expected[rank][buffer], rtol=1e-9, atol=1e-12, err_msg=f"rank {rank}"
                )
    assert np.abs(ended[-1].buffers["parameter"] - first).max() > 1e-3  # it has moved


@pytest.mark.parametrize("ranks", RANKS)
def test_the_server_took_every_message_of_every_worker(on_ranks, ranks):
    server = on_ranks("all_tiny_plans", ranks)[0]["server"].trace
    sources = [span.source for span in server.of(0) if span.verb == "recv_any"]
    assert sorted(sources) == sorted(list(range(1, ranks)) * TINY_TURNS)
    np.testing.assert_allclose(
        on_ranks("all_tiny_plans", ranks)[0]["server"].buffers["parameter"],
        tiny.server_reference(sources, sum(tiny.SIZES)),
        rtol=1e-9,
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_no_locked_update_is_lost_when_all_ranks_hammer(on_ranks, ranks):
    for result in on_ranks("all_tiny_plans", ranks):
        assert set(result["hammer"].buffers["centre"]) == {-tiny.LR * ranks * HAMMER_TURNS}
        assert set(result["hammer on two lanes"].buffers["centre"]) == {-tiny.LR * ranks * HAMMER_TURNS * 2}


@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_an_executed_trace_has_every_operation_of_every_turn(on_ranks, ranks, name):
    plan = tiny_cases(ranks)[name]
    for rank, result in enumerate(on_ranks("all_tiny_plans", ranks)):
        trace = result[name].trace
        role = plan.role_of[rank]
        for turn in range((ranks - 1) * TINY_TURNS if role.until_stopped else TINY_TURNS):
            spans = trace.of(rank, turn)
            assert {op.name for op in role.flat} <= {span.operation for span in spans}
            assert len(spans) == len({span.operation for span in spans})
            assert all(span.end >= span.start for span in spans)
    events = json.loads(trace.to_chrome())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {op.name for op in plan.roles[-1].flat}
    assert min(event["ts"] for event in events if event["ph"] == "X") == 0


def test_operations_of_one_lane_follow_one_another_on_real_ranks(on_ranks):
    trace = on_ranks("all_tiny_plans", 4)[1]["two lanes"].trace
    for lane in ("lane0", "lane1"):
        spans = [span for span in trace.of(1) if span.lane == lane]
        assert all(before.end <= after.start for before, after in pairwise(spans))


@contextmanager
def ending():
    """A hang becomes a failure; the launcher then still ends its ranks."""

    def late(*_):
        raise TimeoutError(f"still running after {HANGS_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, late)
    limit = signal.setitimer(signal.ITIMER_REAL, HANGS_SECONDS)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *limit)  # the test's own


@pytest.fixture
def ranks_of_the_tests(tmp_path, monkeypatch):
    """Lets `launch` start programs of `rank_programs/` instead of the command line."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{real_ranks.__file__}" "$@" {tmp_path}\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr("gradsync.runtime.launch.sys.executable", str(stand_in))
    return tmp_path


@pytest.mark.parametrize("program", ["killed_worker", "killed_in_a_ring"])
def test_a_killed_rank_ends_the_launch_with_its_name(ranks_of_the_tests, program, capfd):
    with ending(), pytest.raises(RunError, match=r"rank 1 was killed by SIGKILL"):
        launch([program], 3)
    alive = [pid for pid in os.listdir("/proc") if pid.isdigit() and str(ranks_of_the_tests) in _command(pid)]
    assert not alive


def test_a_rank_that_crashes_says_where(ranks_of_the_tests, capfd):
    with ending(), pytest.raises(RunError, match=r"rank 1 crashed with SIGABRT: its stacks are above"):
        launch(["crashed_in_a_ring"], 3)
    message = capfd.readouterr().err
    assert "Fatal Python error: Aborted" in message
    assert "of_failures.py" in message


def test_who_loses_a_peer_in_a_collective_says_in_which_message(ranks_of_the_tests, capfd, monkeypatch):
    monkeypatch.setattr("gradsync.runtime.launch.SAY_SECONDS", HANGS_SECONDS)  # they end by themselves
    with ending(), pytest.raises(RunError, match=r"rank 1 was killed by SIGKILL"):
        launch(["killed_in_a_collective"], 3)
    message = capfd.readouterr().err
    assert re.search(
        r"RunError: rank [02], turn \d, collective 'message\d', lane 'network': transfer with rank", message
    )


class Child:
    """Stands in for a rank's process: each poll gives the next of its statuses, and the last one from then on."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.returncode = statuses[-1]

    def poll(self):
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def test_the_rank_that_was_killed_is_blamed_not_the_one_that_lost_it():
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL"):
        watch([Child(1), Child(-signal.SIGKILL)])
    with pytest.raises(RunError, match="rank 0 ended with status 1"):
        watch([Child(1), Child(None)])
    watch([Child(0), Child(None, None, 0)])


def test_a_rank_that_failed_by_itself_has_time_to_say_why(monkeypatch):
    """Its peers notice that it has left the group, and may end before it has."""
    monkeypatch.setattr("gradsync.runtime.launch.ENDS_SECONDS", HANGS_SECONDS)
    culprit = Child(*[None] * 30, 1)
    with pytest.raises(RunError, match="rank 0 ended with status 1"):
        watch([Child(1), culprit])
    assert culprit.statuses == [1]


def test_a_rank_that_fails_by_itself_is_named(ranks_of_the_tests, capfd):
    with ending(), pytest.raises(RunError, match=r"rank \d ended with status 1"):
        launch(["no_such_program"], 2)


def test_a_launch_whose_ranks_end_well_returns(ranks_of_the_tests):
    with ending():
        launch(["all_tiny_plans"], 2)
    assert len(list(ranks_of_the_tests.glob("rank*.pickle"))) == 2


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def test_state_of_each_rank_resumes_bit_for_bit(on_ranks):
    """Sharded momentum, residuals, each worker's parameters: what ranks don't hold alike, each saves for itself."""
    saved_for_all = {"alike": ["parameter", "momentum"], "sharded": ["parameter"], "shards": ["parameter"]}
    for rank, resumed in enumerate(on_ranks("resumed", 3)):
        for name, (whole, again, alike) in resumed.items():
            assert alike == saved_for_all.get(name, [])
            for key, values in whole.items():
                assert (values == again[key]).all(), (rank, name, key)
            assert any(np.abs(values).max() > 1e-3 for values in whole.values())
    ends = [resumed["sparse"][0]["residual"] for resumed in on_ranks("resumed", 3)]
    assert (ends[0] != ends[1]).any()  # they do differ
    shards = [len(resumed["shards"][0]["momentum"]) for resumed in on_ranks("resumed", 3)]
    assert sum(shards) == len(ends[0])
    assert max(shards) < len(ends[0]) / 2


def test_clocks_of_other_nodes_are_told_and_waiting_for_a_straggler_is_no_communication(on_ranks):
    offsets, trace = on_ranks("straggling", 3)[0]
    for rank, offset in enumerate(offsets):
        assert abs(offset.seconds + 3600.0 * rank) <= offset.within + 1e-3  # its clock is ahead by an hour per rank
    assert trace.ranks == (0, 1, 2)
    turns = {span.turn for span in trace.of(1)}  # of other ranks the last turns are kept
    messages = {
        rank: [span for span in trace.of(rank) if span.verb == "collective" and span.turn in turns]
        for rank in trace.ranks
    }
    waits = {rank: sum(span.waited for span in spans) for rank, spans in messages.items()}
    # rank 1 is late: the others have waited for it, and it for nobody
    late = sum(max(0.0, one.start - other.start) for one, other in zip(messages[1], messages[0], strict=True))
    assert late > 0
    assert waits[0] >= late * (1 - 1e-6)
    assert waits[1] < waits[0]
    assert waits[1] < waits[2]
    for low, high in trace.windows(0):
        parts = (trace.waiting_seconds, trace.exposed_communication_seconds, trace.computation_seconds)
        assert sum(part(0, (low, high)) for part in parts) <= (high - low) * (1 + 1e-9)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_lost_bias_does_not_pass_for_rounding(on_ranks, dtype):
    """On one rank or all, in parameters, momentum or statistics: each tensor is compared by its own change."""
    verdicts = on_ranks("held_against_the_oracle", 2)[0]
    whole = verdicts[dtype, ""]
    assert whole["oracle_dtype"] == dtype
    assert whole["oracle_difference"] < {"float64": 1e-9, "float32": 1e-4}[dtype]  # machines round in other orders
    for fault, where in {
        "parameter": "'fc.bias' of 'parameter' on rank 1",
        "momentum": "'fc.bias' of 'momentum' on rank 1",
        "statistics": "'statistics' of 'statistics' on rank 1",
        "other rank's": "'fc.bias' of 'parameter' on rank 0",
    }.items():
        assert f"{where} differs from the oracle's by" in verdicts[dtype, fault], fault


@pytest.mark.deep
def test_what_divides_gradients_is_held_in_float64_and_its_moments_too(on_ranks):
    verdicts = on_ranks("held_against_the_oracle", 2)[0]
    assert verdicts["adam", ""]["oracle_dtype"] == "float64"
    assert verdicts["adam", ""]["oracle_difference"] < 1e-9
    for fault in ("parameter", "second_moment"):
        assert f"'fc.bias' of '{fault}' on rank 1 differs from the oracle's by" in verdicts["adam", fault]


@pytest.mark.deep
def test_a_late_rank_is_waited_for_at_meetings_and_not_in_messages(on_ranks):
    """Messages have a limit of 5 s, and rank 1 is 10 s late for a message and for a meeting."""
    (waited, message), (_, other) = on_ranks("limits", 2)
    assert waited > 7
    assert re.search(r"rank 0, turn 0, collective 'message0', lane 'network': .*[Tt]imed out", message)
    assert other  # it notices that rank 0 is gone


LEAVES = """
import os, time
from gradsync.runtime.group import process_group
from pathlib import Path
there = Path(os.environ["THERE"])
with process_group(600.0) as (rank, _):
    if rank == 1:
        there.touch()
    else:
        while not there.exists():
            time.sleep(0.01)
        os._exit(9)
"""


def test_a_rank_that_is_through_learns_that_another_one_died(tmp_path):
    """Its starter must not wait for the dead rank: srun would, for one without its slurmstepd."""
    environment = dict(os.environ) | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
        "THERE": str(tmp_path / "rank 1 is there"),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVES], env=environment | {"RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        (_, _), (_, message) = (each.communicate(timeout=HANGS_SECONDS) for each in started)
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [9, 1]
    assert "rank 1: another rank is gone" in message


def test_a_refused_port_is_an_error_that_names_rank_and_address(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with ending(), pytest.raises(RunError, match=r"rank 1: no rendezvous .* 127\.0\.0\.1:1"), process_group(1.0):
        pass


def test_an_environment_without_a_rank_is_refused(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="RANK"), process_group(1.0):
        pass
