"""Hosts, switches and shaped links of a testbed in the kernel: made, and removed by name.

All switches lie in one namespace, each host in one of its own. Nothing is connected to the machine's own network, so
that addresses can't collide with any; two testbeds at a time don't meet either. Names tell who made them: what a killed
run has left behind is known by its process being gone, or whoever has started that.

Shaping, on both ends of each cable: a token bucket in which the connections to each peer have a queue of their own that
never drops and take turns, and CUBIC by route, which fills it. Queues that drop, or BBR, lose a third of the line rate
and drift from run to run; in one queue for all, a connection that starts late is starved by those that have filled it.
Acknowledgements go first: behind seconds of data, as no switch queues them, they hold up what comes the other way.

A lane of messages has addresses of its own, second ones of the same interfaces, so that its connections are told from
those of other lanes and each has its own limit.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.testbed.wiring import MOST_LANES, Cable

PREFIX = "gradsync"
NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-(\d+)-(switches|h\d+)")  # process, its start, testbed, part
BURST_BYTES = 128 * 1024  # that a link lets through at once
BURST, QUEUE = f"{BURST_BYTES // 1024}kb", "32mb"
# Bytes of the largest packet (GSO), and those that a connection sends before the next has its turn. With fewer a turn
# is a packet, whatever its size, and a lane with smaller ones gets less of the link. With the kernel's own 65536 a ring
# step of a small message waits for as much of the other lane's: steps of 100 kB took 1.49 times as long as alone, 1.28
# with these, where the shares of the link say 1.2. Below, processors work more, and no step takes less.
PACKET = QUANTUM = 16384
# TCP with no flag but ACK, in less than 64 bytes: what has data there has PSH too.
ACKNOWLEDGES = "match ip protocol 6 0xff match u8 0x10 0xff at 33 match u16 0x0000 0xffc0 at 2"
GUARANTEED_BITS = 100_000  # a second, of each connection; the rest is lent in turn
GUARANTEED = f"{GUARANTEED_BITS // 1000}kbit"
LEAST_BITS, MOST_BITS = 1e5, 1e11  # a second
LEAST_LATENCY, MOST_LATENCY = 1e-6, 1.0  # seconds
DELAYED = 500_000  # packets that a queue with a delay holds: of the smallest, as many bytes as one without
ALLOWED = Path("/proc/sys/user/max_net_namespaces")
GONE_SECONDS = 10.0
_numbers = count()


@dataclass(frozen=True)
class Testbed:
    """A testbed that is there. `on(host, command)` gives the command that runs `command` on a host."""

    name: str
    cables: tuple[Cable, ...]
    bits_per_second: float
    flow_bits_per_second: float | None = None
    latency_seconds: float = 0.0
    lanes: int = 1

    def namespace(self, host: int) -> str:
        """The network namespace of a host."""
        return f"{self.name}-h{host}"

    def on(self, host: int, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *command]

    def places(self) -> list[tuple[int, int]]:
        """By rank, its host and which of the ranks there it is."""
        there = {cable.host: cable.ranks for cable in self.cables}
        found = {rank: (host, place) for host, ranks in there.items() for place, rank in enumerate(ranks)}
        return [found[rank] for rank in sorted(found)]

    def switches(self) -> list[list[list[int]]]:
        """By rail, the ranks in each switch."""
        found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for cable in self.cables:
            for rail in cable.rails:
                found[rail][cable.switch] += cable.ranks
        return [[sorted(ranks) for ranks in found[rail].values()] for rail in sorted(found)]

    def interfaces(self) -> list[str]:
        """By rail, what it is called on every host."""
        found = {rail: cable.interface for cable in self.cables for rail in cable.rails}
        return [found[rail] for rail in sorted(found)]

    def address(self, host: int, rail: int | None) -> str:
        """Of a host's interface; rail None is the control network."""
        own = (cable for cable in self.cables if cable.host == host)
        return next(cable.address for cable in own if (rail in cable.rails if rail is not None else not cable.rails))


