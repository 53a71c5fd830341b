"""Checkpoints of a launch: where an interrupted run goes on.

Each rank writes a file of its own; what all ranks hold alike (parameters, momentum) only rank 0 writes. A checkpoint
counts once `latest.json` names it, so that a run that is killed while it saves goes on from the one before. Tensors and
plain values only: files are loaded without running anything that they contain.
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
    """Checkpoints below `folder`; `key` says what run they belong to. All methods are collective over all ranks."""

    def __init__(self, folder: Path, key: str, rank: int, every_seconds: float):
        self.folder, self.key, self.rank, self.every_seconds = folder, key, rank, every_seconds
        self.saved = time.monotonic()
        self.number = 0
        self.kept = 0  # the one that counts; 0: none

    def due(self) -> bool:
        """True on all ranks alike, once `every_seconds` have passed on rank 0."""
        flag = torch.tensor([time.monotonic() - self.saved >= self.every_seconds], dtype=torch.uint8)
        dist.broadcast(flag, 0)
        return bool(flag)

    def save(self, alike: State, own: State) -> None:
        """Write `alike` (rank 0's is taken) and every rank's `own`.

        Where no space is left on some rank, that is said, the last checkpoint stays, and training goes on; raises
        InputError on all ranks where one can't write for another reason.
        """
        self.number += 1
        target = self.folder / str(self.number)
        content = {"own": own, "alike": alike if self.rank == 0 else {}}
        written = self._together(lambda: _save(content, target / f"rank{self.rank}.pt"))
        if written:
            state = {"version": VERSION, "key": self.key, "number": self.number}
            latest = json.dumps(state) + "\n"
            written = self._together(lambda: self._name(latest))
        if self.rank == 0:
            counts = str(self.number if written else self.kept)
            for old in self.folder.glob("*"):
                if old.is_dir() and old.name != counts:
                    shutil.rmtree(old, ignore_errors=True)
        self.kept = self.number if written else self.kept
        dist.barrier()  # what is removed is none that another rank writes by now
        self.saved = time.monotonic()

    def _name(self, latest: str) -> None:
        if self.rank == 0:
            write_whole(self.folder / "latest.json", latest)

    def _together(self, write: Callable[[], object]) -> bool:
        """Whether all ranks could write; False if space was missing. Raises InputError on all of them alike."""
        problem = ("", False)
        try:
            write()
        except InputError as error:
            problem = (str(error), isinstance(error, disk.FullError))
        problems = [problem] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        for said, full in problems:
            if said and not full:
                raise InputError(f"checkpoint {said}")
        lacking = [said for said, _ in problems if said]
        if lacking and self.rank == 0:
            last = "from the last one" if self.kept else "from the beginning"
            print(
                f"checkpoint {lacking[0]}; training goes on; interrupted, it would go on {last}",
                file=sys.stderr,
                flush=True,
            )
        return not lacking

    def load(self) -> tuple[State, State] | None:
        """(alike, own) of the last checkpoint; None if there is none, or where it belongs to another run.

        Raises InputError for a file that can't be read.
        """
        found: list[Any] = [self._latest() if self.rank == 0 else None]
        dist.broadcast_object_list(found, 0)
        if found[0] is None:
            return None
        self.number = self.kept = found[0]
        problem, own, alike = "", {}, {}
        try:
            own = self._read(self.rank)
            alike = own["alike"] if self.rank == 0 else self._read(0)["alike"]
        except InputError as error:
            problem = str(error)
        problems = [""] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        if any(problems):  # of one rank: all end, for the same reason
            raise InputError(next(filter(None, problems)))
        return alike, own["own"]

    def _latest(self) -> int | None:
        path = self.folder / "latest.json"
        try:
            state = json.loads(path.read_text())
            if state["version"] == VERSION and state["key"] == self.key:
                return int(state["number"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        print(f"{path} is of another run (settings, plans or ranks differ): starting anew", file=sys.stderr)
        return None

    def _read(self, rank: int) -> dict[str, State]:
        path = self.folder / str(self.number) / f"rank{rank}.pt"
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)  # whatever it was saved from
            return {part: found[part] for part in ("alike", "own")}
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"checkpoint {path}: can't be read: {reason}: delete {self.folder} to start anew"
            ) from None

    def clear(self) -> None:
        """Remove them: the run is complete."""
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)


def room(folder: Path, parameters: int, kept: int) -> str:
    """What to say where no checkpoint fits into `folder` beside the last one; empty if it does.

    `kept`: arrays of all parameters that a checkpoint holds at the least, over all contenders.
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
        with replacing(path) as partial, partial.open("wb") as file:  # given a name, torch does not say what went wrong
            try:
                torch.save(content, file)
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
    except RuntimeError as error:
        raise InputError(f"{path}: can't be written: {str(error).splitlines()[0]}") from None
