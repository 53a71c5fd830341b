"""Bells between ranks of one machine: a rank tells another one that memory may be read, or that it has read it.

A bell is a byte over a Unix socket. A rank that waits for one sleeps, learns at once that its peer is gone, and sees
all that the peer wrote before it rang. The sockets have no files, so that none is left behind.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections import Counter
from collections.abc import Sequence

from gradsync.errors import RunError
from gradsync.runtime.hosts import everyones

READY, TAKEN = b"r", b"t"
_RANK, _CREDENTIALS = struct.Struct("i"), struct.Struct("3i")


class Bells:
    """Of this rank and each other one of `ranks`, who are on one machine. Collective over all ranks, of which some may
    be none of these.

    A rank waits for a bell `seconds` at most. Raises RunError if one of them can't be reached.
    """

    def __init__(self, rank: int, ranks: Sequence[int], seconds: float):
        self.peers: dict[int, socket.socket] = {}
        self.rung: dict[int, Counter[bytes]] = {each: Counter() for each in ranks}  # that nobody has waited for
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            address = f"\0gradsync-{secrets.token_hex(16)}"
            listener.bind(address)
            listener.listen(max(1, len(ranks)))
            listener.settimeout(seconds)
            addresses = everyones(address)
            others = [each for each in ranks if rank in ranks]
            try:
                for peer in (each for each in others if each < rank):
                    self.peers[peer] = _connected(addresses[peer], rank, seconds)
                for _ in (each for each in others if each > rank):
                    peer, connection = _accepted(listener, seconds)
                    self.peers[peer] = connection
            except OSError as error:
                self.close()
                raise RunError(f"rank {rank}: no bell to the other ranks of this machine: {error}") from None

    def ring(self, peer: int, bell: bytes) -> None:
        """Ring at a peer; it need not listen. Raises RunError if it is gone."""
        try:
            self.peers[peer].sendall(bell)
        except OSError:
            raise RunError(f"rank {peer} is gone") from None

    def wait(self, peer: int, bell: bytes) -> None:
        """Block until the peer has rung so once more; raises RunError if it is gone, or does not ring in time."""
        rung = self.rung[peer]
        while not rung[bell]:
            try:
                heard = self.peers[peer].recv(64)
            except TimeoutError:
                raise RunError(f"rank {peer} is there and does nothing: timed out") from None
            except OSError:
                heard = b""
            if not heard:
                raise RunError(f"rank {peer} is gone")
            rung.update(heard[i : i + 1] for i in range(len(heard)))
        rung[bell] -= 1

    def close(self) -> None:
        """Close all connections."""
        for connection in self.peers.values():
            connection.close()
        self.peers.clear()


def _connected(address: str, rank: int, seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    connection.connect(address)
    connection.sendall(_RANK.pack(rank))
    return connection


def _accepted(listener: socket.socket, seconds: float) -> tuple[int, socket.socket]:
    """(rank, connection) of the next rank that connects; other users' programs are sent away."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(seconds)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] == os.geteuid():
            (rank,) = _RANK.unpack(connection.recv(_RANK.size, socket.MSG_WAITALL))
            return rank, connection
        connection.close()
