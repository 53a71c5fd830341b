"""A plan without its messages, and the record of what was measured of a contender."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import tiny_plans as tiny
from gradsync import schedules
from gradsync.check import check
from gradsync.configuration import schemes
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.plan import COMPUTE, Plan
from gradsync.plan.trace import Span, Trace
from gradsync.runtime.contenders import NO_COMMUNICATION, Record, silent
from gradsync.runtime.repeats import repeats
from tiny_workloads import workload

LR, TURNS = 0.1, 3
LOAD = workload([400, 800, 1200], [1.0, 2.0, 3.0], forward=4.0, update=0.5).model_copy(update={"statistics": 6})


def planned(schedule: str, ranks: int = 2, wire: str = "", **how: float) -> Plan:
    scheme = schemes.Scheme(name=schedule, wire=wire)  # type: ignore[arg-type]
    return schemes.plan(scheme, LOAD, Linear(4.0, 0.002), ranks, lr=LR, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{}, {"wire": "float16"}, {"statistics": False}, {"loss_scaling": True}], ids=str)
@pytest.mark.parametrize("schedule", schedules.names("ssgd"))
def test_without_messages_only_computation_is_left_and_waits_for_nothing_else(schedule, how):
    plan = planned(schedule, momentum=0.9, **how)
    quiet = silent(plan)
    assert quiet.name == NO_COMMUNICATION
    assert quiet.communications() == []
    body = quiet.roles[0].flat
    assert {op.lane for op in body} == {COMPUTE}
    computed = [op.name for op in plan.roles[0].flat if op.lane == COMPUTE]
    assert [op.name for op in body] == computed == ["forward", "ready:layer3", "ready:layer2", "ready:layer1", "update"]
    assert {name for op in body for name in (*op.after, *op.after_previous)} == {"update"}
    # all that it computes is as before
    for op in body:
        (before,) = [other for other in plan.roles[0].flat if other.name == op.name]
        same = {"after": before.after, "after_previous": before.after_previous}
        if op.name == "update":  # from each rank's own gradients
            assert op.requires is None
            same["requires"] = before.requires
        assert dataclasses.replace(op, **same) == before
    check(of_one_rank(quiet))
    assert (quiet.tensors, quiet.buffers, quiet.ranks) == (plan.tensors, plan.buffers, plan.ranks)


def of_one_rank(plan: Plan) -> Plan:
    """Ranks without messages train apart, which is an error of a plan of several."""
    (role,) = plan.roles
    return dataclasses.replace(plan, ranks=1, roles=(dataclasses.replace(role, ranks=(0,)),))


@pytest.mark.parametrize("update", ["sharded", "decoupled", "by_message"])
def test_without_messages_updates_beside_computation_are_whole_and_come_last(update):
    scheme = schemes.Scheme(name="wfbp", update=update)
    quiet = silent(schemes.plan(scheme, LOAD, Linear(4.0, 0.002), 2, lr=LR, momentum=0.9))
    check(of_one_rank(quiet))
    body = quiet.roles[0].flat
    numbers = (0, 1, 2) if update == "by_message" else (2, 1, 0)  # as forward needs them
    assert [op.name for op in body[-3:]] == [f"update{number}" for number in numbers]
    assert {op.lane for op in body} == {COMPUTE}
    assert not any(ref.mine for op in body for ref in (*op.reads, *op.writes))
    assert {name for op in body for name in (*op.after, *op.after_previous)} <= {op.name for op in body}


def test_messages_on_every_lane_go():
    assert {op.lane for op in silent(tiny.two_lanes(2)).roles[0].flat} == {COMPUTE}


@pytest.mark.parametrize("schedule", schedules.names())
def test_without_messages_an_iteration_is_its_computation(schedule):
    trace = simulate(silent(planned(schedule)), LOAD, alpha_beta.network(2, 1.0, 1.0))
    assert trace.iteration_seconds() == pytest.approx(4.0 + 6.0 + 0.5)
    assert trace.exposed_communication_seconds() == 0


def test_without_messages_each_rank_trains_on_its_own_gradients():
    def gradient(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
        return np.full(len(parameter), 1.0 + 10 * rank + turn)

    for rank, values in enumerate(evaluate(silent(planned("mgwfbp")), TURNS, gradient, {}, dtype="float64")):
        moved = sum(1.0 + 10 * rank + turn for turn in range(TURNS))
        np.testing.assert_allclose(values["parameter"], -LR / 2 * moved)


# Records


def ends(*seconds: float) -> list[float]:
    """The ends of turns of these lengths, on a clock that began long ago."""
    return np.cumsum([1e4, *seconds]).tolist()


def test_the_first_turn_of_a_block_is_not_timed():
    record = Record()
    record.block(7, 0, [2.0, 1.5, 1.0], ends(0.25, 0.75))
    record.block(7, 3, [0.5, 0.25], ends(0.5))
    record.block(8, 0, [3.0, 2.5, 2.0, 1.0], ends(1.0, 8.0, 2.0))
    assert record.blocks == pytest.approx([0.5, 0.5, 2.0])
    assert [row[:4] for row in record.rows] == [
        *((7, 0, 0, 2.0), (7, 1, 0, 1.5), (7, 2, 0, 1.0)),
        *((7, 3, 1, 0.5), (7, 4, 1, 0.25)),
        *((8, 0, 2, 3.0), (8, 1, 2, 2.5), (8, 2, 2, 2.0), (8, 3, 2, 1.0)),
    ]
    assert [row[4] for row in record.rows] == pytest.approx([None, 0.25, 0.75, None, 0.5, None, 1.0, 8.0, 2.0])
    assert Record(**dataclasses.asdict(record)) == record  # as a checkpoint holds it


def test_computation_and_exposed_messages_are_those_of_the_turns_that_are_timed():
    """Computation takes 3 s per turn; then the first waits 7 s for its message, the second, which is timed, 1 s."""
    begun = 1e4
    spans = [
        Span(0, turn, verb, verb, lane, begun + start, begun + end)
        for turn, verb, lane, start, end in (
            (0, "ready", COMPUTE, 0, 3),
            (0, "collective", "network", 3, 10),
            (1, "ready", COMPUTE, 10, 13),
            (1, "collective", "network", 12.5, 14),
        )
    ]
    record = Record()
    record.block(0, 0, [2.0, 1.0], [begun + 10, begun + 14], Trace("wfbp", "measured", 2, tuple(spans)))
    assert (record.blocks, record.computation, record.exposed) == ([4.0], [3.0], [1.0])
    sent = {span.operation for span in spans if span.lane != COMPUTE}
    assert set(record.operations) == sent  # few operations: each has its time, of the turn that is timed
    assert all(len(each) == 1 and each[0] > 0 for each in record.operations.values())
    assert {f"seconds_of_{name}" for name in sent} <= set(repeats({"wfbp": record}, "wfbp", 2))


SPANS = {"exposed": [1.0, 5.0, 9.0, 2.0, 2.0, 7.0], "computation": [3.0, 3.5, 4.0, 5.0, 6.0, 7.0]}  # a timed turn each


def three_blocks(seconds: float, **spans: list[float]) -> Record:
    """Blocks of 4, 3 and 2 turns, whose first turns aren't timed; turns take `seconds`, twice, thrice as long."""
    record = Record(**spans)
    for number, turns in enumerate((3, 2, 1), start=1):
        record.block(0, 0, [1.0] * (turns + 1), ends(*[number * seconds] * turns))
    return record


