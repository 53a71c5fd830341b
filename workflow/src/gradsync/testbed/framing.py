"""What the links of a testbed can carry of messages at most: their rate less the headers of packets, and bursts.

These are constants, not measurements: transfers of 16 MiB got 95.6 % of a link, which is what the same packets leave
with TCP's time stamps (1448 of 1514 bytes). A hard bound assumes packets without them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gradsync import topologies
from gradsync.engine.bounds import Links
from gradsync.errors import InputError
from gradsync.files.problems import first_problem
from gradsync.testbed.description import Description
from gradsync.testbed.namespaces import BURST_BYTES, GUARANTEED_BITS, PACKET

MTU = 1500  # bytes of a packet, of a veth pair; larger ones (GSO) are charged the headers of as many packets
# Bytes of headers without options. The shaper does not see a frame's preamble, checksum and gap (24 bytes): they cost
# nothing on a testbed, while on a wire they do.
ETHERNET, IPV4, TCP = 14, 20, 20
PAYLOAD = (MTU - IPV4 - TCP) / (MTU + ETHERNET)


def links(description: Description, ranks: int) -> Links:
    """The links of a host with most of them, each at its nominal rate.

    A link lets through a full token bucket at once, and so does the guaranteed rate of each connection on it: those of
    every lane to every host in the same switch, and that of all else; and one packet may be on its way.
    """
    cables = [cable for cable in description.cables(ranks) if cable.rails]
    hosts_in = Counter(cable.switch for cable in cables)
    rate: dict[int, float] = defaultdict(float)
    burst_bytes: dict[int, float] = defaultdict(float)
    for cable in cables:
        connections = (hosts_in[cable.switch] - 1) * description.lanes + 1
        rate[cable.host] += max(description.bits_per_second, connections * GUARANTEED_BITS) / 8
        burst_bytes[cable.host] += (1 + connections) * BURST_BYTES + PACKET
    ranks_per_node = topologies.parse(description.topology, ranks).ranks_a_node or 1
    return Links(PAYLOAD * max(rate.values()), PAYLOAD * max(burst_bytes.values()), ranks_per_node)


def links_of(description: Mapping[str, Any], ranks: int) -> Links:
    """The same from what a result records of its testbed; raises InputError if that describes none."""
    try:
        return links(Description.model_validate(description), ranks)
    except ValidationError as error:
        raise InputError(f"testbed of a result: not a testbed: {first_problem(error)}") from None
