"""Loops that repeat themselves turn by turn, over several turns, late, and never: averages, and what the trace says."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import tiny_plans as tiny
from gradsync import cli
from gradsync.costs import Linear, Network
from gradsync.engine.progress import Event
from gradsync.engine.simulate import MOST_TURNS, simulate
from gradsync.engine.steady import LONGEST, Steady, steady
from gradsync.papers.simulated import timed, unsteady
from gradsync.plan import Buffer, Local, Need, Plan, Ready, Recv, Ref, Role, Send, Tensor
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Layer, Workload

WHOLE = (Ref("gradient", 0, 20),)
PARAMETER = (Ref("parameter", 0, 20),)


def computing(forward: float, backward: float = 0.0) -> Workload:
    return Workload(
        name="tiny", forward_seconds=forward, layers=(Layer(name="layer1", bytes=80, backward_seconds=backward),)
    )


def plan_of(name: str, ranks: int, *roles: Role) -> Plan:
    buffers = (Buffer("gradient", 20), Buffer("parameter", 20), Buffer("theirs", 20))
    return Plan(name=name, ranks=ranks, tensors=(Tensor("layer1", 0, 20),), buffers=buffers, roles=roles)


def passes(*after_previous: str) -> tuple:
    return (
        Need(name="forward", reads=PARAMETER, after_previous=after_previous),
        Ready(name="ready", tensor="layer1", reads=PARAMETER, writes=WHOLE),
    )


def stale(elements: tuple[int, int]) -> Plan:
    """Two ranks send each other their parameters, so many of them; the next forward waits for what the other sent.

    A turn begins when the other's turn before has begun and its message has come: a_0 = b_0 = 0, and with messages that
    take 5 s and 1 s: a_i = b_(i-1) + 5, b_i = a_(i-1) + 1. Rank 0's turns so take 5 s, 1 s, 5 s, ..
    """
    roles = []
    for rank, other in ((0, 1), (1, 0)):
        mine, theirs = ((Ref(buffer, 0, elements[of]),) for buffer, of in (("parameter", rank), ("theirs", other)))
        body = (
            *passes("take"),
            Send(name="give", lane="out", to=other, reads=mine, after=("ready",)),
            Recv(name="take", lane="in", source=other, writes=theirs),
        )
        roles.append(Role(f"rank{rank}", (rank,), body))
    return plan_of("stale", 2, *roles)


def sharing_a_way_in() -> Plan:
    """Ranks 0 and 1 send to rank 2 and go on when that has arrived; they meet only on the way into rank 2."""
    workers = [
        Role(
            f"rank{rank}",
            (rank,),
            (*passes("push"), Send(name="push", lane="out", to=2, tag=rank, reads=WHOLE, after=("ready",))),
        )
        for rank in (0, 1)
    ]
    takes = tuple(Recv(name=f"take{r}", lane=f"in{r}", source=r, tag=r, writes=WHOLE) for r in (0, 1))
    return plan_of("sharing a way in", 3, *workers, Role("server", (2,), takes))


class Late:
    """As many seconds of latency as four elements have to travel: nothing is shared."""

    def seconds(self, size):
        return size / 16

    startup_seconds = seconds


LATE = Network({"send": Late()})
ONE_SECOND = Network({"send": Linear(0.0, 1 / 80)})  # of a whole gradient


def turns(trace: Trace, rank: int = 0) -> list[float]:
    return [after - before for before, after in pairwise(trace.turn_starts(rank))]


def test_turns_that_alternate_are_averaged_over_both():
    trace = simulate(stale((4, 20)), {0: computing(0.0), 1: computing(0.0)}, LATE)
    assert turns(trace)[:4] == pytest.approx([5.0, 1.0, 5.0, 1.0])
    assert (trace.steady, trace.period, trace.note) == (True, 2, "")
    assert trace.iteration_seconds() == pytest.approx(3.0)
    assert trace.iteration_seconds(1) == pytest.approx(3.0)
    start, end = trace.window()
    assert end - start == pytest.approx(6.0)


def test_exposed_communication_is_of_the_whole_period():
    """With computation of 0.5 s turns take 5.5 and 1.5 s; but for that, there is a message to wait for all the time."""
    each = {0: computing(0.25, 0.25), 1: computing(0.25, 0.25)}
    trace = simulate(stale((4, 20)), each, LATE)
    assert turns(trace)[:2] == pytest.approx([5.5, 1.5])
    assert trace.iteration_seconds() == pytest.approx(3.5)
    assert trace.computation_seconds() == pytest.approx(0.5)
    assert trace.exposed_communication_seconds() == pytest.approx(3.0)
    overlapped = trace.overlap_seconds("in", "out")
    whole = sum(
        max(0.0, min(a.end, b.end, trace.window()[1]) - max(a.start, b.start, trace.window()[0]))
        for a in trace.of(0)
        for b in trace.of(0)
        if (a.lane, b.lane) == ("in", "out")
    )
    assert overlapped == pytest.approx(whole / 2)


def test_ranks_of_commensurate_speeds_repeat_themselves_over_several_turns():
    """Turns of 2 s and of 2.5 s alone: five and four of them are 12 s, since what they lose to one another counts."""
    trace = simulate(sharing_a_way_in(), {0: computing(1.0), 1: computing(1.5), 2: computing(1.0)}, ONE_SECOND)
    assert (trace.steady, trace.period) == (True, 5)
    assert trace.iteration_seconds() == pytest.approx(2.4)
    assert trace.iteration_seconds() == pytest.approx(sum(turns(trace)[-5:]) / 5)
    assert turns(trace)[-1] != pytest.approx(2.4)


@pytest.mark.parametrize("forward", [2**0.5, 3**0.5])
def test_ranks_that_never_fall_into_step_are_averaged_and_it_is_said(forward):
    trace = simulate(sharing_a_way_in(), {0: computing(1.0), 1: computing(forward), 2: computing(1.0)}, ONE_SECOND)
    assert (trace.steady, trace.turns) == (False, MOST_TURNS)
    late = turns(trace)[-trace.period - 1 : -1] if trace.end_turn < MOST_TURNS - 1 else turns(trace)[-trace.period :]
    assert trace.period >= MOST_TURNS // 4
    assert trace.note == f"not steady after {MOST_TURNS} turns: mean of the last {trace.period}"
    assert trace.iteration_seconds() == pytest.approx(sum(late) / len(late))
    assert max(late) - min(late) > 0.5  # the last turn alone could be any of these


def test_loops_of_many_events_that_never_fall_into_step_are_left_sooner(monkeypatch):
    uneven = sharing_a_way_in(), {0: computing(1.0), 1: computing(2**0.5), 2: computing(1.0)}, ONE_SECOND
    monkeypatch.setattr("gradsync.engine.simulate.MOST_EVENTS", 10)
    trace = simulate(*uneven)
    assert (trace.steady, trace.turns) == (False, MOST_TURNS // 4)
    assert trace.iteration_seconds() != simulate(*uneven, turns=MOST_TURNS).iteration_seconds()
    assert simulate(*uneven, turns=MOST_TURNS).turns == MOST_TURNS  # what is asked for is done


def test_turns_that_are_alike_are_no_proof():
    """Rank 1's turns take 2.01 s, but what rank 0 waits for at the end of its 2 s is sent 1.99 s before they end.

    Rank 0 so has to wait from its 200th turn on, and then its turns take 2.01 s; the first 199 are all alike.
    """
    wait = Local(name="wait", kernel="join", after=("take",), writes=PARAMETER)
    behind = (*passes(), Recv(name="take", lane="in", source=1, writes=(Ref("theirs", 0, 20),)), wait)
    forward, ready = passes()
    ahead = (forward, Send(name="push", lane="out", to=0, reads=WHOLE, after=("forward",)), ready)
    plan = plan_of("slowly falling behind", 2, Role("rank0", (0,), behind), Role("rank1", (1,), ahead))
    each, network = {0: computing(1.0, 1.0), 1: computing(0.01, 2.0)}, Network({"send": Linear(0.0, 0.0)})
    trace = simulate(plan, each, network)
    assert set(turns(trace)) == {2.0}
    assert not trace.steady
    assert "not steady" in trace.note
    assert turns(simulate(plan, each, network, turns=210))[-1] == pytest.approx(2.01)


def test_turns_after_others_have_stopped_do_not_count():
    """Rank 1's turns take a quarter: after its 12 rank 0 has the way in for itself, in 2 s a turn."""
    each = {0: computing(1.0), 1: computing(0.0), 2: computing(0.0)}
    alone = simulate(sharing_a_way_in(), each, ONE_SECOND, turns=12)
    assert turns(alone)[-1] == pytest.approx(2.0)
    trace = simulate(sharing_a_way_in(), each, ONE_SECOND)
    assert trace.iteration_seconds() > 2.4
    through = max(span.end for span in trace.spans if span.rank == 1)
    assert trace.window()[1] <= through


