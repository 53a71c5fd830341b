"""What planners think that a sparse message costs is what the simulator has for its operations."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync import compressors, sparse, topologies
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.engine.sparse_cost import SparseCost
from gradsync.errors import InputError
from gradsync.sparse import Compression
from tiny_workloads import workload

KERNELS = {"encode_exact_topk": 3e-3, "encode_exact_topk/selected": 5e-3, "decode_sum": 2e-3}
KERNELS |= {f"{verb}_{name}": 1e-3 for verb in ("encode", "decode") for name in compressors.coding()}
ALL_REDUCE = Linear(3.0, 1e-3)
BACKWARD, FORWARD = 2.0, 1.0


def compression(name: str, nodes: int, local: int, density: float, feedback: bool) -> Compression:
    topology = topologies.parse(f"dense_gpu:{nodes},{local}")
    return Compression(sparse.way(name, topology, topology.hosts), "exact_topk", density, feedback)


def network(of: Compression) -> Network:
    places = {axis.name: axis.size for axis in of.way.axes}
    return alpha_beta.with_axes(alpha_beta.around(ALL_REDUCE, of.way.ranks), of.way.ranks, places)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("elements", [3, 13, 1000])
@pytest.mark.parametrize(("name", "shape"), [("allgather_sparse", (1, 4)), ("hitopk", (2, 2)), ("hitopk", (3, 4))])
def test_a_message_costs_what_the_simulator_has_for_it(name, shape, elements, density, feedback):
    of = compression(name, *shape, density, feedback)
    load = workload([4 * elements], [BACKWARD], forward=FORWARD, kernels=KERNELS)
    topology = f"dense_gpu:{shape[0]},{shape[1]}" if name == "hitopk" else ""
    parts = {"collective": name, "schedule": "single", "topology": topology}
    scheme = schemes.Scheme(name="one", density=density, error_feedback=feedback, **parts)
    plan = schemes.plan(scheme, load, ALL_REDUCE, of.way.ranks)
    seconds = simulate(plan, load, network(of)).iteration_seconds() - BACKWARD - FORWARD
    cost = SparseCost(of, network(of), load)
    assert cost.seconds(4.0 * elements) == pytest.approx(seconds, rel=0.02)  # slices differ by an element
    assert 0 < cost.startup_seconds(4 * elements) < seconds
    sizes = np.array([4 * elements, 4000.0])
    np.testing.assert_allclose(cost.seconds(sizes), [cost.seconds(size) for size in sizes])
    assert cost.least_transfer_seconds(4 * elements) <= seconds


@pytest.mark.parametrize("compressor", compressors.coding())
@pytest.mark.parametrize("elements", [3, 13, 1000])
@pytest.mark.parametrize(("name", "shape"), [("allgather_sparse", (1, 4)), ("hitopk", (3, 4))])
def test_a_code_costs_what_the_simulator_has_for_it(name, shape, elements, compressor):
    topology = f"dense_gpu:{shape[0]},{shape[1]}" if name == "hitopk" else ""
    parts = {"collective": name, "schedule": "single", "topology": topology}
    scheme = schemes.Scheme(name="one", compressor=compressor, **parts)
    of = scheme.compression(shape[0] * shape[1])
    load = workload([4 * elements], [BACKWARD], forward=FORWARD, kernels=KERNELS)
    plan = schemes.plan(scheme, load, ALL_REDUCE, of.way.ranks)
    seconds = simulate(plan, load, network(of)).iteration_seconds() - BACKWARD - FORWARD
    cost = SparseCost(of, network(of), load)
    assert cost.seconds(4.0 * elements) == pytest.approx(seconds, rel=0.02)  # slices differ by an element
    np.testing.assert_allclose(
        cost.seconds(np.array([4 * elements, 400])), [cost.seconds(4 * elements), cost.seconds(400)]
    )
    assert 0 < cost.least_transfer_seconds(4 * elements) <= seconds


def test_a_kernel_of_unknown_cost_is_refused_once_the_schedule_asks():
    load = workload([400, 800], [1.0, 2.0], kernels={"encode_exact_topk": 1e-3})
    merged = schemes.Scheme(name="merged", schedule="mgwfbp", collective="hitopk")
    with pytest.raises(InputError, match=r"a compressed message needs a kernel \(decode_sum\), and workload 'tiny'"):
        schemes.plan(merged, load, ALL_REDUCE, 4)
    by_layer = merged.model_copy(update={"schedule": "wfbp"})
    plan = schemes.plan(by_layer, load, ALL_REDUCE, 4)
    with pytest.raises(InputError, match=r"'decode0' moves .* \(decode_sum\)"):
        simulate(plan, load, network(compression("hitopk", 2, 2, 0.01, True)))


def test_schedules_merge_by_the_cost_of_sparse_messages():
    """A start-up that hides behind backward is not worth a merge; one that is longer than backward is."""
    scheme = schemes.Scheme(name="merged", schedule="mgwfbp", collective="allgather_sparse", density=0.1)
    load = workload([4000] * 4, [1.0] * 4, kernels=dict.fromkeys(KERNELS, 1e-6))
    assert len(schemes.plan(scheme, load, Linear(0.1, 1e-5), 4).messages()) == 4
    assert len(schemes.plan(scheme, load, Linear(1e3, 1e-5), 4).messages()) == 1


@pytest.mark.parametrize("ranks", [8, 128])
def test_naive_gathers_grow_with_ranks_and_sparse_between_nodes_with_nodes(ranks):
    """NaiveAG gathers P k values of 4 bytes and as many indices (Eq. 3 twice), HiTopKComm m of n times fewer."""
    elements, density, beta = 1_000_000, 0.01, 1e-9
    load = workload([4 * elements], [1.0], kernels=dict.fromkeys(KERNELS, 0.0))
    line = alpha_beta.ring(ranks, 0.0, beta)
    naive = compression("allgather_sparse", 1, ranks, density, True)
    expected = 2 * (ranks - 1) * density * elements * 4 * beta
    assert SparseCost(naive, network_of(line, naive), load).seconds(4 * elements) == pytest.approx(expected)
    nodes, local = ranks // 4, 4
    between = compression("hitopk", nodes, local, density, True)
    dense = 2 * (local - 1) / local * 4 * elements * beta
    gathered = 2 * (nodes - 1) * density * elements / local * 4 * beta
    assert SparseCost(between, network_of(line, between), load).seconds(4 * elements) == pytest.approx(dense + gathered)


def network_of(line: Linear, of: Compression) -> Network:
    places = {axis.name: axis.size for axis in of.way.axes}
    return alpha_beta.with_axes(alpha_beta.around(line, of.way.ranks), of.way.ranks, places)
