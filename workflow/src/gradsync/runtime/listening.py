"""The socket at which rank 0 listens for the others: at the address that they know, and at no other one of its host.

torch's store alone would listen on all of them.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

MOST_AT_ONCE = 2048  # ranks that connect before they are accepted


def at(host: str, port: int) -> socket.socket | None:
    """A socket that listens at the one address of `host`; None if only listening at all addresses is sure to be right.

    That is so for a name that other hosts may resolve to another address (it has several, or loopback, as some systems
    call themselves), and for one that reaches this host by a detour and is no address of it.

    Raises OSError if the port is taken.
    """
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None  # whoever connects says so
    addresses = {str(place[0]): family for family, *_, place in entries}
    if host == "localhost":
        addresses = {"127.0.0.1": socket.AF_INET}
    if len(addresses) > 1:
        return None
    [(address, family)] = addresses.items()
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback and host not in ("localhost", address):
        return None
    try:
        return socket.create_server((address, port), family=family, backlog=MOST_AT_ONCE)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
