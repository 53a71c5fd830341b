"""Collectives of the backend's own (Gloo, NCCL): one call of torch.distributed for each buffer."""

from __future__ import annotations

import torch
import torch.distributed as dist

from gradsync.plan import Collective, piece


def run(
    op: Collective,
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    ranks: tuple[int, ...],
    rank: int,
    group: dist.ProcessGroup,
    root: int,
) -> None:
    """Run `op` on `rank`, one of the `ranks` of `group`: from `reads` into `writes`, which may be the same memory.

    `root`: the rank whose values a broadcast sends, and that a reduce sums on.
    """
    for source, target in zip(reads, writes, strict=True):
        if op.kind in ("all_reduce", "broadcast", "reduce"):
            if target.data_ptr() != source.data_ptr():
                target.copy_(source)
            if op.kind == "all_reduce":
                dist.all_reduce(target, group=group)
            elif op.kind == "reduce":
                dist.reduce(target, root, group=group)
            else:
                dist.broadcast(target, root, group=group)
        elif op.kind == "all_to_all":
            copied = source.clone() if target.data_ptr() == source.data_ptr() else source
            dist.all_to_all_single(target, copied, group=group)
        else:
            _exchange_pieces(op.kind, source, target, len(ranks), ranks.index(rank), group)


def _exchange_pieces(
    kind: str, source: torch.Tensor, target: torch.Tensor, count: int, place: int, group: dist.ProcessGroup
) -> None:
    """Reduce-scatter or all-gather of `count` pieces that may differ by an element: they are padded to the longest.

    `place` is the piece of this rank.
    """
    bounds = [piece(0, len(source), i, count) for i in range(count)]
    longest = max(stop - start for start, stop in bounds)
    padded = [source.new_zeros(longest) for _ in bounds]
    own_piece = source.new_zeros(longest)
    own_start, own_stop = bounds[place]
    if kind == "reduce_scatter":
        for pad, (start, stop) in zip(padded, bounds, strict=True):
            pad[: stop - start] = source[start:stop]
        dist.reduce_scatter(own_piece, padded, group=group)
        target[own_start:own_stop] = own_piece[: own_stop - own_start]
    else:
        own_piece[: own_stop - own_start] = source[own_start:own_stop]
        dist.all_gather(padded, own_piece, group=group)
        for pad, (start, stop) in zip(padded, bounds, strict=True):
            target[start:stop] = pad[: stop - start]
