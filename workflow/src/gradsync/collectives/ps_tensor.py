"""Parameter servers that each hold whole tensors, as TensorFlow places them: one after the other, in turn (BM-E08).

Every rank is a worker and a server. A message goes to one server, the next message to the next: servers of large
tensors have more to do than the others, and a message has the link of one server only.
"""

from __future__ import annotations

from gradsync.collectives.ps_central import pieces, rounds

TOPOLOGY, POSTCONDITION, ROOTED = "switch", "sum", True
__all__ = ["POSTCONDITION", "ROOTED", "TOPOLOGY", "pieces", "rounds", "server"]


def server(message: int, ranks: int) -> int:
    """Round robin, as TensorFlow's replica_device_setter."""
    return message % ranks
