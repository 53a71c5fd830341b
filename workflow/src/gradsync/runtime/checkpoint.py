"""Checkpoints of a launch, from which an interrupted run goes on.

Each rank writes a file of its own, with its shards of what ranks have divided; only rank 0 writes what all ranks hold
alike (parameters, whole momentum). A checkpoint counts once `latest.json` names it, so that a run that is killed while
it saves goes on from the one before. Files hold tensors and plain values only: they are loaded without running anything
that they contain.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.files.writing import replacing, write_whole

VERSION = 1
State = dict[str, Any]
"""Tensors, numbers, texts, and lists and dictionaries of them."""


class Checkpoints:
    """Checkpoints below `folder`; `key` identifies the run that they belong to. All methods are collective.

    `launch` identifies what the run has in common with the same one on another number of ranks (empty: unknown).
    """

    def __init__(self, folder: Path, key: str, rank: int, every_seconds: float, launch: str = ""):
        self.folder, self.key, self.rank, self.every_seconds = folder, key, rank, every_seconds
        self.launch = launch
        self.saved = time.monotonic()
        self.number = 0
        self.kept = 0  # the number of the one that counts; 0: none

    def due(self) -> bool:
        """Whether `every_seconds` have passed on rank 0; all ranks get the same answer."""
        flag = torch.tensor([time.monotonic() - self.saved >= self.every_seconds], dtype=torch.uint8)
        dist.broadcast(flag, 0)
        return bool(flag)

    def save(self, alike: State, own: State) -> None:
        """Write `alike` (rank 0's is taken) and every rank's `own`.

        If no space is left on some rank, rank 0 warns, the last checkpoint stays, and training goes on. Raises
        InputError on all ranks if one can't write for another reason.
        """
        self.number += 1
        target = self.folder / str(self.number)
        content = {"own": own, "alike": alike if self.rank == 0 else {}}
        written = self._write_together(lambda: _save(content, target / f"rank{self.rank}.pt"))
        if written:
            state = {"version": VERSION, "key": self.key, "number": self.number}
            state |= {"launch": self.launch, "ranks": dist.get_world_size()}
            latest = json.dumps(state) + "\n"
            written = self._write_together(lambda: self._name(latest))
        if self.rank == 0:
            counts = str(self.number if written else self.kept)
            for old in self.folder.glob("*"):
                if old.is_dir() and old.name != counts:
                    shutil.rmtree(old, ignore_errors=True)
        self.kept = self.number if written else self.kept
        dist.barrier()  # no rank may write the next one while old ones are removed
        self.saved = time.monotonic()

    def _name(self, latest: str) -> None:
        if self.rank == 0:
            write_whole(self.folder / "latest.json", latest)

    def _write_together(self, write: Callable[[], object]) -> bool:
        """Write on all ranks; False if one had no space. Raises InputError on all of them alike for another problem."""
        problem = ("", False)
        try:
            write()
        except InputError as error:
            problem = (str(error), isinstance(error, disk.FullError))
        problems = [problem] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        for reason, full in problems:
            if reason and not full:
                raise InputError(f"checkpoint {reason}")
        reasons = [reason for reason, _ in problems if reason]
        if reasons and self.rank == 0:
            last = "from the last one" if self.kept else "from the beginning"
            print(
                f"checkpoint {reasons[0]}; training goes on; interrupted, it would go on {last}",
                file=sys.stderr,
                flush=True,
            )
        return not reasons

    def load(self) -> tuple[State, State] | None:
        """(alike, own) of the last checkpoint; None if there is none, or if it belongs to another run.

        Raises InputError for a file that can't be read, and for a checkpoint of the same launch on other ranks.
        """
        latest: list[Any] = [self._latest() if self.rank == 0 else None]
        dist.broadcast_object_list(latest, 0)
        if latest[0] is None:
            return None
        if isinstance(latest[0], str):  # what is wrong with it
            raise InputError(latest[0])
        self.number = self.kept = latest[0]
        problem, own, alike = "", {}, {}
        try:
            own = self._read(self.rank)
            alike = own["alike"] if self.rank == 0 else self._read(0)["alike"]
        except InputError as error:
            problem = str(error)
        problems = [""] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        if any(problems):  # one rank's problem ends all ranks, for the same reason
            raise InputError(next(filter(None, problems)))
        return alike, own["own"]

    def _latest(self) -> int | str | None:
        """Its number; None if there is none to go on from; a text that says why it can't be taken."""
        path = self.folder / "latest.json"
        try:
            state = json.loads(path.read_text())
            if state["version"] == VERSION and state["key"] == self.key:
                return int(state["number"])
            if self.launch and state.get("launch") == self.launch and state["ranks"] != dist.get_world_size():
                return (
                    f"checkpoint {self.folder} is of the same launch on {state['ranks']} ranks, of which each has "
                    f"samples and shards of its own, and there are {dist.get_world_size()} now: go on with "
                    f"{state['ranks']} ranks, or delete {self.folder} to start anew"
                )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        print(f"{path} is of another run (settings, plans or ranks differ): starting anew", file=sys.stderr)
        return None

    def _read(self, rank: int) -> dict[str, State]:
        path = self.folder / str(self.number) / f"rank{rank}.pt"
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)  # whichever device it was saved from
            return {part: content[part] for part in ("alike", "own")}
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"checkpoint {path}: can't be read: {reason}: delete {self.folder} to start anew"
            ) from None

    def clear(self) -> None:
        """Remove all checkpoints: the run is complete."""
        dist.barrier()
        if self.rank == 0:
            (self.folder / "latest.json").unlink(missing_ok=True)  # first, since it names a folder that is to be whole
            shutil.rmtree(self.folder, ignore_errors=True)


def room(folder: Path, parameters: int, kept: int) -> str:
    """A warning if no checkpoint fits into `folder` beside the last one; empty if one does.

    `kept` is the number of arrays of all parameters that a checkpoint holds at the least, over all contenders.
    """
    need, free = 4.0 * parameters * kept, disk.room(folder)
    if free is None or free > 2 * need:
        return ""
    return (
        f"{folder}: a checkpoint takes {disk.size(need)} beside the last one, {disk.size(free)} are free: where none "
        "can be written, an interrupted run goes on from the one before"
    )


def _save(content: State, path: Path) -> None:
    """Write a file whole or not at all; raises InputError if it can't be written."""
    try:
        # torch is given an open file: with a name, it would not say what went wrong
        with replacing(path) as partial, partial.open("wb") as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
    except RuntimeError as error:
        raise InputError(f"{path}: can't be written: {str(error).splitlines()[0]}") from None
