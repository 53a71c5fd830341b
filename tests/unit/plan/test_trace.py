"""What is read off a trace, on spans laid out by hand; JSON and Chrome events."""

import dataclasses
import json

import pytest

from gradsync.errors import InputError
from gradsync.plan.trace import Span, Trace


def spans_of_a_turn(turn, start, rank=0):
    """Forward [0, 2), backward [2, 6), one message [4, 9) on lane a, one [5, 7) on lane b; update [9, 10)."""
    laid = [
        ("forward", "need", "compute", 0, 2),
        ("ready", "ready", "compute", 2, 6),
        ("one", "collective", "a", 4, 9),
        ("two", "collective", "b", 5, 7),
        ("update", "local", "compute", 9, 10),
    ]
    return [
        Span(rank, turn, name, verb, lane, start + begin, start + end, 100 if verb == "collective" else 0)
        for name, verb, lane, begin, end in laid
    ]


def trace_of(*spans, **values):
    return Trace(values.pop("name", "by hand"), "simulated", values.pop("turns", 2), tuple(spans), **values)


TRACE = trace_of(*spans_of_a_turn(0, 0.0), *spans_of_a_turn(1, 10.0), *spans_of_a_turn(2, 20.0), turns=3)


def test_the_period_is_between_the_last_two_forwards():
    assert TRACE.turn_starts() == [0, 10, 20]
    assert TRACE.iteration_seconds() == 10
    assert TRACE.window() == (10, 20)
    later = trace_of(*spans_of_a_turn(0, 0.0), *spans_of_a_turn(1, 13.0))
    assert later.iteration_seconds() == 13


def test_a_period_of_several_turns_and_where_it_ends():
    uneven = trace_of(*(span for i, at in enumerate((0.0, 10.0, 22.0, 33.0)) for span in spans_of_a_turn(i, at)))
    assert uneven.iteration_seconds() == 11
    both = dataclasses.replace(uneven, period=2, end_turn=2)
    assert (both.window(), both.iteration_seconds()) == ((0, 22), 11)
    assert both.exposed_communication_seconds() == both.exposed_communication_seconds(0, (0, 22)) / 2 == 3
    assert both.computation_seconds() == both.computation_seconds(0, (0, 22)) / 2
    assert both.overlap_seconds("a", "b") == 2
    with pytest.raises(InputError, match=r"4 turn.* a period needs 6"):
        dataclasses.replace(uneven, period=5).iteration_seconds()


def test_without_a_forward_a_turn_begins_with_its_first_operation():
    trace = trace_of(Span(0, 0, "take", "recv", "a", 3.0, 4.0), Span(0, 1, "take", "recv", "a", 8.0, 9.0))
    assert trace.turn_starts() == [3, 8]


def test_one_turn_has_no_period():
    with pytest.raises(InputError, match="1 turn"):
        trace_of(*spans_of_a_turn(0, 0.0)).iteration_seconds()


def test_exposed_communication_is_what_no_computation_hides():
    assert TRACE.exposed_communication_seconds() == 3  # messages [4, 9) less backward until 6
    hidden = [span._replace(end=span.start + 1) if span.lane == "a" else span for span in TRACE.spans]
    assert trace_of(*hidden, turns=3).exposed_communication_seconds() == 1  # lane b alone, [6, 7)


def test_a_message_that_reaches_into_the_next_turn_counts_where_it_lies():
    """Only the part inside the last whole period, the one that came over from the turn before included."""
    spans = [span._replace(end=span.end + 3) if span.operation == "one" else span for span in TRACE.spans]
    trace = trace_of(*spans, turns=3)
    assert trace.busy(0, ["a"], trace.window()) == [(10, 12), (14, 20)]
    assert trace.exposed_communication_seconds() == 3  # [16, 19); forward and update hide the rest


def test_every_period_is_a_window_of_its_own():
    """The second turn computes two seconds longer, its message stays as long as it was."""
    longer = [
        span._replace(end=span.end + 2) if span.operation == "ready" else span for span in spans_of_a_turn(1, 10.0)
    ]
    trace = trace_of(*spans_of_a_turn(0, 0.0), *longer, *spans_of_a_turn(2, 20.0), *spans_of_a_turn(3, 29.0), turns=4)
    assert trace.windows() == [(0, 10), (10, 20), (20, 29)]
    assert trace.windows()[-1] == trace.window()
    assert [trace.computation_seconds(0, window) for window in trace.windows()] == [7, 9, 6]  # the last is cut short
    assert trace.computation_seconds() == 6
    assert [trace.exposed_communication_seconds(0, window) for window in trace.windows()] == [3, 1, 3]
    assert trace_of(*spans_of_a_turn(0, 0.0)).windows() == []


