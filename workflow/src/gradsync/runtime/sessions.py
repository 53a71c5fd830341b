"""The sessions of a launch: one that goes on from a checkpoint was timed on all machines that it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradsync.runtime.other_work import OtherWork
from gradsync.statistics.quiet import KEY

ALIKE = ("processor", "cores", "nodes", "system", "device", "driver")  # of machines whose times are of one kind
Session = Mapping[str, Any]
"""A machine (`hosts.machines`), with the share of its cores that other work took, if that is known."""


class Sessions:
    """This session, which begins now, and those before the checkpoint that it goes on from."""

    def __init__(self, machine: Mapping[str, Any], earlier: Sequence[Session] = ()) -> None:
        self.machine, self.earlier, self.other_work = dict(machine), earlier, OtherWork()

    def so_far(self) -> list[Session]:
        """All of them, for a checkpoint; collective over all ranks."""
        return [*self.earlier, {**self.machine, **self.other_work.share()}]

    def provenance(self) -> dict[str, Any]:
        """The largest share of other work, if any is known; collective over all ranks."""
        shares = [session[KEY] for session in self.so_far() if KEY in session]
        return {KEY: max(shares)} if shares else {}

    def notes(self) -> list[str]:
        """What is to be said if an earlier session ran on another machine."""
        for session in self.earlier:
            differ = [key for key in ALIKE if session.get(key) != self.machine.get(key)]
            if differ:
                were = ", ".join(f"{key}: {session.get(key)}, then {self.machine.get(key)}" for key in differ)
                return [f"launch: it went on from a checkpoint on another machine ({were}): its times are of both"]
        return []
