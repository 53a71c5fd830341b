"""Peers of the schemes: torch's own ways to train in parallel, on the same ranks and samples. One kind a file."""

from __future__ import annotations

from typing import Any, get_args

from gradsync.configuration.peers import Kind, Peer
from gradsync.runtime.peers.ddp import StockDDP
from gradsync.runtime.peers.stock import Stock

KINDS: tuple[Kind, ...] = get_args(Kind)


def make(peer: Peer, *parts: Any, **steps: Any) -> Stock:
    """The contender that a peer stands for; further arguments are those of `Stock`. Collective."""
    return _class(peer.kind)(peer, *parts, **steps)


def _class(kind: Kind) -> type[Stock]:
    # imported for launches that have them alone: what they are made of takes as long to import as torch
    if kind == "zero":
        from gradsync.runtime.peers.zero import Zero

        return Zero
    if kind == "fsdp2":
        from gradsync.runtime.peers.fsdp2 import FullyShard

        return FullyShard
    return StockDDP