def test_computation_of_another_rank_is_not_counted():
    other = [
        span._replace(end=span.start) if span.lane == "compute" else span
        for turn in range(3)
        for span in spans_of_a_turn(turn, 10.0 * turn, rank=1)
    ]
    trace = trace_of(*TRACE.spans, *other, turns=3)
    assert (trace.computation_seconds(0), trace.computation_seconds(1)) == (7, 0)


def test_overlap_of_two_lanes():
    assert TRACE.overlap_seconds("a", "b") == 2
    assert TRACE.overlap_seconds("compute", "a") == 2
    assert TRACE.overlap_seconds("compute", "b") == 1
    assert TRACE.overlap_seconds("compute", "nothing") == 0
    assert TRACE.lanes == ("compute", "a", "b")


def test_touching_and_nested_spans_of_a_lane_count_once():
    spans = [Span(0, t, "f", "need", "compute", 10.0 * t, 10.0 * t) for t in range(3)]
    spans += [Span(0, 1, f"m{a}{b}", "send", "a", 10.0 + a, 10.0 + b) for a, b in ((0, 4), (1, 2), (4, 6), (8, 9))]
    assert trace_of(*spans, turns=3).busy(0, ["a"], (10, 20)) == [(10, 16), (18, 19)]


def test_spans_of_a_rank_and_turn_in_order_of_start():
    trace = trace_of(*reversed(TRACE.spans), *spans_of_a_turn(0, 1.0, rank=3))
    assert trace.ranks == (0, 3)
    assert [span.operation for span in trace.of(0, 1)] == ["forward", "ready", "one", "two", "update"]
    assert {span.rank for span in trace.of(3)} == {3}
    assert len(trace.of(0)) == 15


def test_chrome_events():
    late = [span._replace(start=span.start + 5, end=span.end + 5) for span in TRACE.spans]
    received = Span(1, 0, "take", "recv_any", "a", 5.5, 6.0, 8, 2)
    document = json.loads(trace_of(*late, received, turns=3).to_chrome())
    assert document["otherData"] == {"rung": "simulated"}
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert {(event["pid"], event["args"]["name"]) for event in named if event["name"] == "process_name"} == {
        (0, "rank 0"),
        (1, "rank 1"),
    }
    threads = {event["tid"]: event["args"]["name"] for event in named if event["name"] == "thread_name"}
    assert threads == {0: "compute", 1: "a", 2: "b"}
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(TRACE.spans) + 1
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(event) for event in events)
    assert min(event["ts"] for event in events) == 0  # the first span, whatever the clock
    first = next(event for event in events if event["name"] == "one")
    assert (first["ts"], first["dur"], first["pid"], threads[first["tid"]]) == (4e6, 5e6, 0, "a")
    assert first["args"] == {"turn": 0, "bytes": 100}
    assert next(event for event in events if event["name"] == "take")["args"]["source"] == 2


def test_json_gives_back_an_equal_trace():
    trace = trace_of(*TRACE.spans, Span(1, 0, "take", "recv_any", "a", 0.1, 1 / 3, 8, 2), provenance={"plan": "abc"})
    assert Trace.from_json(trace.to_json()) == trace


def edited(change):
    document = json.loads(TRACE.to_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not a trace"),
        (TRACE.to_json()[:-20], "not a trace"),
        (edited(lambda d: d.update(colour="red")), "colour"),
        (edited(lambda d: d.pop("spans")), "spans"),
        (edited(lambda d: d.update(spans=[d["spans"][0][:6]])), "spans.0"),
        (edited(lambda d: d["spans"][2].__setitem__(5, "early")), "spans.2"),
        (edited(lambda d: d.update(version=7)), "version 7"),
        (edited(lambda d: d.update(period=0)), "no period of 0 turns"),
        (edited(lambda d: d.update(period=3, end_turn=2)), "no period of 3 turns"),
    ],
    ids=[
        *("empty", "cut off", "unknown key", "no spans", "short span", "text for seconds", "wrong version"),
        *("no period", "longer than all turns"),
    ],
)
def test_a_corrupt_trace_is_refused_in_one_line(text, named):
    with pytest.raises(InputError) as caught:
        Trace.from_json(text, "some/trace.json")
    assert str(caught.value).startswith("some/trace.json: ")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
