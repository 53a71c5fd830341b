"""Work of others on the cores of a launch: the time that the system counts as busy there, less what the ranks used.

Time that a hypervisor gave to other machines counts too. Without /proc/stat nothing is known.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from gradsync.runtime.hosts import gathered_by_node
from gradsync.statistics.quiet import KEY

STAT = Path("/proc/stat")
LEAST_SECONDS = 1.0  # the system counts in hundredths of a second
IDLE = (3, 4)  # columns of a core: idle, and idle until a disk answers


class OtherWork:
    """A watch over the cores that this rank may use, from when it is made."""

    def __init__(self) -> None:
        self.cores = sorted(os.sched_getaffinity(0))
        self.begun = self._now()

    def share(self) -> dict[str, float]:
        """`{"other_work": share}`, 0 to 1, of the node with the most; empty if it is not known.

        Collective over all ranks.
        """
        seconds, own_seconds, busy = (now - then for now, then in zip(self._now(), self.begun, strict=True))
        return most_of_others(gathered_by_node((self.cores, seconds, own_seconds, busy)))

    def _now(self) -> tuple[float, float, float]:
        """Three times in seconds: now, processor time that this process used, and time that these cores were busy."""
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_seconds = sum(each.ru_utime + each.ru_stime for each in usage)
        return time.monotonic(), own_seconds, busy_seconds(STAT.read_text() if STAT.is_file() else "", self.cores)


def busy_seconds(text: str, cores: list[int]) -> float:
    """Seconds since its start that the system has counted as busy on these cores."""
    wanted, ticks = {f"cpu{core}" for core in cores}, 0
    for line in text.splitlines():
        name, *columns = line.split()
        if name in wanted:
            # guests are in the first two columns already
            ticks += sum(int(count) for place, count in enumerate(columns[:8]) if place not in IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def most_of_others(nodes: dict[str, list[tuple[list[int], float, float, float]]]) -> dict[str, float]:
    """The largest share of the nodes, each with its ranks' (cores, seconds, own seconds, busy seconds)."""
    shares = []
    for ranks in nodes.values():
        cores, used = set[int](), 0.0
        for own_cores, seconds, own_seconds, busy in ranks:
            if seconds < LEAST_SECONDS or not busy:
                return {}
            cores.update(own_cores)
            used += own_seconds / seconds
        # ranks of one node that may use the same cores have seen the same work there
        each = {tuple(own_cores): busy / seconds for own_cores, seconds, _, busy in ranks}
        shares.append(max(0.0, sum(each.values()) - used) / len(cores))
    return {KEY: round(max(shares), 4)} if shares else {}