def test_repeats_are_blocks_in_order_so_that_those_of_two_contenders_are_pairs():
    records = {"wfbp": three_blocks(2.0, **SPANS), "ddp": three_blocks(1.0)}
    records |= {"no_communication": three_blocks(0.5), "one_rank": three_blocks(0.25)}
    values = repeats(records, "wfbp", 4)
    assert values["iteration_seconds"] == pytest.approx([2, 4, 6])
    assert values["computation_seconds"] == pytest.approx([0.5, 1, 1.5])
    assert values["over_no_communication_seconds"] == pytest.approx([1.5, 3, 4.5])
    assert values["speedup"] == pytest.approx([4 * 0.25 / 2] * 3)
    assert values["efficiency"] == pytest.approx([0.25 / 2] * 3)
    # a turn in which the machine was slow counts in its own block only
    assert values["exposed_communication_seconds"] == [5.0, 2.0, 7.0]
    assert values["busy_computation_seconds"] == [3.5, 5.5, 7.0]
    assert not {"exposed_communication_seconds", "busy_computation_seconds"} & repeats(records, "ddp", 4).keys()
    assert repeats(records, "one_rank", 4) == {"iteration_seconds": pytest.approx([0.25, 0.5, 0.75])}
    assert repeats({"ddp": records["ddp"]}, "ddp", 4) == {"iteration_seconds": pytest.approx([1, 2, 3])}


def test_the_median_of_a_blocks_rows_is_what_is_compared():
    record = Record()
    lengths = np.random.default_rng(1).exponential(size=(5, 6))
    for number, block in enumerate(lengths):
        record.block(0, 7 * number, [1.0] * 7, ends(*block))
    for number, block in enumerate(lengths):
        of_block = [row[4] for row in record.rows if row[2] == number and row[4] is not None]
        assert record.blocks[number] == np.median(of_block) == pytest.approx(np.median(block))
    assert all(second[1] == first[1] + 1 for first, second in pairwise(record.rows))


def test_metrics_tell_seed_step_epoch_and_block():
    record = Record(
        rows=[(3, 0, 0, 2.5, None), (3, 1, 0, 1.5, 0.25), (3, 2, 1, 1.0, None), (4, 0, 2, 0.1, None)],
        accuracy=[(3, 1, 0.5), (4, 0, 0.75)],
    )
    assert record.csv(lambda turn: turn // 2).splitlines() == [
        "seed,step,epoch,block,loss,iteration_seconds,accuracy",
        "3,0,0,0,2.5,,",
        "3,1,0,0,1.5,0.25,0.5",
        "3,2,1,1,1.0,,",
        "4,0,0,2,0.1,,0.75",
    ]
