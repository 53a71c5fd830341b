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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gradsync.errors import InputError
from gradsync.writing import replacing, write_whole

VERSION = 1
State = dict[str, Any]
"""Tensors, numbers, texts, and lists and dictionaries of them."""


class Checkpoints:
    """Checkpoints below `folder`; `key` says what run they belong to. All methods are collective over all ranks."""

    def __init__(self, folder: Path, key: str, rank: int, every_seconds: float):
        self.folder, self.key, self.rank, self.every_seconds = folder, key, rank, every_seconds
        self.saved = time.monotonic()
        self.number = 0

    def due(self) -> bool:
        """True on all ranks alike, once `every_seconds` have passed on rank 0."""
        flag = torch.tensor([time.monotonic() - self.saved >= self.every_seconds], dtype=torch.uint8)
        dist.broadcast(flag, 0)
        return bool(flag)

    def save(self, alike: State, own: State) -> None:
        """Write `alike` (rank 0's is taken) and every rank's `own`."""
        self.number += 1
        target = self.folder / str(self.number)
        try:
            with replacing(target / f"rank{self.rank}.pt") as partial:
                torch.save({"own": own, "alike": alike if self.rank == 0 else {}}, partial)
        except RuntimeError as error:
            raise InputError(f"checkpoint {target}: can't be written: {str(error).splitlines()[0]}") from None
        dist.barrier()
        if self.rank == 0:
            state = {"version": VERSION, "key": self.key, "number": self.number}
            write_whole(self.folder / "latest.json", json.dumps(state) + "\n")
            for old in self.folder.iterdir():
                if old.is_dir() and old.name != str(self.number):
                    shutil.rmtree(old, ignore_errors=True)
        self.saved = time.monotonic()

    def load(self) -> tuple[State, State] | None:
        """(alike, own) of the last checkpoint; None where there is none, or where it belongs to another run.

        Raises InputError for a file that can't be read.
        """
        found: list[Any] = [self._latest() if self.rank == 0 else None]
        dist.broadcast_object_list(found, 0)
        if found[0] is None:
            return None
        self.number = found[0]
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