@contextmanager
def testbed(
    cables: Sequence[Cable],
    bits_per_second: float,
    flow_bits_per_second: float | None = None,  # noqa: PT028  no test, whatever its name
    latency_seconds: float = 0.0,  # noqa: PT028
    lanes: int = 1,  # noqa: PT028
) -> Iterator[Testbed]:
    """Make the hosts, switches and links; remove them at the end, with every process in them.

    `flow_bits_per_second`: the most that two hosts send each other over a link on a lane, as a single connection often
    gets less than the link has; None: all of it. `latency_seconds`: of each link, one way; a message crosses one up to
    the switch and one down. `lanes` that have their own connections; further ones share them.

    Raises InputError for a rate or latency that makes no sense, or where commands, privileges or a part of the kernel
    are missing, RunError if the kernel refuses.
    """
    refuse_rate(bits_per_second, flow_bits_per_second)
    refuse_latency(latency_seconds)
    refuse_lanes(lanes)
    refuse_commands()
    _refuse_number(1 + len({cable.host for cable in cables}))
    _tell_of(tuple(left_behind()))
    made = Testbed(new_name(), tuple(cables), bits_per_second, flow_bits_per_second, latency_seconds, lanes)
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        _make(made)
        yield made
    finally:
        remove([name for name in _present() if name.startswith(f"{made.name}-")])
        signal.signal(signal.SIGTERM, before)


def new_name() -> str:
    """Of a testbed of this process: no other has it."""
    pid = os.getpid()
    return f"{PREFIX}-{pid}-{lifeline.started(pid)}-{next(_numbers)}"


def _leave(*_: object) -> None:
    """Ended from outside: all is removed on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def refuse_rate(bits_per_second: float, flow_bits_per_second: float | None = None) -> None:
    """Raises InputError for a rate that a link, or a connection on it, can't be given."""
    if not LEAST_BITS <= bits_per_second <= MOST_BITS:
        raise InputError(f"rate {bits_per_second:g} bit/s: a link takes {LEAST_BITS:g} to {MOST_BITS:g}")
    if flow_bits_per_second is not None and not LEAST_BITS <= flow_bits_per_second <= bits_per_second:
        raise InputError(
            f"flow rate {flow_bits_per_second:g} bit/s: a connection takes {LEAST_BITS:g} to the {bits_per_second:g} "
            "of its link"
        )


def refuse_latency(seconds: float) -> None:
    """Raises InputError for a latency that a link can't be given."""
    if seconds and not LEAST_LATENCY <= seconds <= MOST_LATENCY:
        raise InputError(f"latency {seconds:g} s: a link takes none, or {LEAST_LATENCY:g} to {MOST_LATENCY:g}")


def refuse_lanes(lanes: int) -> None:
    """Raises InputError for a number of lanes that there are no addresses for."""
    if not 1 <= lanes <= MOST_LANES:
        raise InputError(f"{lanes} lanes: a testbed has 1 to {MOST_LANES}")


def refuse_commands() -> None:
    """Raises InputError if a command is missing."""
    for command in ("ip", "tc"):
        if not shutil.which(command):
            raise InputError(f"the command {command!r} is missing: install iproute2")


def _refuse_number(namespaces: int) -> None:
    """Raises InputError for more than the kernel allows this user."""
    allowed = int(ALLOWED.read_text()) if ALLOWED.exists() else namespaces
    if namespaces > allowed:
        raise InputError(
            f"testbed: {namespaces - 1} hosts and their switches are {namespaces} network namespaces, this machine "
            f"allows {allowed}: take fewer hosts, or raise user.max_net_namespaces with sysctl"
        )


@cache
def _tell_of(left: tuple[str, ...]) -> None:
    """Once in a process: what killed runs have left is in nobody's way, but it stays until somebody removes it."""
    if left:
        found = ", ".join(dict.fromkeys(each.rpartition("-")[0] for each in left))
        print(
            f"gradsync: killed runs have left testbeds behind ({found}): gradsync testbed clean removes them",
            file=sys.stderr,
            flush=True,
        )


def left_behind() -> list[str]:
    """Namespaces of testbeds whose maker is gone, or somebody that the maker should have ended with."""
    return [name for name in _present() if (found := NAME.fullmatch(name)) and not _lives(*found.groups()[:2])]


def end_makers(names: Sequence[str]) -> None:
    """End the makers of these testbeds that live on without their launcher."""
    for pid, started in {found.groups()[:2] for name in names if (found := NAME.fullmatch(name))}:
        if lifeline.started(int(pid)) == int(started):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)


def remove(names: Sequence[str]) -> None:
    """End every process in these namespaces, then remove them; what is gone already is no fault."""
    for name in names:
        _end_processes(name)
    for name in names:
        with suppress(RunError):
            _ip("netns", "del", name)


