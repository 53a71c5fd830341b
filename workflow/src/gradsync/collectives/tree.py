"""Pipelined double binary tree all-reduce: NCCL's tree, the cloud paper's TreeAR (Sections 5.3 and 6).

Two binary trees over the nodes carry half of the message each, in chunks that follow one another. A node that has
children in one tree is a leaf of the other (Sanders et al., 2009, Two-tree algorithms), but for one of an odd number of
nodes, which has a child in each. So all nodes send and receive alike: once the message up, once down. Inside a node a
chain of GPUs leads to the one that speaks for the node: the first in one tree, the last in the other. Level 0 is a
node; if there is no other level, each rank is a node.

The trees are those of NCCL: the parent of node v is v with its lowest bit that is set moved up by one, or taken away
if there is no such node; the second tree is the first one mirrored, or shifted by one if nodes are odd in number.

Differs from NCCL: the way down begins when the way up has ended, since a round either adds or replaces. That takes as
many bytes of each link and 2 (C + H) rounds of C chunks on trees of height H; NCCL lets the two ways overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from gradsync.collectives import Round, Shape, on_one_rail
from gradsync.errors import InputError
from gradsync.limits import MOST_TRANSFERS

TOPOLOGY, POSTCONDITION, CHUNKED = "dense_gpu", "sum", True
CHUNKS_PER_HEIGHT = 4  # of each half, if no number is given: filling the pipeline then adds a quarter of the time


class Edges(NamedTuple):
    """From each rank but the roots to its parent, in both trees.  # each (edges,)

    `below`: edges of the longest way from a leaf up to the rank. `above`: edges from its parent up to the root.
    """

    child: np.ndarray
    parent: np.ndarray
    tree: np.ndarray
    below: np.ndarray
    above: np.ndarray


def pieces(shape: Shape, chunks: int | None = None) -> int:
    """The chunks of both halves; `chunks`: of a half."""
    return 2 * (chunks or _own_chunks(shape))


def chunks_of(message: float, chunk: float) -> int:
    """Chunks of each half of a message of so many bytes, in chunks of at most that many bytes; at least 1."""
    return max(1, int(-(-message // (2 * chunk))))


def refuse(shape: Shape) -> None:
    """Raises InputError for more transfers than are ever timed."""
    height = _height(shape)
    if (transfers := 4 * prod(shape) * (CHUNKS_PER_HEIGHT + 1) * height) > MOST_TRANSFERS:
        raise InputError(f"collective 'tree' sends {transfers} messages: at most {MOST_TRANSFERS} are timed")


def rounds(shape: Shape, root: int = 0, chunks: int | None = None) -> Iterator[Round]:
    """In round t a rank sends chunk t - below to its parent; on the way down, the parent sends it chunk t - above."""
    count = chunks or _own_chunks(shape)
    edges = _edges(shape)
    yield from _ways(edges, edges.child, edges.parent, edges.below, count, True)
    yield from _ways(edges, edges.parent, edges.child, edges.above, count, False)


def _ways(
    edges: Edges, source: np.ndarray, destination: np.ndarray, start: np.ndarray, chunks: int, adds: bool
) -> Iterator[Round]:
    """Each edge carries its chunks one by one from round `start` on. Rounds of the same edges share their arrays."""
    used = np.zeros(len(source), bool)
    for number in range(int(start.max()) + chunks):
        now = (start <= number) & (number < start + chunks)
        if not np.array_equal(now, used):
            used = now
            like = on_one_rail(source[used], destination[used], start[used], np.ones(int(used.sum()), int), adds)
        yield like._replace(first=edges.tree[used] * chunks + number - start[used])


def _own_chunks(shape: Shape) -> int:
    return CHUNKS_PER_HEIGHT * max(1, _height(shape))


def _nodes(shape: Shape) -> tuple[int, int]:
    """(GPUs of a node, nodes)."""
    return (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))


def _height(shape: Shape) -> int:
    """Edges of the longest way to a root, at most."""
    gpus, nodes = _nodes(shape)
    return gpus - 1 + (nodes - 1).bit_length()


def _edges(shape: Shape) -> Edges:
    gpus, nodes = _nodes(shape)
    every = [_tree(gpus, nodes, tree) for tree in range(2)]
    return Edges(*(np.concatenate(each) for each in zip(*every, strict=True)))


def _tree(gpus: int, nodes: int, tree: int) -> Edges:
    """The edges of one tree."""
    ranks = np.arange(gpus * nodes)
    node, place = ranks // gpus, ranks % gpus
    head = (gpus - 1) * tree  # the GPU that speaks for its node
    over = _parents(nodes, tree)[node]  # -1: the root
    towards = ranks - 1 if tree == 0 else ranks + 1
    parent = np.where(place != head, towards, np.where(over < 0, -1, over * gpus + head))
    depth, at = np.zeros(len(ranks), int), parent
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    height = np.zeros(len(ranks), int)
    for level in range(int(depth.max()), 0, -1):
        lower = np.flatnonzero(depth == level)
        np.maximum.at(height, parent[lower], height[lower] + 1)
    child = np.flatnonzero(parent >= 0)
    return Edges(child, parent[child], np.full(len(child), tree), height[child], depth[child] - 1)


def _parents(nodes: int, tree: int) -> np.ndarray:
    """The parent of each node, -1 for the root.  # (nodes,)"""
    node = np.arange(nodes)
    lowest = node & -node
    parent = (node ^ lowest) | (lowest << 1)
    parent = np.where(parent < nodes, parent, node ^ lowest)
    parent[0] = -1
    if tree == 0:
        return parent
    if nodes % 2:  # node v has the place of v - 1
        return np.roll(np.where(parent < 0, -1, (parent + 1) % nodes), 1)
    return np.where(parent < 0, -1, nodes - 1 - parent)[::-1]
