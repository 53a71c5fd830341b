"""Every kind of plan that a scheme may need can be written, checked, simulated and evaluated with the right values."""

import dataclasses

import numpy as np
import pytest

import tiny_plans as tiny
from gradsync import collectives
from gradsync.check import check
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Collective, Ref
from gradsync.plan.trace import Trace
from gradsync.rounds import flow_level
from gradsync.rounds.lowering import lower, lowered
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import workload

ALPHA, BETA = 0.5, 0.25
PLANS = tiny.every_kind()


def values(plan, turns, *, pull=tiny.pull, **options):
    elements = plan.tensors[-1].stop
    first = {"parameter": tiny.start(elements), "centre": tiny.start(elements)}
    return evaluate(plan, turns, pull, first, **options)


def load_of(plan, *, update=0.0):
    """One second of backward and of forward a layer, for any plan."""
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    ones = [1.0] * len(sizes)
    return workload(
        sizes,
        ones,
        forward=1.0,
        update=update,
        forwards=ones,
        dtype="float64",
        names=[tensor.name for tensor in plan.tensors],
    )


def network_of(plan):
    return alpha_beta.network(plan.ranks, ALPHA, BETA, axes=plan.mesh.places)


def fastest_seconds_per_byte(trace: Trace) -> float:
    """Over all windows of time: seconds for each byte that a rank's sends carry from start to end inside it."""
    factors = [float("inf")]
    for rank in trace.ranks:
        sends = [span for span in trace.of(rank) if span.verb in ("send", "reply")]
        for first in sends:
            for last in sends:
                inside = sum(span.bytes for span in sends if span.start >= first.start and span.end <= last.end)
                if inside:
                    factors.append((last.end - first.start) / inside)
    return min(factors)


@pytest.mark.parametrize("name", PLANS)
def test_every_kind_passes_check_survives_json_and_is_simulated(name):
    plan = PLANS[name]
    check(plan)
    assert type(plan).from_json(plan.to_json()) == plan
    trace = simulate(plan, load_of(plan), network_of(plan), turns=3)
    assert fastest_seconds_per_byte(trace) >= BETA * (1 - 1e-9)
    workers = plan.roles[-1].ranks if not plan.symmetric else (0,)
    for rank in workers:
        for turn in range(3):
            assert {span.operation for span in trace.of(rank, turn)} == {op.name for op in plan.role_of[rank].flat}


def test_two_lanes_sum_like_one():
    plan = tiny.two_lanes(4)
    elements = plan.tensors[-1].stop
    for rank in values(plan, 5):
        np.testing.assert_allclose(rank["parameter"], tiny.synchronous_reference(4, elements, 5), rtol=1e-12)


