"""Peers of the schemes: torch's own ways to train in parallel, on the same ranks and samples. One kind a file."""

from __future__ import annotations

from typing import Any

from gradsync.configuration.peers import Kind, Peer
from gradsync.runtime.peers.ddp import StockDDP
from gradsync.runtime.peers.fsdp2 import FullyShard
from gradsync.runtime.peers.stock import Stock
from gradsync.runtime.peers.zero import Zero

KINDS: dict[Kind, type[Stock]] = {"ddp": StockDDP, "zero": Zero, "fsdp2": FullyShard}


def make(peer: Peer, *parts: Any, **steps: Any) -> Stock:
    """The contender that a peer stands for; further arguments are those of `Stock`. Collective."""
    return KINDS[peer.kind](peer, *parts, **steps)
