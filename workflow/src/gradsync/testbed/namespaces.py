"""Hosts, switches and shaped links of a testbed in the kernel: how they are made, and removed by name.

All switches lie in one namespace, each host in one of its own. Nothing is connected to the machine's own network, so
that addresses can't collide with any; two testbeds that exist at a time don't meet either. A name holds the process
that made it: a namespace is left over from a killed run if that process is gone, or the one that started it.

Links are shaped on both ends of each cable: by a token bucket in which the connections to each other host have a queue
of their own that never drops and take turns, and with CUBIC by route, which fills it. Queues that drop, or BBR, lose a
third of the line rate and drift from run to run; in one queue for all, a connection that starts late is starved by
those that have filled it. Acknowledgements go first: behind seconds of data, as no switch queues them, they hold up
what comes the other way.

A lane of messages has addresses of its own, second ones of the same interfaces, so that its connections can be told
from those of other lanes and each has its own limit.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
# Bytes of the largest packet (GSO), and bytes that a connection sends before the next has its turn. With fewer of the
# latter a turn is a packet, whatever its size, and a lane with smaller packets gets less of the link. With the kernel's
# own 65536 a ring step of a small message waits for as much of the other lane's: steps of 100 kB took 1.49 times as
# long as alone, 1.28 times with these, while the shares of the link say 1.2. With smaller packets processors work more,
# and no step takes less.
PACKET = QUANTUM = 16384
# TCP with no flag but ACK, in less than 64 bytes: what has data there has PSH too.
ACKNOWLEDGES = "match ip protocol 6 0xff match u8 0x10 0xff at 33 match u16 0x0000 0xffc0 at 2"
GUARANTEED_BITS = 100_000  # per second, of each connection; the rest is lent in turn
GUARANTEED = f"{GUARANTEED_BITS // 1000}kbit"
LEAST_BITS, MOST_BITS = 1e5, 1e11  # per second
LEAST_LATENCY, MOST_LATENCY = 1e-6, 1.0  # seconds
DELAYED = 500_000  # packets that a queue with a delay holds: of the smallest, as many bytes as one without
ALLOWED = Path("/proc/sys/user/max_net_namespaces")
MADE = Path("/run/netns")  # where `ip netns` keeps them, by name
CLONE_NEWNET = 0x40000000  # setns(2)
GONE_SECONDS = 10.0
ANSWER_SECONDS = 60.0  # in which a command of the system does what it is asked
_numbers = count()


@dataclass(frozen=True)
class Testbed:
    """A testbed that exists. `on(host, command)` gives the command that runs `command` on a host."""

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
        namespace = self.namespace(host)
        # The shell is in the namespace when it looks for the name: a command that came too late for `remove` ends here.
        still_there = ["sh", "-c", 'test -e "$0" && exec "$@"', str(MADE / namespace)]
        return ["ip", "netns", "exec", namespace, *still_there, *command]

    def places(self) -> list[tuple[int, int]]:
        """By rank, its host and its place among the ranks of that host."""
        ranks_of = {cable.host: cable.ranks for cable in self.cables}
        place_of = {rank: (host, place) for host, ranks in ranks_of.items() for place, rank in enumerate(ranks)}
        return [place_of[rank] for rank in sorted(place_of)]

    @property
    def addresses(self) -> int:
        """How many an interface has: one for each rank of a host on each lane, so that their connections are apart."""
        return self.lanes * max(len(cable.ranks) for cable in self.cables)

    def switches(self) -> list[list[list[int]]]:
        """By rail, the ranks in each switch."""
        ranks_in: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for cable in self.cables:
            for rail in cable.rails:
                ranks_in[rail][cable.switch] += cable.ranks
        return [[sorted(ranks) for ranks in ranks_in[rail].values()] for rail in sorted(ranks_in)]

    def interfaces(self) -> list[str]:
        """By rail, the name of its interface, which is the same on every host."""
        name_of = {rail: cable.interface for cable in self.cables for rail in cable.rails}
        return [name_of[rail] for rail in sorted(name_of)]

    def address(self, host: int, rail: int | None) -> str:
        """The address of a host's interface on a rail; None is the control network."""
        on_host = (cable for cable in self.cables if cable.host == host)
        return next(
            cable.address for cable in on_host if (rail in cable.rails if rail is not None else not cable.rails)
        )


