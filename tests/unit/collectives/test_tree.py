"""The pipelined double tree: NCCL's trees, inner nodes of one are leaves of the other, links as busy as by a ring."""

from __future__ import annotations

import numpy as np
import pytest

import tiny_plans as tiny
from gradsync import collectives
from gradsync.collectives import tree
from gradsync.costs import Network
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.rounds import flow_level, symbolic
from gradsync.topologies import Speeds, parse
from tiny_workloads import workload

NODES = (2, 3, 4, 5, 8, 13, 16, 31, 32)


@pytest.mark.parametrize("nodes", NODES)
def test_a_node_has_at_most_two_children_in_both_trees_together(nodes: int) -> None:
    inner, total = [], np.zeros(nodes, int)
    for number in range(2):
        parents = tree._parents(nodes, number)
        assert (parents == -1).sum() == 1
        children = np.bincount(parents[parents >= 0], minlength=nodes)
        total += children
        for node in range(nodes):  # every node comes to the root
            steps = 0
            while parents[node] >= 0:
                node, steps = int(parents[node]), steps + 1
            assert steps <= (nodes - 1).bit_length()
        inner.append(set(np.flatnonzero(children)))
    assert total.max() <= 2
    assert inner[0] & inner[1] <= ({0} if nodes % 2 else set())


def test_the_trees_of_eight_nodes_are_nccls() -> None:
    assert tree._parents(8, 0).tolist() == [-1, 2, 4, 2, 0, 6, 4, 6]
    assert tree._parents(8, 1).tolist() == [1, 3, 1, 7, 5, 3, 5, -1]


@pytest.mark.parametrize("shape", [(2,), (7,), (2, 2), (4, 3), (1, 5), (8, 1), (3, 2, 2)])
@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_any_number_of_chunks_is_summed(shape: tuple[int, ...], chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_own_chunks", lambda _: chunks)
    symbolic.verify("tree", shape)


@pytest.mark.parametrize(("gpus", "nodes"), [(8, 16), (4, 5), (1, 12)])
def test_a_node_sends_and_receives_twice_the_message(gpus: int, nodes: int) -> None:
    chunks = 6
    out, into = np.zeros(nodes), np.zeros(nodes)
    for step in collectives.rounds("tree", (gpus, nodes), chunks=chunks):
        far = step.source // gpus != step.destination // gpus
        out += np.bincount(step.source[far] // gpus, step.pieces[far], minlength=nodes)
        into += np.bincount(step.destination[far] // gpus, step.pieces[far], minlength=nodes)
    for carried in (out, into):  # but for roots, which have no parent
        assert carried.max() == 2 * 2 * chunks
        assert carried.sum() == 2 * 2 * chunks * (nodes - 1)


def test_with_many_chunks_it_takes_the_bytes_of_a_ring_between_nodes() -> None:
    topology = parse("dense_gpu:16,8")
    speeds = Speeds(0.0, {"inside": 1e15, "between": 1.0})
    of_tree = [flow_level.cost("tree", topology, speeds, chunks=chunks) for chunks in (10, 100, 1000)]
    height = 7 + 4
    for chunks, cost in zip((10, 100, 1000), of_tree, strict=True):
        assert 2 * chunks <= cost.rounds <= 2 * (chunks + height)
        assert 2 <= cost.seconds(1.0) <= 2 * (1 + height / chunks)
    assert of_tree[2].seconds(1.0) == pytest.approx(2, rel=0.02)


def test_chunks_follow_from_bytes() -> None:
    assert [tree.chunks_of(size, 512) for size in (1, 1024, 1025, 102_400)] == [1, 1, 2, 100]


def test_chunks_are_refused_where_there_is_no_pipeline() -> None:
    with pytest.raises(InputError, match="'ring' is no pipeline, whose chunks could be counted: chain, tree are"):
        collectives.rounds("ring", (4,), chunks=3)
    with pytest.raises(InputError, match="'tree': 0 chunks: at least 1"):
        collectives.rounds("tree", (4,), chunks=0)


def test_more_transfers_than_are_timed_are_refused() -> None:
    with pytest.raises(InputError, match=r"'tree' sends .* messages: at most"):
        collectives.refuse("tree", (65_536, 2))


@pytest.mark.parametrize("ranks", [3, 6, 8])
def test_ranks_that_run_ahead_in_the_pipeline_end_no_later(ranks: int) -> None:
    """No rank waits for others that it has nothing to do with, and nothing is faster than the bytes of a rank."""
    topology, speeds = parse(f"switch:{ranks}"), Speeds(0.01, 1.0)
    elements = collectives.pieces("tree", (ranks,))
    plan = tiny.synchronous(ranks, [elements], algorithm="tree")
    load = workload([8 * elements], [0.0], dtype="float64", names=["layer1"])
    trace = simulate(plan, load, Network({}), turns=1, topology=topology, speeds=speeds)
    cost = flow_level.cost("tree", topology, speeds)
    assert 2 * 8 * elements * (ranks - 1) / ranks <= max(span.end for span in trace.spans)
    assert max(span.end for span in trace.spans) <= cost.seconds(8 * elements)
