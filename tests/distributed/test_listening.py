"""Rank 0 listens at the address that ranks know, if that is the same one for all of them."""

from __future__ import annotations

import socket

import pytest
import torch.distributed as dist

from gradsync.runtime import listening
from gradsync.runtime.group import process_group


def test_a_store_that_torchrun_holds_is_not_made_again(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    for name, value in {**environment, "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, value)
    with process_group() as place:
        assert place == (0, 1)


def resolving(monkeypatch, *addresses: str) -> None:
    """Have every name resolve to these addresses."""
    meant = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: meant)


@pytest.mark.parametrize(
    ("host", "means", "bound"),
    [
        ("127.0.0.2", ["127.0.0.2"], "127.0.0.2"),
        ("localhost", ["127.0.0.1", "127.0.0.9"], "127.0.0.1"),
        ("n1", ["127.0.1.1"], None),  # what Debian calls itself: elsewhere n1 is another address
        ("n1", ["127.0.0.1", "127.0.0.2"], None),
        ("service", ["203.0.113.7"], None),  # of no host
    ],
)
def test_a_name_that_may_be_another_address_elsewhere_narrows_nothing(monkeypatch, host, means, bound):
    resolving(monkeypatch, *means)
    listener = listening.at(host, 0)
    assert (listener and listener.getsockname()[0]) == bound
    if listener:
        listener.close()


def test_a_taken_port_is_an_error_and_a_name_that_is_none_is_not_ours_to_tell():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listening.at("127.0.0.1", taken.getsockname()[1])
    assert listening.at("nowhere.invalid", 1) is None