def test_groups_of_ranks_train_by_themselves():
    plan = tiny.in_groups(2, 2)
    elements = plan.tensors[-1].stop
    for rank, end in enumerate(values(plan, 3)):
        wanted = tiny.synchronous_reference(2, elements, 3, first_rank=rank // 2 * 2)
        np.testing.assert_allclose(end["parameter"], wanted, rtol=1e-12)


@pytest.mark.parametrize("lanes", [2, 3, 5])
def test_simultaneous_messages_share_the_link_but_not_the_startup(lanes):
    size, a, b = 80, 2.0, 0.125
    load = workload([size] * lanes, [1.0] + [0.0] * (lanes - 1), dtype="float64")
    plan = ssgd.plan("lanes", load, tuple(Message(i, i, f"lane{i}") for i in range(lanes)), 2)
    trace = simulate(plan, load, Network({"all_reduce": Linear(a, b)}))
    assert trace.iteration_seconds() == pytest.approx(1.0 + a + lanes * b * size, rel=1e-12)
    # unequal sizes: the short one ends first and leaves the link to the long one
    short, long = 16, 160
    load = workload([short, long], [1.0, 0.0], dtype="float64")
    plan = ssgd.plan("lanes", load, (Message(0, 0, "x"), Message(1, 1, "y")), 2)
    trace = simulate(plan, load, Network({"all_reduce": Linear(a, b)}), turns=2)
    ends = {span.operation: span.end for span in trace.of(0, 0)}
    assert ends["message0"] == pytest.approx(1.0 + a + 2 * b * short, rel=1e-12)
    assert ends["message1"] == pytest.approx(1.0 + a + b * (short + long), rel=1e-12)


SHAPES = {
    "bml": [(2, 2), (3, 3), (2, 2, 2)],
    "hierarchical": [(3, 2), (2, 2, 2), (1, 4)],
    "torus2d": [(3, 2), (2, 4)],
}


@pytest.mark.parametrize("algorithm", collectives.names())
def test_a_lowered_all_reduce_leaves_the_sum_on_every_rank(algorithm):
    """2 to 9 ranks; messages of fewer elements than pieces, and of some that don't divide evenly."""
    sizes, turns = [1, 2, 7, 13], 2
    for shape in [*((n,) for n in range(2, 10)), *SHAPES.get(algorithm, [])]:
        ranks = int(np.prod(shape))
        plan = lowered(tiny.synchronous(ranks, sizes, algorithm=algorithm, shape=shape))
        check(plan)
        wanted = tiny.synchronous_reference(ranks, sum(sizes), turns)
        for rank in values(plan, turns):
            np.testing.assert_allclose(rank["parameter"], wanted, rtol=1e-12, err_msg=str(shape))


@pytest.mark.parametrize("algorithm", collectives.names())
def test_a_lowered_all_reduce_takes_the_time_of_its_rounds(algorithm):
    """As on a switch: BCube of one level is one. Some numbers of ranks don't stay in step (`test_flow_level.py`)."""
    gamma, speeds = 0.125, Speeds(ALPHA, 1 / BETA)
    powers = algorithm in ("binary_tree", "shared_tree", "recursive_doubling", "halving_doubling")
    for n in (2,) if algorithm == "tree" else (2, 4, 8) if powers else (2, 3, 6):  # a pipeline's ranks run ahead
        network = f"bcube:{n},1" if algorithm == "bml" else f"numa:{n}" if algorithm == "shared_tree" else f"switch:{n}"
        topology = parse(network)
        plan = tiny.synchronous(n, [4 * n], algorithm=algorithm)
        trace = simulate(lowered(plan), load_of(plan), network_of(plan), add_seconds_per_byte=gamma)
        rounds = flow_level.cost(algorithm, topology, speeds, add_seconds_per_byte=gamma).seconds(32 * n)
        assert trace.iteration_seconds() == pytest.approx(2.0 + rounds, rel=1e-12)  # after 1 s forward, 1 s backward


def test_a_collective_that_waits_for_the_previous_turn_still_does_when_lowered():
    op = Collective(
        name="sum",
        lane="network",
        algorithm="ring",
        after=("ready",),
        after_previous=("update",),
        reads=(Ref("gradient", 0, 2),),
        writes=(Ref("gradient", 0, 2),),
    )
    for rank in range(8):  # 2 elements on 8 ranks: most ranks have nothing to do in the first rounds
        first = lower(op, rank, tuple(range(8)), 1)[0]
        assert "ready" in first.after
        assert first.after_previous == ("update",)


def test_what_cannot_be_lowered_is_refused_by_name():
    ref = Ref("gradient", 0, 8)
    for op in (
        Collective(name="part", kind="broadcast", algorithm="ring", reads=(ref,), writes=(Ref("gradient", 8, 16),)),
        Collective(name="part", ranks=(0, 1), algorithm="ring", reads=(ref,), writes=(ref,)),
    ):
        with pytest.raises(InputError, match="'part'"):
            lower(op, 0, (0, 1, 2, 3), 1)
    with pytest.raises(InputError, match="'bml' needs levels of one size, not 3 x 2"):
        lower(
            Collective(name="part", algorithm="bml", shape=(3, 2), reads=(ref,), writes=(ref,)), 0, tuple(range(6)), 1
        )


def test_sparse_messages_and_residuals_keep_the_whole_gradient():
    plan, turns = tiny.sparse(3), 4
    elements = plan.tensors[-1].stop
    ends = values(plan, turns, pull=tiny.fixed_pull)
    produced = sum(tiny.fixed_pull(rank, turn, np.zeros(elements)) for rank in range(3) for turn in range(turns))
    applied = (tiny.start(elements) - ends[0]["parameter"]) / tiny.LR
    residuals = sum(rank["residual"] for rank in ends)
    np.testing.assert_allclose(applied + residuals, produced, rtol=1e-12)
    assert np.abs(residuals).max() > 0.1  # something was held back
    for rank in ends:
        np.testing.assert_array_equal(rank["parameter"], ends[0]["parameter"])


def test_one_sparse_turn_sends_the_largest_of_each_rank():
    plan = tiny.sparse(3, k=2)
    elements = plan.tensors[-1].stop
    expected = np.zeros(elements)
    for rank in range(3):
        gradient = tiny.pull(rank, 0, tiny.start(elements))
        largest = np.argsort(np.abs(gradient))[-2:]
        expected[largest] += gradient[largest]
    np.testing.assert_allclose(values(plan, 1)[0]["gradient"], expected, rtol=1e-12)


def test_a_server_serves_its_workers_in_the_recorded_order():
    plan = tiny.async_server(2)
    elements = plan.tensors[-1].stop
    order = [1, 2, 2, 1, 2, 1, 1, 2]
    arrivals = {(0, turn, "take"): source for turn, source in enumerate(order)}
    ends = values(plan, 4, arrivals=arrivals)
    np.testing.assert_allclose(ends[0]["parameter"], tiny.server_reference(order, elements), rtol=1e-12)
    other = values(plan, 4)[0]["parameter"]
    assert np.abs(other - ends[0]["parameter"]).max() > 1e-6  # the order matters


def test_a_simulated_server_takes_whichever_comes_first():
    plan = tiny.async_server(2)
    quick = load_of(plan)
    slow = quick.scaled(forward_seconds=100.0, backward_seconds=100.0, update_seconds=0.0, note="slow")
    trace = simulate(plan, {0: quick, 1: slow, 2: quick}, Network({"send": Linear(0.0, 1e-3)}), turns=3)
    sources = [span.source for span in trace.of(0) if span.verb == "recv_any"]
    assert sources == [2, 2, 2, 1, 1, 1]
    arrivals = {(0, turn, "take"): source for turn, source in enumerate(sources)}
    expected = tiny.server_reference(sources, plan.tensors[-1].stop)
    np.testing.assert_allclose(values(plan, 3, arrivals=arrivals)[0]["parameter"], expected, rtol=1e-12)


@pytest.mark.parametrize("locked", [True, False])
def test_shared_memory_collects_every_update(locked):
    plan = tiny.hogwild(3, locked=locked)
    elements = plan.tensors[-1].stop
    ends = values(plan, 4, pull=tiny.fixed_pull)
    total = sum(tiny.fixed_pull(rank, turn, np.zeros(elements)) for rank in range(3) for turn in range(4))
    np.testing.assert_allclose(ends[0]["centre"], tiny.start(elements) - tiny.LR * total, rtol=1e-12)
    assert ends[0]["centre"] is ends[2]["centre"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_round_robin_sweep_is_the_elastic_rule(workers):
    plan = tiny.easgd_round_robin(workers)
    centre, parameters = tiny.easgd_reference(workers, plan.tensors[-1].stop, 5)
    ends = values(plan, 5)
    np.testing.assert_allclose(ends[0]["centre"], centre, rtol=1e-12)
    for end, parameter in zip(ends[1:], parameters, strict=True):
        np.testing.assert_allclose(end["parameter"], parameter, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 4])
def test_dealt_ratios_are_lars_on_the_whole_model(n):
    plan = tiny.dealt_ratios(n)
    for rank in values(plan, 4):
        np.testing.assert_allclose(rank["parameter"], tiny.lars_reference(n, 3, 4), rtol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_sharded_updates_end_like_whole_ones(n):
    plan = tiny.sharded(n)
    for rank in values(plan, 4):
        np.testing.assert_allclose(
            rank["parameter"], tiny.synchronous_reference(n, plan.tensors[-1].stop, 4), rtol=1e-12
        )


def test_gathers_overlap_with_the_next_forward():
    plan = tiny.sharded(2, [4, 4, 4])
    trace = simulate(plan, load_of(plan), network_of(plan))
    assert trace.overlap_seconds("compute", "network") > 0
    last = trace.turns - 1
    starts = {span.operation: span.start for span in trace.of(0, last) if span.verb == "need"}
    ends = {span.operation: span.end for span in trace.of(0, last - 1)}
    for layer in ("layer1", "layer2", "layer3"):
        assert starts[f"forward:{layer}"] >= ends[f"gather:{layer}"]
    assert starts["forward:layer1"] < ends["gather:layer3"]
    # where forward waits for all of them the iteration is longer
    waiting = tuple(
        dataclasses.replace(op, after_previous=("gather:layer1", "gather:layer2", "gather:layer3"))
        if op.verb == "need"
        else op
        for op in plan.roles[0].body
    )
    whole = dataclasses.replace(plan, roles=(dataclasses.replace(plan.roles[0], body=waiting),))
    slower = simulate(whole, load_of(plan), network_of(plan)).iteration_seconds()
    assert trace.iteration_seconds() < slower - 0.5


def test_a_repeat_is_that_many_turns_in_one():
    plan = tiny.repeated(2, 3)
    expected = tiny.synchronous_reference(2, plan.tensors[-1].stop, 2, steps_a_turn=3)
    np.testing.assert_allclose(values(plan, 2)[0]["parameter"], expected, rtol=1e-12)