def test_a_synchronous_plan_needs_three_turns():
    plan = tiny.synchronous(2)
    load = Workload(
        name="tiny",
        forward_seconds=1.0,
        layers=tuple(Layer(name=t.name, bytes=8 * (t.stop - t.start), backward_seconds=1.0) for t in plan.tensors),
    )
    trace = simulate(plan, load, Network({"all_reduce": Linear(1.0, 0.1)}))
    assert (trace.turns, trace.steady, trace.period) == (3, True, 1)
    two = simulate(plan, load, Network({"all_reduce": Linear(1.0, 0.1)}), turns=2)
    assert (two.steady, two.note) == (None, "")  # one period: nobody knows
    assert two.iteration_seconds() == pytest.approx(trace.iteration_seconds())


# What is averaged, of events laid out by hand


def beats(lengths: list[float], ranks: int = 1) -> tuple[list[Event], list[float]]:
    """A rank that does one thing at the start of each turn, for half a second."""
    starts = [0.0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return [Event(0, i, 0, start, start + 0.5, None) for i, start in enumerate(starts)], starts


@pytest.mark.parametrize("period", range(1, LONGEST + 1))
def test_every_period_up_to_the_longest_is_seen(period):
    events, starts = beats([1.0 + i for i in range(period)] * 3)
    assert steady(events, starts, starts[-1]) == Steady(True, period, 3 * period)


def test_a_longer_period_is_not_guessed():
    events, starts = beats([1.0 + i for i in range(LONGEST + 1)] * 4)
    assert steady(events, starts, starts[-1]) == Steady(False, 18, 36)


def test_turns_of_equal_length_in_which_something_moves_are_not_steady():
    """The other rank's work lies later in each turn, by a tenth of a second."""
    events, starts = beats([2.0] * 12)
    moving = [Event(1, i, 0, start + 0.1 * i, start + 0.1 * i + 0.3, None) for i, start in enumerate(starts)]
    assert steady(events, starts, starts[-1]).reached
    assert steady([*events, *moving], starts, starts[-1]) == Steady(False, 6, 12)


def test_too_few_turns_to_know():
    assert steady(*beats([]), 9.0) == Steady(None, 1, 0)
    assert steady(*beats([1.0]), 9.0) == Steady(None, 1, 1)
    assert steady(*beats([1.0, 2.0]), 9.0) == Steady(False, 1, 2)
    # nothing counts: all there is
    assert steady(*beats([1.0, 2.0, 4.0, 1.0]), 0.5) == Steady(False, 2, 4)


# Who shows it


def written(tmp_path: Path, plan: Plan, load: Workload) -> list[str]:
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "load.json").write_text(load.to_json())
    return ["--plan", str(tmp_path / "plan.json"), "--workload", str(tmp_path / "load.json")]