def enter(namespace: str) -> None:
    """Have this thread, and those that it starts, run in a network namespace; raises OSError if they can't."""
    library = ctypes.CDLL(None, use_errno=True)
    with (MADE / namespace).open() as file:
        if library.setns(file.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    (MADE / namespace).stat()  # raises if the namespace is being removed, whose processes are not looked for again


@contextmanager
def testbed(
    cables: Sequence[Cable],
    bits_per_second: float,
    flow_bits_per_second: float | None = None,  # noqa: PT028  no test, whatever its name
    latency_seconds: float = 0.0,  # noqa: PT028
    lanes: int = 1,  # noqa: PT028
) -> Iterator[Testbed]:
    """Make the hosts, switches and links; remove them at the end, with every process in them.

    `flow_bits_per_second`: the most that a host sends to one rank of another over a link on a lane, as a single
    connection often gets less than the link has; None: all of it. `latency_seconds`: of each link, one way; a message
    crosses one up to the switch and one down. `lanes` that have their own connections; further ones share them.

    Raises InputError for a rate or latency that makes no sense, or if commands, privileges or a part of the kernel
    are missing, RunError if the kernel refuses.
    """
    refuse_rate(bits_per_second, flow_bits_per_second)
    refuse_latency(latency_seconds)
    refuse_lanes(lanes)
    refuse_commands()
    _refuse_number(1 + len({cable.host for cable in cables}))
    _warn_of_leftovers(tuple(left_behind()))
    network = Testbed(new_name(), tuple(cables), bits_per_second, flow_bits_per_second, latency_seconds, lanes)
    refuse_lanes(lanes, network.addresses // lanes)
    before = signal.signal(signal.SIGTERM, _leave)
    late: list[int] = []
    try:
        _make(network)
        yield network
    finally:
        # it must not end half way, whoever is in a hurry
        signal.signal(signal.SIGTERM, lambda number, _: late.append(number))
        remove([name for name in _present() if name.startswith(f"{network.name}-")])
        signal.signal(signal.SIGTERM, before)
        if late:
            _leave()


def new_name() -> str:
    """A name for a testbed of this process that no other testbed has."""
    pid = os.getpid()
    return f"{PREFIX}-{pid}-{lifeline.started(pid)}-{next(_numbers)}"


def _leave(*_: object) -> None:
    """Handle SIGTERM by an exception, so that the testbed is removed on the way out."""
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


def refuse_lanes(lanes: int, ranks_a_host: int = 1) -> None:
    """Raises InputError for a number of lanes that there are no addresses for."""
    if not 1 <= lanes <= MOST_LANES:
        raise InputError(f"{lanes} lanes: a testbed has 1 to {MOST_LANES}")
    if lanes * ranks_a_host > MOST_LANES:
        raise InputError(
            f"{lanes} lanes of {ranks_a_host} ranks on a host: a testbed has {MOST_LANES} of both together at most"
        )


def refuse_commands() -> None:
    """Raises InputError if a command is missing."""
    for command in ("ip", "tc"):
        if not shutil.which(command):
            raise InputError(f"the command {command!r} is missing: install iproute2")


def _refuse_number(namespaces: int) -> None:
    """Raises InputError for more namespaces than the kernel allows this user."""
    allowed = int(ALLOWED.read_text()) if ALLOWED.exists() else namespaces
    if namespaces > allowed:
        raise InputError(
            f"testbed: {namespaces - 1} hosts and their switches are {namespaces} network namespaces, this machine "
            f"allows {allowed}: take fewer hosts, or raise user.max_net_namespaces with sysctl"
        )


@cache
def _warn_of_leftovers(left: tuple[str, ...]) -> None:
    """Warn, once per process: what killed runs have left is in nobody's way, but stays until somebody removes it."""
    if left:
        names = ", ".join(dict.fromkeys(each.rpartition("-")[0] for each in left))
        print(
            f"gradsync: killed runs have left testbeds behind ({names}): gradsync testbed clean removes them",
            file=sys.stderr,
            flush=True,
        )


def left_behind() -> list[str]:
    """Namespaces of testbeds whose maker is gone, or a process that the maker should have ended with."""
    return [name for name in _present() if (match := NAME.fullmatch(name)) and not _lives(*match.groups()[:2])]


def end_makers(names: Sequence[str]) -> None:
    """End the makers of these testbeds that live on without their launcher."""
    for pid, started in {match.groups()[:2] for name in names if (match := NAME.fullmatch(name))}:
        if lifeline.started(int(pid)) == int(started):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)


def remove(names: Sequence[str]) -> None:
    """End every process in these namespaces, and remove them; it is no fault if one is gone already.

    Processes are ended before a namespace loses its name, by which those that are left can be found if this process is
    killed, and after it: a process that was starting can have entered in between, and none enters later.
    """
    with ExitStack() as stack:
        held = set()  # the kernel gives the number of a namespace to another one only when nobody holds it
        for name in names:
            with suppress(FileNotFoundError):
                file = stack.enter_context((MADE / name).open())
                held.add(_identity(file.fileno()))
        _end_processes(held)
        for name in names:
            with suppress(RunError):
                _ip("netns", "del", name)
        _end_processes(held)


def _make(network: Testbed) -> None:
    switches = f"{network.name}-switches"
    hosts = sorted({cable.host for cable in network.cables})
    bridges = {switch: f"s{i}" for i, switch in enumerate(dict.fromkeys(cable.switch for cable in network.cables))}
    for name in (switches, *map(network.namespace, hosts)):
        _ip("netns", "add", name)
    if network.latency_seconds:
        _refuse_delay(switches, network)
    # commands of each namespace; the switches' come first, since they make both ends of a cable
    inside: dict[str, list[str]] = {switches: [], **{network.namespace(host): ["link set lo up"] for host in hosts}}
    shaping: dict[str, list[str]] = defaultdict(list)
    for bridge in bridges.values():
        inside[switches] += [f"link add {bridge} type bridge", f"link set {bridge} up"]
    for i, cable in enumerate(network.cables):
        namespace, port, end = network.namespace(cable.host), f"p{i}", cable.interface
        inside[switches] += [
            f"link add {port} type veth peer name {end} netns {namespace}",
            f"link set {port} gso_max_size {PACKET} master {bridges[cable.switch]} up",
        ]
        lanes = range(network.addresses if cable.rails else 1)
        addresses = [cable.on_lane(lane) for lane in lanes]
        inside[namespace] += [f"addr add {address}/24 dev {end} label {label}" for address, label in addresses]
        inside[namespace].append(f"link set {end} gso_max_size {PACKET} up")
        for address, _ in addresses:
            subnet = f"{address.rpartition('.')[0]}.0/24"
            inside[namespace].append(
                f"route change {subnet} dev {end} proto kernel scope link src {address} congctl cubic"
            )
        if cable.rails:
            mates = [mate for mate in network.cables if mate.switch == cable.switch and mate.host != cable.host]
            peers = [mate.on_lane(lane)[0] for mate in mates for lane in lanes]
            shaping[namespace] += _shaped(end, "dst", peers, network)
            shaping[switches] += _shaped(port, "src", peers, network)
    for tool, commands in (("ip", inside), ("tc", shaping)):
        for name, lines in commands.items():
            _call(tool, "-n", name, "-batch", "-", text="\n".join(lines))


def _shaped(device: str, way: str, peers: Sequence[str], network: Testbed) -> Iterator[str]:
    """Commands of tc for what leaves `device`: a class for each address of a peer, and a first one for the rest.

    `way` is src or dst: the field in which packets carry the peer's address.
    """
    link = f"{network.bits_per_second:.0f}bit"
    most = link if network.flow_bits_per_second is None else f"{network.flow_bits_per_second:.0f}bit"
    yield f"qdisc add dev {device} root handle 1: htb default 2"
    yield f"class add dev {device} parent 1: classid 1:1 htb rate {link} ceil {link} burst {BURST} cburst {BURST}"
    yield f"filter add dev {device} parent 1: protocol ip prio 1 u32 {ACKNOWLEDGES} flowid 1:2"
    for number, peer in enumerate(["", *peers], 2):
        options = (
            f"prio {1 if peer else 0} rate {GUARANTEED} ceil {most} burst {BURST} cburst {BURST} quantum {QUANTUM}"
        )
        yield f"class add dev {device} parent 1:1 classid 1:{number:x} htb {options}"
        yield f"qdisc add dev {device} parent 1:{number:x} {_queue(network)}"
        if peer:
            match = f"u32 match ip {way} {peer}/32"
            yield f"filter add dev {device} parent 1: protocol ip prio 2 {match} flowid 1:{number:x}"


def _queue(network: Testbed) -> str:
    """The queue in which the packets of a class wait, in words of tc."""
    if network.latency_seconds:
        return f"netem limit {DELAYED} delay {network.latency_seconds * 1e6:.0f}us"
    return f"bfifo limit {QUEUE}"


def _refuse_delay(namespace: str, network: Testbed) -> None:
    """Raises InputError if no link can be given a latency; the namespace has nothing but its loopback yet."""
    try:
        _call("tc", "-n", namespace, "qdisc", "add", "dev", "lo", "root", *_queue(network).split())
        _call("tc", "-n", namespace, "qdisc", "del", "dev", "lo", "root")
    except RunError as error:
        raise InputError(
            f"latency {network.latency_seconds:g} s: this kernel can't delay packets (sch_netem is missing): leave the "
            f"latency out ({error})"
        ) from None


def _present() -> list[str]:
    if not shutil.which("ip"):
        return []
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if NAME.fullmatch(line.split()[0])]


def _end_processes(namespaces: Container[tuple[int, int]]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while (pids := list(_inside(namespaces))) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _inside(namespaces: Container[tuple[int, int]]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if _identity(process / "ns" / "net") in namespaces:
                yield int(process.name)


def _identity(namespace: int | Path) -> tuple[int, int]:
    """What tells a namespace from others, of an open file of it or a path."""
    status = os.stat(namespace)
    return status.st_dev, status.st_ino


def _lives(pid: str, started: str) -> bool:
    return lifeline.started(int(pid)) == int(started) and not lifeline.orphaned(int(pid))


def _ip(*arguments: str, text: str = "") -> str:
    return _call("ip", *arguments, text=text)


def _call(*command: str, text: str = "") -> str:
    output, complaint = asked(command, text)
    if complaint:
        raise RunError(f"testbed: {' '.join(command[:6])}: {complaint}")
    return output


def asked(command: Sequence[str], text: str = "") -> tuple[str, str]:
    """What a command of the system prints, and why it did not do what it is asked; empty if it did."""
    try:
        ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {ANSWER_SECONDS:g} s"
    complaints = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
    return ended.stdout, complaints[0] if ended.returncode else ""
