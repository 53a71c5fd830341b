"""What no command takes, whatever it does: the limits of `gradsync.limits` by option, which messages tell.

What depends on several options, or on what they name, is refused by the command itself.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradsync.configuration.options import options_of
from gradsync.configuration.training import Training
from gradsync.errors import InputError
from gradsync.files.reading import MOST_PATH_BYTES, refuse_path, shown
from gradsync.limits import (
    LEAST_LANES,
    LEAST_MESSAGE,
    LEAST_TURNS,
    MOST_COUNT,
    MOST_GPUS_A_NODE,
    MOST_MEASURED_LANES,
    MOST_MEGABYTES,
    MOST_MESSAGE,
    MOST_MINUTES,
    MOST_RANKS,
    MOST_SHORTLISTED,
    MOST_TURNS,
)

# option: (least, most) of the whole numbers that it takes; text if a command reads them itself
WHOLE: dict[str, tuple[int, int]] = {
    **{
        option.key: (option.about.least, option.about.most)
        for option in options_of(Training)
        if option.about.least is not None and option.about.most is not None
    },
    "ranks": (1, MOST_RANKS),
    "ranks_a_node": (1, MOST_RANKS),
    "nodes": (1, MOST_RANKS),
    "lanes": (LEAST_LANES, MOST_MEASURED_LANES),
    "turns": (LEAST_TURNS, MOST_TURNS),
    "turn": (0, MOST_COUNT),
    "rank": (0, MOST_RANKS - 1),
    "smallest": (LEAST_MESSAGE, MOST_MESSAGE),
    "largest": (LEAST_MESSAGE, MOST_MESSAGE),
    "cpus": (1, MOST_RANKS),
    "gpus_per_node": (0, MOST_GPUS_A_NODE),
    "memory": (0, MOST_MEGABYTES),
    "minutes": (0, MOST_MINUTES),
    "measure": (1, MOST_SHORTLISTED),
}
LONGEST_TEXT = 4 * MOST_PATH_BYTES


class Once(argparse.Action):
    """Keeps a value, which options were given, and which of them twice: the last one wins, and a warning says so."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """As argparse's own, which keeps the last value."""
        keys: frozenset[str] = getattr(namespace, "given_keys", frozenset())
        if option is not None and self.dest in keys:
            namespace.repeated_options = getattr(namespace, "repeated_options", frozenset()) | {option}
        namespace.given_keys = keys | {self.dest}
        setattr(namespace, self.dest, values)


def refuse(options: argparse.Namespace) -> None:
    """Raises InputError for what no command takes: see `WHOLE`; infinite numbers, odd paths, odd texts."""
    for key, value in vars(options).items():
        for one in value if isinstance(value, list) else [value]:
            _refuse_value(f"--{key.replace('_', '-')}", key, one)


def _refuse_value(option: str, key: str, value: Any) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, Path):
        refuse_path(value, option)
        _refuse_text(option, str(value))
        if value == Path():
            raise InputError(f"{option}: the current folder is no file: name one")
    elif isinstance(value, str):
        _refuse_text(option, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{option} {value}: must be a finite number")
    elif isinstance(value, int):
        least, most = WHOLE.get(key, (-MOST_COUNT, MOST_COUNT))
        if not least <= value <= most:
            number = f" {value}" if abs(value) < 1 << 70 else ": a number of more than 20 digits"
            raise InputError(
                f"{option}{number}: {'not negative' if not least else f'at least {least}'}, at most {most}"
            )


def _refuse_text(option: str, text: str) -> None:
    if not text.isprintable() or len(text) > LONGEST_TEXT:
        what = "characters that can't be shown" if len(text) <= LONGEST_TEXT else f"{len(text)} characters"
        raise InputError(f"{option} {shown(text)}: {what}")


def types(parser: argparse.ArgumentParser) -> None:
    """Make `parser` note which options are given, and which twice of those that don't collect all values."""
    parser.register("action", None, Once)
    parser.register("action", "store", Once)


def words(arguments: Sequence[str]) -> list[str]:
    """The command line, without bytes that no text has; raises InputError."""
    for argument in arguments:
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            raise InputError(f"argument {shown(argument)}: characters that no file name or number has")
    return list(arguments)
