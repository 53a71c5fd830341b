"""The cache of a launch: one for the ranks of each node, which goes with the launch; copies on the local disk stay."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from gradsync.configuration.training import Cached
from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.lifetimes import leftovers
from gradsync.runtime import hosts
from gradsync.runtime.data.cache import DataCache
from gradsync.runtime.data.cache.store import Store

MEBIBYTE = 2**20
SHARE_OF_DISK = 0.5  # of what is free, where no bound is given
SHARE_OF_MEMORY = 0.25


@contextmanager
def opened(options: Cached, rank: int) -> Iterator[DataCache | None]:
    """The cache that the options want; None if they want none. Collective over all ranks.

    The first rank of a node makes the memory that they share, and removes it at the end; of a killed one, the next run
    on this machine does. A node whose memory can't be had goes without.
    """
    if options.data_cache is None:
        yield None
        return
    nodes = hosts.nodes()
    first = nodes.index(nodes[rank])
    with ExitStack() as kept:
        own = ("", 0.0)
        if rank == first and options.data_cache != "files":
            try:
                own = str(kept.enter_context(leftovers.temporary_folder(leftovers.MEMORY))), _memory_bytes(options)
            except InputError as error:
                print(f"warning: no data cache in memory: {error}", file=sys.stderr, flush=True)
        folder, most = hosts.everyones(own)[first]
        memory = Store(Path(folder), most, "the data cache in memory") if folder else None
        copies = _copies(options)
        if copies is not None and rank == first:
            copies.prepare()
        yield DataCache(memory, copies, options.data_cache == "reduced")


def counted(cache: DataCache | None) -> dict[str, float]:
    """The sums over all ranks of what they have counted, as `data_cache_memory_hits`, ..; collective over all ranks."""
    total: Counter[str] = Counter()
    for counts in hosts.everyones({} if cache is None else cache.counts()):
        total.update(counts)
    return {f"data_cache_{key}": count for key, count in sorted(total.items())}


def _memory_bytes(options: Cached) -> float:
    if options.data_cache_memory is not None:
        return float(options.data_cache_memory * MEBIBYTE)
    free = disk.room(leftovers.MEMORY) or 0.0
    return min(SHARE_OF_DISK * free, SHARE_OF_MEMORY * psutil.virtual_memory().available)


def _copies(options: Cached) -> Store | None:
    if options.data_cache_folder is None:
        return None
    folder = Path(options.data_cache_folder).expanduser()
    most = options.data_cache_disk
    bound = SHARE_OF_DISK * (disk.room(folder) or 0.0) if most is None else float(most * MEBIBYTE)
    return Store(folder, bound, "the data cache on disk")
