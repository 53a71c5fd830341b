"""`gradsync collective`: what it gives, its symbolic verdict, and every bad input in one line that names the option."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from gradsync import collectives
from gradsync.cli import main
from gradsync.errors import InputError

GIVEN = ("--bytes", "18e6", "--alpha", "0.5", "--bandwidth", "1e6")
CUBE = ("bml", "--topology", "bcube:3,2", *GIVEN)


@pytest.fixture
def run(capsys):
    """run(argument, ...): (exit status, output, errors)."""

    def call(*arguments):
        status = main(["collective", *arguments])
        ended = capsys.readouterr()
        return status, ended.out, ended.err

    return call


def test_it_gives_time_rounds_bytes_and_switches(run):
    """BML on BCube(3,2): 4 rounds, 16/18 T_F; a server sends 16 pieces of 1 MB a thread, over two links."""
    status, out, _ = run(*CUBE, "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["seconds"] == pytest.approx(4 * 0.5 + 16.0, rel=1e-12)
    assert (answer["a_seconds"], answer["b_seconds_per_byte"]) == pytest.approx((2.0, 16 / 18e6))
    assert (answer["rounds"], answer["transfers"], answer["ranks"], answer["bytes"]) == (4, 144, 9, 18_000_000)
    assert (answer["switches"], answer["ports"], answer["nics"]) == (6, 18, 18)
    assert (answer["bytes_sent_per_rank"], answer["most_loaded_link_bytes"]) == pytest.approx((32e6, 16e6))
    assert "check" not in answer
    assert "switches: 6" in run(*CUBE)[1]


def test_without_a_topology_it_is_made_for_the_ranks(run):
    answer = json.loads(run("hierarchical", "--ranks", "8", *GIVEN, "--json")[1])
    assert (answer["topology"], answer["ranks"]) == ("dense_gpu:2,4", 8)
    answer = json.loads(run("ring", "--topology", "bcube:3,2", "--ranks", "6", *GIVEN, "--json")[1])
    assert (answer["topology"], answer["ranks"], answer["rounds"]) == ("bcube:3,2", 6, 10)


@pytest.mark.parametrize(
    ("arguments", "kind", "busbw"),
    [
        # 2 chunks of 9 s in 3 rounds of 0.5 s start-up
        (("chain", "--kind", "broadcast", "--ranks", "3", "--chunks", "2", "--root", "1"), "broadcast", 18e6 / 28.5),
        (("binary_tree", "--kind", "reduce", "--ranks", "4", "--root", "3"), "reduce", 18e6 / 37),
        (("pairwise", "--ranks", "3"), "all_to_all", 2 / 3 * 18e6 / 12.5),
    ],
)
def test_the_other_kinds_from_a_root_in_chunks(run, arguments, kind, busbw):
    status, out, _ = run(*arguments, *GIVEN, "--check", "--json")
    answer = json.loads(out)
    assert (status, answer["kind"], answer["check"]) == (0, kind, "passed")
    assert answer["busbw_bytes_per_second"] == pytest.approx(busbw)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("chain", "--kind", "broadcast", "--ranks", "3", "--root", "3"), "--root 3: must be one of the ranks, 0 to 2"),
        (("chain", "--kind", "broadcast", "--ranks", "3", "--chunks", "0"), "--chunks 0: must be a whole number"),
        (
            ("ring", "--ranks", "3", "--chunks", "4"),
            "'ring' is no pipeline, whose chunks could be counted: chain",
        ),
        (("pairwise", "--ranks", "3", "--kind", "all_reduce"), "'pairwise' has no all_reduce on 3 ranks"),
    ],
)
def test_a_root_or_chunks_that_make_no_sense(run, arguments, text):
    status, _, errors = run(*arguments, *GIVEN)
    assert status == 2
    assert text in errors


def test_speeds_by_kind_latency_and_gamma(run):
    options = ("--bandwidth", "inside=8e6,between=1e6", "--latency", "inside=0.25,between=1", "--gamma", "1e-6")
    answer = json.loads(run("hierarchical", "--topology", "dense_gpu:2,4", *GIVEN, *options, "--json")[1])
    size = 18e6
    assert answer["a_seconds"] == pytest.approx(4 * 0.5 + 2 * 0.5 + 2 * 2.5)
    added = 1e-6 * size * (3 / 4 + 1 / 8)
    assert answer["seconds"] - answer["a_seconds"] == pytest.approx(2 * size * (0.75 / 8e6 + 0.5 / 1e6) + added)


def test_the_symbolic_verdict_and_what_fails_it(run, monkeypatch):
    status, out, _ = run(*CUBE, "--check", "--json")
    assert (status, json.loads(out)["check"]) == (0, "passed")
    bml = collectives.get("bml")
    whole = bml.rounds
    monkeypatch.setattr(bml, "rounds", lambda shape, root: list(whole(shape, root))[:-1])
    status, out, error = run(*CUBE, "--check", "--json")
    answer = json.loads(out)
    assert status == 1
    assert (answer["check"], answer["rounds"]) == ("failed", 3)
    assert error == f"gradsync: {answer['failure']}\n"
    assert "after round 3, the last, rank 0 lacks the contribution of" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bml", *GIVEN), "give --topology (with numbers, as bcube:3,2), or --ranks"),
        (("bml", "--topology", "bcube", *GIVEN), "--topology bcube: write its numbers"),
        (("bml", "--topology", "bcube:1,2", *GIVEN), "--topology: topology 'bcube:1,2': N = 1: at least 2"),
        (("bml", "--topology", "ring:3", *GIVEN), "topology 'ring' does not exist; there are: bcube"),
        (("bml", "--topology", "bcube:3,2", "--ranks", "10", *GIVEN), "--ranks: topology 'bcube:3,2' holds 1 to 9"),
        (("bml", "--topology", "bcube:3,2", "--ranks", "6", *GIVEN), "bcube:3,2 with 6 ranks: collective 'bml' needs"),
        (("bml", "--topology", "switch:4", *GIVEN), "--topology switch:4 with 4 ranks: collective 'bml' sends on all"),
        (("bml", "--ranks", "7", *GIVEN), "--ranks: topology 'bcube': 7 is no n^k"),
        (("ring", "--ranks", "0", *GIVEN), "--ranks 0: must be a whole number of at least 1"),
        (("ring", "--ranks", "2.5", *GIVEN), "--ranks 2.5: must be a whole number"),
        (("ring", "--ranks", "many", *GIVEN), "--ranks many: must be a whole number"),
        (("ring", "--ranks", "1e30", *GIVEN), "ranks: 1 to 1048576"),
        (("ps_p2p", "--ranks", "5000", *GIVEN), "'ps_p2p' sends N(N-1) messages a round"),
        (("native", "--ranks", "4", *GIVEN), "'native' is the backend's own"),
        (("gossip", "--ranks", "4", *GIVEN), "collective 'gossip' does not exist"),
        ((*CUBE, "--bytes", "0"), "--bytes 0: must be a whole number"),
        ((*CUBE, "--alpha", "-1"), "--alpha -1: must be a finite number of seconds, not negative"),
        ((*CUBE, "--alpha", "nan"), "--alpha nan"),
        ((*CUBE, "--bandwidth", "0"), "--bandwidth 0: must be a finite number of bytes per second, above 0"),
        ((*CUBE, "--bandwidth", "fast"), "--bandwidth fast"),
        ((*CUBE, "--bandwidth", "inside=1"), "--bandwidth inside=1: topology 'bcube:3,2' has no 'inside' links"),
        ((*CUBE, "--bandwidth", "link=1,link=2"), "--bandwidth link=1,link=2: give one number, or KIND=NUMBER"),
        ((*CUBE, "--bandwidth", "link=x"), "--bandwidth link x"),
        ((*CUBE, "--latency", "-1"), "--latency -1"),
        ((*CUBE, "--latency", "wire=1"), "--latency wire=1: topology"),
        ((*CUBE, "--gamma", "inf"), "--gamma inf: must be a finite number of seconds per byte"),
        (("bml", "--topology", "bcube:16,4", *GIVEN, "--check"), "too large to be checked"),
    ],
)
def test_bad_input_is_one_line(run, arguments, message):
    status, out, error = run(*arguments)
    assert status == 2
    assert out == ""
    assert message in error
    assert error.count("\n") == 1


def test_a_long_computation_tells_a_terminal_how_far_it_is(monkeypatch, capsys):
    command = importlib.import_module("gradsync.commands.collective")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    now = iter([0.0, 1.0, 3.5, 3.6, 5.0])
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(now)))
    tell = command._progress("timed")
    assert tell is not None
    for rounds in range(1, 5):
        tell(rounds, 10 * rounds)
    assert capsys.readouterr().err.splitlines() == [
        "gradsync: 2 rounds, 20 transfers timed in 4 s",
        "gradsync: 4 rounds, 40 transfers timed in 5 s",
    ]


def test_what_would_take_hours_is_ended_and_told():
    command = importlib.import_module("gradsync.commands.collective")
    with pytest.raises(InputError, match="more than 1e\\+10 transfers to be timed: take fewer ranks"):
        command._progress("timed")(1, command.MOST_TRANSFERS + 1)
