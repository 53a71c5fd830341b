"""Parts of one chip: each part has memory of its own and reads that of any other over the chip's mesh."""

from __future__ import annotations

from dataclasses import dataclass

from gradsync.topologies import Equipment
from gradsync.topologies.switch import Switch


@dataclass(frozen=True)
class Numa(Switch):
    """`n` parts; the mesh never blocks: a part is bounded by how much it can write, and read, per second."""

    kinds = ("mesh",)

    def equipment(self) -> Equipment:
        """It comes with the chip."""
        return Equipment(0, 0, 0)


TOPOLOGY = Numa
