"""Measures one link from end to end: rate and start-up of a connection, by a program at each end with plain sockets.

python -m gradsync.testbed.probe serve ADDRESS                prints the port, answers one connection
python -m gradsync.testbed.probe send ADDRESS PORT BYTES N    prints JSON: seconds of N transfers, of N round trips
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

CHUNK = 1 << 18
HEADER = struct.Struct("!Q")


def serve(address: str) -> None:
    """Read messages of a stated length, answer each with a byte, until the other end closes."""
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        listener.settimeout(60)
        connection, _ = listener.accept()
    buffer = memoryview(bytearray(CHUNK))
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while header := connection.recv(HEADER.size, socket.MSG_WAITALL):
            (left,) = HEADER.unpack(header)
            while left:
                left -= connection.recv_into(buffer[: min(left, CHUNK)])
            connection.sendall(b".")


def send(address: str, port: int, size: int, times: int) -> dict[str, list[float]]:
    """Seconds of `times` transfers of `size` bytes after a first one that warms up, and of as many round trips."""
    payload = memoryview(bytearray(size))
    seconds: dict[str, list[float]] = {"transfer_seconds": [], "round_trip_seconds": []}
    with socket.create_connection((address, port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for key, what in (("transfer_seconds", payload), ("round_trip_seconds", payload[:1])):
            for _ in range(times + 1):
                start = time.perf_counter()
                connection.sendall(HEADER.pack(len(what)))
                connection.sendall(what)
                connection.recv(1)
                seconds[key].append(time.perf_counter() - start)
            del seconds[key][0]
    return seconds


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(json.dumps(send(sys.argv[2], *map(int, sys.argv[3:]))))
