"""Values that must stay data: what a shell, a command line, Snakemake or YAML would make something else of."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

MARK = "INJECTED"  # the file that a command made of one of them would leave behind
RUNS = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"; touch {MARK};",
    f"&& touch {MARK} #",
    f"| touch {MARK}",
    f"' ; touch {MARK} ; '",
    f'" ; touch {MARK} ; "',
    f"\ntouch {MARK}\n",
)
READ_BY_OTHERS = ("--help", "-n", "{wildcards}", "{input[0].__class__}", "{{}}", "*", "~", " ", "a b", "", "\0", "..")
HOSTILE = tuple(f"{before}{value}" for value in RUNS for before in ("", "digits")) + READ_BY_OTHERS
# a folder's name of all of them that a file's name may hold
FOLDER = f"a b; touch {MARK} $(touch {MARK}) `touch {MARK}` 'c' \"d\" && touch {MARK} | touch {MARK} #é ~"


def positions(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of nested lists and mappings lies, from the outside in; those that hold others too."""
    if before:
        yield before
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        yield from positions(value, (*before, key))


def at(content: Any, place: tuple[Any, ...]) -> Any:
    """What lies there."""
    for key in place:
        content = content[key]
    return content


def changed(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value there."""
    made = copy.deepcopy(content)
    at(made, place[:-1])[place[-1]] = value
    return made