def _make(made: Testbed) -> None:
    switches = f"{made.name}-switches"
    hosts = sorted({cable.host for cable in made.cables})
    bridges = {switch: f"s{i}" for i, switch in enumerate(dict.fromkeys(cable.switch for cable in made.cables))}
    for name in (switches, *map(made.namespace, hosts)):
        _ip("netns", "add", name)
    if made.latency_seconds:
        _refuse_delay(switches, made)
    # commands of each namespace; the switches' come first, since they make both ends of a cable
    inside: dict[str, list[str]] = {switches: [], **{made.namespace(host): ["link set lo up"] for host in hosts}}
    shaping: dict[str, list[str]] = defaultdict(list)
    for bridge in bridges.values():
        inside[switches] += [f"link add {bridge} type bridge", f"link set {bridge} up"]
    for i, cable in enumerate(made.cables):
        at, port, end = made.namespace(cable.host), f"p{i}", cable.interface
        inside[switches] += [
            f"link add {port} type veth peer name {end} netns {at}",
            f"link set {port} gso_max_size {PACKET} master {bridges[cable.switch]} up",
        ]
        lanes = range(made.lanes if cable.rails else 1)
        addresses = [cable.on_lane(lane) for lane in lanes]
        inside[at] += [f"addr add {address}/24 dev {end} label {label}" for address, label in addresses]
        inside[at].append(f"link set {end} gso_max_size {PACKET} up")
        for address, _ in addresses:
            network = f"{address.rpartition('.')[0]}.0/24"
            inside[at].append(f"route change {network} dev {end} proto kernel scope link src {address} congctl cubic")
        if cable.rails:
            mates = [mate for mate in made.cables if mate.switch == cable.switch and mate.host != cable.host]
            peers = [mate.on_lane(lane)[0] for mate in mates for lane in lanes]
            shaping[at] += _shaped(end, "dst", peers, made)
            shaping[switches] += _shaped(port, "src", peers, made)
    for tool, commands in (("ip", inside), ("tc", shaping)):
        for name, lines in commands.items():
            _called(tool, "-n", name, "-batch", "-", text="\n".join(lines))


def _shaped(device: str, way: str, peers: Sequence[str], made: Testbed) -> Iterator[str]:
    """Commands of tc for what leaves `device`: a class for each address of a peer, and a first one for the rest.

    `way`: src or dst, where packets carry the peer's address.
    """
    link = f"{made.bits_per_second:.0f}bit"
    most = link if made.flow_bits_per_second is None else f"{made.flow_bits_per_second:.0f}bit"
    yield f"qdisc add dev {device} root handle 1: htb default 2"
    yield f"class add dev {device} parent 1: classid 1:1 htb rate {link} ceil {link} burst {BURST} cburst {BURST}"
    yield f"filter add dev {device} parent 1: protocol ip prio 1 u32 {ACKNOWLEDGES} flowid 1:2"
    for number, peer in enumerate(["", *peers], 2):
        own = f"prio {1 if peer else 0} rate {GUARANTEED} ceil {most} burst {BURST} cburst {BURST} quantum {QUANTUM}"
        yield f"class add dev {device} parent 1:1 classid 1:{number:x} htb {own}"
        yield f"qdisc add dev {device} parent 1:{number:x} {_queue(made)}"
        if peer:
            match = f"u32 match ip {way} {peer}/32"
            yield f"filter add dev {device} parent 1: protocol ip prio 2 {match} flowid 1:{number:x}"


def _queue(made: Testbed) -> str:
    """What the packets of a class wait in."""
    if made.latency_seconds:
        return f"netem limit {DELAYED} delay {made.latency_seconds * 1e6:.0f}us"
    return f"bfifo limit {QUEUE}"


def _refuse_delay(namespace: str, made: Testbed) -> None:
    """Raises InputError if no link can be given a latency; the namespace has nothing but its loopback yet."""
    try:
        _called("tc", "-n", namespace, "qdisc", "add", "dev", "lo", "root", *_queue(made).split())
        _called("tc", "-n", namespace, "qdisc", "del", "dev", "lo", "root")
    except RunError as error:
        raise InputError(
            f"latency {made.latency_seconds:g} s: this kernel can't delay packets (sch_netem is missing): leave the "
            f"latency out ({error})"
        ) from None


def _present() -> list[str]:
    if not shutil.which("ip"):
        return []
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if NAME.fullmatch(line.split()[0])]


def _end_processes(name: str) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline:
        try:
            pids = [int(pid) for pid in _ip("netns", "pids", name).split()]
        except RunError:  # the namespace is gone
            return
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _lives(pid: str, started: str) -> bool:
    return lifeline.started(int(pid)) == int(started) and not lifeline.orphaned(int(pid))


def _ip(*arguments: str, text: str = "") -> str:
    return _called("ip", *arguments, text=text)


def _called(*command: str, text: str = "") -> str:
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise RunError(f"testbed: {' '.join(command[:6])}: {said[0]}")
    return ended.stdout
