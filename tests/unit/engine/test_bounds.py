"""Hard bounds and model bounds: by hand, below everything that is simulated, and reached where they can be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_plans as tiny
from bounded_plans import LOAD, plan_of, same
from gradsync import cli, collectives
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine import bounds
from gradsync.engine.bounds import Demand, Links, cuts, hard_bound_seconds, links_bound_seconds, model_bound_seconds
from gradsync.engine.needs import in_step, needs
from gradsync.engine.simulate import simulate
from gradsync.errors import RunError
from gradsync.papers.simulated import timed
from gradsync.plan import Buffer, Need, Plan, Ready, Recv, Ref, Role, Send, Tensor
from gradsync.plan.workload import Workload
from gradsync.rounds import flow_level
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import workload, workloads

# By hand


def test_three_quarters_of_twice_the_bytes_follow_the_first_gradient():
    """4 ranks: 2 x 3/4 x 1200 B at 100 B/s are 18 s, after 2 + 1 s, before 0.5 s of update."""
    assert hard_bound_seconds(plan_of(), LOAD, Links(100.0)) == same(3.0 + 18.0 + 0.5)
    assert hard_bound_seconds(plan_of(), LOAD, Links(1e6)) == same(6.5)  # computation
    assert hard_bound_seconds(plan_of(), LOAD) == same(6.5)
    assert bounds.of_gradients(LOAD, 4).seconds(Links(100.0)) == same(21.5)


def test_the_largest_speedup_counts_what_an_all_reduce_of_so_many_ranks_sends():
    """Beside 4 s of backward: 2 x 3/4 x 1200 B at 100 B/s take 18 s, 14 of them exposed; of 2 ranks 12 s, 8 exposed.

    At 1 kB/s 1.8 s are hidden: the speed-up is the number of ranks. A rank alone sends nothing.
    """
    assert bounds.largest_speedup(LOAD, 4, 100.0) == same(4 * 6.0 / (6.0 + 14.0))
    assert bounds.largest_speedup(LOAD, 2, 100.0) == same(2 * 6.0 / (6.0 + 8.0))
    assert bounds.largest_speedup(LOAD, 4, 1000.0) == 4.0
    assert bounds.largest_speedup(LOAD, 1, 1e-3) == 1.0


def test_what_passes_at_once_and_what_shares_a_link_is_counted():
    assert hard_bound_seconds(plan_of(), LOAD, Links(100.0, burst_bytes=300.0)) == same(3.0 + 15.0 + 0.5)
    # two nodes of two ranks: each node sends 2 x 1/2 x 1200 B
    assert hard_bound_seconds(plan_of(), LOAD, Links(100.0, ranks_per_node=2)) == same(3.0 + 12.0 + 0.5)
    assert hard_bound_seconds(plan_of(), LOAD, Links(100.0, ranks_per_node=4)) == same(6.5)  # nothing leaves
    assert hard_bound_seconds(plan_of(), LOAD, Links(1e3), Links(100.0, ranks_per_node=2)) == same(15.5)
    assert bounds.of_gradients(LOAD, 4, ranks_per_node=2).awaited == same(1200.0)


def test_a_narrower_wire_halves_the_bytes_that_count():
    plan = plan_of(wire="float16")
    assert hard_bound_seconds(plan, LOAD, Links(100.0)) == same(3.0 + 9.0 + 0.5)
    assert model_bound_seconds(plan, LOAD, Network({"all_reduce": Linear(0.1, 0.02)})) == same(3.0 + 12.0 + 0.5)


def test_a_narrow_plan_on_several_lanes_is_not_below_either_bound(tmp_path, capsys):
    """Bounds of the whole precision, one message at a time, lay 80 % above what was simulated."""
    load = workload([10**6] * 20, [0.001] * 20, forward=0.01, update=0.001)
    (tmp_path / "load.json").write_text(load.to_json())
    (tmp_path / "schemes.yaml").write_text("narrow: {schedule: kway, wire: float16, options: {lanes: 2}}\n")
    costs = ["--allreduce", "a=1e-4,b=4e-9", "--capacity", "1.9", "--statistics", "local"]
    common = ["--workload", str(tmp_path / "load.json"), *costs, "--schedule", "narrow", "--ranks", "4", "--json"]
    assert cli.main(["plan", *common, "--schemes", str(tmp_path / "schemes.yaml")]) == 0
    answer = json.loads(capsys.readouterr().out)
    whole = 0.011 + 4e-9 * load.bytes + 0.001
    assert answer["iteration_seconds"] < 0.8 * whole
    assert answer["model_bound_seconds"] == pytest.approx(0.011 + 2e-9 * load.bytes / 1.9 + 0.001)
    assert answer["hard_bound_seconds"] <= answer["model_bound_seconds"] <= answer["iteration_seconds"]


def test_micro_batches_and_clipping_move_the_window():
    load = LOAD.model_copy(update={"norm_seconds": 0.25})
    plan = plan_of(load, accumulate=3, clip_norm=1.0)
    assert hard_bound_seconds(plan, load, Links(100.0)) == same(2 * 6.0 + 3.0 + 18.0 + 0.25 + 0.5)
    (need,) = {*needs(plan, load).values()}
    assert (need.ready, need.after, need.computation) == (15.0, 0.75, 18.75)


def test_statistics_are_sent_before_the_first_gradient_and_don_t_move_it():
    load = LOAD.model_copy(update={"statistics": 100})
    plan = plan_of(load, statistics=True)
    demand = bounds.demand(plan, load)
    assert (demand.ready, demand.after) == (3.0, 0.5)
    assert demand.awaited == same(1.5 * 1200)
    assert demand.busiest == same(1.5 * 1200 + 0.75 * 400)  # 400 B into each node but rank 0's: some node sends 300


def test_communication_under_the_next_forward_only_counts_by_its_length():
    """Reduce-scatter in backward, all-gather under the next forward: of both together an iteration is no shorter.

    The next iteration begins with the layer next to the input, and waits for its all-gather alone.
    """
    plan = tiny.sharded(4)
    load, size = load_of(plan), 8 * sum(tiny.SIZES)
    demand = bounds.demand(plan, load)
    (need,) = {*needs(plan, load).values()}
    awaited = [plan.roles[0].flat[i] for i in sorted(need.awaited)]
    assert [op.kind for op in awaited] == ["reduce_scatter"] * len(tiny.SIZES) + ["all_gather"]
    assert awaited[-1].name == "gather:layer1"
    assert demand.awaited == same(0.75 * (size + 8 * tiny.SIZES[-1]))
    assert demand.busiest == same(1.5 * size)
    assert need.after == 0.0


def test_servers_are_bound_by_what_their_own_links_carry():
    """All of both messages into rank 0 and out again: 2 x 3 x 1200 B over its way in, of which 3 x 1200 leave."""
    plan = plan_of(algorithm="ps_central")
    demand = bounds.demand(plan, LOAD)
    assert (demand.awaited, demand.busiest) == (3 * 1200.0, 3 * 1200.0)
    assert hard_bound_seconds(plan, LOAD, Links(100.0)) == same(3.0 + 36.0 + 0.5)
    spread = plan_of(algorithm="ps_tensor")  # 800 B to rank 0, 400 B to rank 1
    assert bounds.demand(spread, LOAD).awaited == 3 * 800.0 + 400.0


def test_ranks_that_keep_no_pace_with_the_iterations_do_not_count():
    """A rank that is sent to, and waited for by nobody, may lag behind."""
    whole = (Ref("gradient", 0, 100),)
    worker = (
        Need(name="forward"),
        Ready(name="ready", tensor="layer1", writes=whole),
        Send(name="push", lane="out", to=1, after=("ready",), reads=whole),
    )
    listener = (Recv(name="take", lane="in", source=0, writes=whole), Need(name="forward", after=("take",)))
    plan = Plan(
        name="listened to",
        ranks=2,
        tensors=(Tensor("layer1", 0, 100),),
        buffers=(Buffer("gradient", 100),),
        roles=(Role("worker", (0,), worker), Role("listener", (1,), listener)),
    )
    assert in_step(plan) == [0]
    each = {0: workload([400], [1.0], forward=1.0), 1: workload([400], [1.0], forward=50.0)}
    assert hard_bound_seconds(plan, each) == 2.0
    # nobody waits for the message either, but each iteration has one
    assert hard_bound_seconds(plan, each, Links(100.0)) == 4.0
    assert in_step(tiny.easgd_round_robin(3)) == [0, 1, 2, 3]
    assert in_step(tiny.async_server(2)) == [1]


def test_a_faster_iteration_than_possible_is_an_error():
    network = alpha_beta.network(4, 0.0, 0.01)
    times = timed(plan_of(), LOAD, network, Links(100.0))
    assert times.iteration_seconds == same(times.hard_bound_seconds) == same(times.model_bound_seconds)
    with pytest.raises(RunError, match=r"21\.5 s lies below its hard bound of 39\.5 s"):
        timed(plan_of(), LOAD, network, Links(50.0))
    with pytest.raises(RunError, match="x: an iteration of 1 s lies below"):
        bounds.refuse_below(1.0, 1.0 + 1e-6, "x")
    bounds.refuse_below(1.0, 1.0 + 1e-12, "x")


# Links


@pytest.mark.parametrize(
    ("text", "ranks", "wanted"),
    [
        ("switch:5", 5, [Links(10.0)]),
        ("fat_tree:4", 16, [Links(10.0)]),
        ("bcube:3,2", 9, [Links(20.0)]),
        ("bcube:3,2", 3, [Links(10.0)]),
        ("torus2d:3,4", 12, [Links(40.0)]),
        ("dense_gpu:2,4", 8, [Links(100.0), Links(10.0, ranks_per_node=4)]),
        ("dense_gpu:2,4", 4, [Links(100.0)]),
        ("switch:2000", 2000, []),
    ],
)
def test_what_leaves_a_rank_and_a_node(text, ranks, wanted):
    topology = parse(text)
    bandwidth = {"inside": 100.0, "between": 10.0} if text.startswith("dense") else 10.0
    assert cuts(topology, Speeds(bandwidth=bandwidth), ranks) == wanted


def test_nodes_bound_what_crosses_them_whoever_sends_it():
    load, topology = workload([800], [1.0]), parse("dense_gpu:2,4")
    speeds = Speeds(0.0, {"inside": 1e6, "between": 10.0})
    for algorithm in ("native", "hierarchical", "ring"):
        shape = () if algorithm == "native" else collectives.shape_on(algorithm, topology, 8)
        plan = ssgd.plan("p", load, (Message(0, 0),), 8, algorithm=algorithm, shape=shape)
        assert hard_bound_seconds(plan, load, *cuts(topology, speeds, 8)) >= 1.0 + 80.0  # 2 x 1/2 x 800 B


# Below everything that is simulated


def load_of(plan: Plan) -> Workload:
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    ones, names = [1.0 + 0.25 * i for i in range(len(sizes))], [tensor.name for tensor in plan.tensors]
    return workload(sizes, ones, forward=2.0, forwards=ones, update=1.0, dtype="float64", names=names)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_plan_of_any_kind_is_simulated_below_its_bounds(data):
    plan = data.draw(st.sampled_from(sorted(tiny.every_kind().items())))[1]
    load = load_of(plan)
    alpha, beta = data.draw(st.sampled_from([0.0, 0.5])), data.draw(st.sampled_from([0.0, 0.01, 0.05, 0.4]))
    each = {rank: load.model_copy(update={"forward_seconds": 2.0 + rank}) for rank in range(plan.ranks)}
    for times in (load, each):
        trace = simulate(plan, times, alpha_beta.network(plan.ranks, alpha, beta, axes=plan.mesh.places))
        if trace.steady:
            seconds = trace.iteration_seconds(plan.pace)
            for bound in (
                hard_bound_seconds(plan, times, *([Links(1 / beta)] if beta else [])),
                model_bound_seconds(plan, times, alpha_beta.network(plan.ranks, alpha, beta, axes=plan.mesh.places)),
            ):
                assert bound <= seconds * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(load=workloads(), data=st.data())
def test_no_synchronous_step_is_simulated_below_its_bounds(load, data):
    load = load.model_copy(update={"statistics": data.draw(st.integers(0, 300)), "norm_seconds": 0.125})
    ranks, lanes = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    algorithm = data.draw(st.sampled_from(["native", *collectives.names()]))
    if algorithm == "bml":
        ranks = 9
    topology = parse(collectives.topology_of(algorithm), ranks)
    shape = collectives.shape_on(algorithm, topology, ranks) if algorithm != "native" else ()
    plan = plan_of(
        load,
        ranks,
        lanes,
        algorithm=algorithm,
        shape=shape,
        wire=data.draw(st.sampled_from(["", "float16"])),
        accumulate=data.draw(st.integers(1, 2)),
        clip_norm=data.draw(st.sampled_from([None, 1.0])),
    )
    speeds = Speeds(data.draw(st.sampled_from([0.0, 0.01])), data.draw(st.sampled_from([1e3, 1e5, 1e7])))
    cost = flow_level.cost("ring" if algorithm == "native" else algorithm, topology, speeds, ranks).line
    network = Network({**alpha_beta.network(ranks, speeds.alpha, 1 / speeds.bandwidth).costs, "all_reduce": cost})
    links = cuts(topology, speeds, ranks)
    hard, model = bounds.both_bounds_seconds(plan, load, network, *links)
    seconds = simulate(plan, load, network).iteration_seconds()
    assert hard <= model * (1 + 1e-9)  # the flow-level cost is that of these links
    assert model <= seconds * (1 + 1e-9)
    if algorithm != "native" and ranks > 1:
        on_links = simulate(plan, load, network, topology=topology, speeds=speeds)
        for bound in (hard, links_bound_seconds(plan, load, topology, speeds)):
            assert bound <= on_links.iteration_seconds() * (1 + 1e-9)


def test_the_hard_bound_is_reached():
    load = workload([400, 400], [1.0, 0.0])
    plan, links = plan_of(load, 4, 1), {"topology": parse("switch:4"), "speeds": Speeds(0.0, 100.0)}
    ring = plan_of(load, 4, 1, algorithm="ring")
    assert simulate(plan, load, alpha_beta.network(4, 0.0, 0.01)).iteration_seconds() == same(
        hard_bound_seconds(plan, load, Links(100.0))
    )
    iteration = simulate(ring, load, Network({}), **links).iteration_seconds()
    assert (
        iteration
        == same(hard_bound_seconds(ring, load, Links(100.0)))
        == same(links_bound_seconds(ring, load, **links))
    )


def test_a_demand_without_messages_is_computation():
    assert Demand(4.0, 1.0, 0.5, 0.0, 0.0).seconds(Links(1.0)) == 4.0
