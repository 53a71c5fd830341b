"""Launches that measure: what is refused before any rank starts, and their start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import words
from gradsync.errors import InputError
from gradsync.experiments.hosts import hosts
from gradsync.files import disk

if TYPE_CHECKING:
    from gradsync.testbed.description import Description

OUTPUT_BYTES = 1e6  # what a measurement writes, and more


def refuse_ranks(what: str, numbers_of_ranks: Sequence[int], device: str, least: int = 2) -> None:
    """Raises InputError for numbers of ranks that can't measure, or that this machine can't hold."""
    from gradsync.runtime import devices
    from gradsync.runtime.launch import elsewhere, room_for

    for ranks in numbers_of_ranks:
        room_for(ranks, "--ranks")
        if not elsewhere():
            devices.refuse(device, ranks)
    if min(numbers_of_ranks) < least:
        raise InputError(f"measure {what}: --ranks must be at least {least}")


def refuse_counts(**counts: int) -> None:
    """Raises InputError for an option that is less than 1."""
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"--{name.replace('_', '-')} {count}: at least 1")


def refuse_output(output: Path) -> None:
    """Raises InputError if what is measured can't be written there."""
    disk.refuse(output.parent, OUTPUT_BYTES, "what is measured")


def start(what: str, options: Any, ranks: int, testbed: Description | None = None) -> None:
    """Run `gradsync measure WHAT` with these options as so many ranks, and wait for them; on hosts of the testbed."""
    from gradsync.runtime.launch import launch

    with hosts(testbed, ranks) as network:
        launch(["measure", what, *words(options)], ranks, network, gpus=getattr(options, "device", "cpu") != "cpu")


def shared_cores(device: str, ranks: int, cores: int) -> list[str]:
    """A note if ranks have less than one core each."""
    return [f"{ranks} ranks share {cores} cores"] if device == "cpu" and ranks > cores else []