def test_the_trace_of_a_period_survives_json():
    trace = simulate(stale((4, 20)), {0: computing(0.0), 1: computing(0.0)}, LATE)
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert again.iteration_seconds() == pytest.approx(3.0)


def test_a_row_of_a_table_carries_the_note(monkeypatch):
    plan, load = sharing_a_way_in(), computing(1.0)
    steady_row = timed(plan, load, ONE_SECOND)
    assert steady_row.note == ""
    unsteady_trace = dataclasses.replace(simulate(plan, load, ONE_SECOND), steady=False)
    monkeypatch.setattr("gradsync.papers.simulated.simulate", lambda *given, **how: unsteady_trace)
    row = timed(plan, load, ONE_SECOND)
    assert row.note.startswith("not steady after 3 turns")
    frame = pd.DataFrame([steady_row, row])
    assert unsteady(frame) == " 1 of 2 rows are not steady: means over several turns (column note)."
    assert unsteady(frame[:1]) == ""


def test_commands_say_it(tmp_path, capsys, monkeypatch):
    plan = dataclasses.replace(tiny.synchronous(2), provenance={"collective": "native", "topology": "switch:2"})
    load = Workload(
        name="tiny",
        forward_seconds=1.0,
        layers=tuple(Layer(name=t.name, bytes=8 * (t.stop - t.start), backward_seconds=1.0) for t in plan.tensors),
    )
    load = load.model_copy(
        update={"layers": tuple(each.model_copy(update={"dtype": "float64"}) for each in load.layers)}
    )
    command = ["simulate", *written(tmp_path, plan, load), "--allreduce", "a=1,b=0.1", "--json"]
    assert cli.main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["steady"], answer["period_turns"], answer["warnings"]) == (True, 1, [])
    monkeypatch.setattr("gradsync.engine.simulate.steady", lambda *given: Steady(False, 20, 40))
    assert cli.main(command) == 0
    out = capsys.readouterr()
    answer = json.loads(out.out)
    assert (answer["steady"], answer["period_turns"]) == (False, 20)
    assert answer["warnings"] == [f"not steady after {MOST_TURNS} turns: mean of the last 20"]
    assert "not steady after" in out.err
