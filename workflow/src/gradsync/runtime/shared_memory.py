"""Arrays that ranks of one machine share, in files that live in memory: one for all ranks, or one of each rank.

A file has a name only until all ranks have mapped it, so that nothing is left of ranks that are killed later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import IO

import torch
import torch.distributed as dist

from gradsync.errors import InputError
from gradsync.lifetimes import leftovers
from gradsync.runtime.fabric import fabric
from gradsync.runtime.hosts import everyones, nodes


def one_for_all(elements: int, kind: torch.dtype, rank: int) -> tuple[torch.Tensor, IO[bytes]]:
    """An array of zeros for all ranks, and its file as this rank has opened it. Collective over all ranks.

    Raises InputError on all ranks if there is no room for it.
    """
    handle, paths = _files(elements * kind.itemsize if rank == 0 else None)
    file = open(paths[0], "rb")  # noqa: SIM115  the caller's, to lock with
    array = _mapped(paths[0], elements, kind)
    _unnamed(handle, paths[rank])
    return array, file


def one_each(elements: int, kind: torch.dtype, rank: int, ranks: Sequence[int]) -> dict[int, torch.Tensor]:
    """An array of zeros of each of `ranks`, which are those that this rank shares memory with. Collective over all.

    The memory of an array is taken by the rank that it belongs to: near the cores that this rank is bound to.

    Raises InputError on all ranks if there is no room.
    """
    handle, paths = _files(elements * kind.itemsize)
    arrays = {each: _mapped(paths[each], elements, kind) for each in ranks}
    _unnamed(handle, paths[rank])
    return arrays


def refuse_apart(groups: Iterable[Sequence[int]]) -> None:
    """Raises InputError on all ranks if those of a group have no memory in common. Collective over all ranks."""
    if fabric() is not None:
        raise InputError("hosts of a testbed share no memory: plan with a collective that sends, as binary_tree")
    where = nodes()
    for first, *others in groups:
        other = next((each for each in others if where[each] != where[first]), None)
        if other is not None:
            raise InputError(
                f"ranks {first} and {other} are on two machines and share no memory: start the ranks on one machine, "
                "or plan with a collective that sends, as binary_tree"
            )


def _files(size: int | None) -> tuple[int, list[str]]:
    """(handle of this rank's file of so many bytes, the path of each rank's); None: this rank makes none."""
    handle, path, problem = -1, "", ""
    if size is not None:
        try:
            handle, path = leftovers.shared_file(max(1, size))
        except OSError as error:
            problem = f"{leftovers.MEMORY}: no room for {size / 1e6:.1f} MB that ranks share: {error.strerror}"
    made = everyones((path, problem))
    reason = next((each for _, each in made if each), "")
    if reason:
        _unnamed(handle, path, together=False)
        raise InputError(f"{reason}: take fewer ranks or a smaller model, or make it larger")
    return handle, [each for each, _ in made]


def _mapped(path: str, elements: int, kind: torch.dtype) -> torch.Tensor:
    return torch.from_file(path, shared=True, size=elements, dtype=kind)


def _unnamed(handle: int, path: str, together: bool = True) -> None:
    """Take the name of this rank's file away, once all ranks have mapped it; the mappings keep it."""
    if together:
        dist.barrier()
    if handle >= 0:
        os.unlink(path)
        os.close(handle)
