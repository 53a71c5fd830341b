"""Whether what is said of an input, accepted or refused, is right, as far as one can tell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from gradsync import cli

LONGEST_REFUSAL = 10_000  # characters: one message, beside how a subcommand is used
ROUNDING = 1e-9  # of a time beside its bound
# what must not be below 0
NOT_NEGATIVE = ("seconds", "gpu_hours", "bytes", "rounds", "transfers", "ranks", "iterations", "buckets")


def refused(said: str) -> str:
    """What is wrong with a refusal; empty where nothing is."""
    if not said.strip():
        return "refused without a word"
    if "Traceback (most recent call last)" in said:
        return "refused with a traceback"
    return f"refused in {len(said)} characters" if len(said) > LONGEST_REFUSAL else ""


def accepted(words: list[str], answer: str) -> str:
    """What is wrong with the answer to a command line that was accepted; empty where nothing is."""
    if "--json" not in words or not answer.strip() or "--help" in words or "-h" in words:
        return ""
    try:
        found = json.loads(answer)
    except ValueError as error:
        return f"the answer is no JSON: {error}"
    for name, number in _numbers(found):
        if not math.isfinite(number):
            return f"{name} is {number}"
        if number < 0 and any(name.endswith(each) for each in NOT_NEGATIVE):
            return f"{name} is {number}, below 0"
    return _of(words, found)


def _of(words: list[str], found: Any) -> str:
    match words[0]:
        case "plan" | "simulate" if found.get("steady"):
            bounds = [found.get(f"{kind}_bound_seconds") for kind in ("hard", "model")]
            if bounds[0] is not None and found["iteration_seconds"] < bounds[0] * (1 - ROUNDING):
                return f"an iteration of {found['iteration_seconds']} s, below its bound of {bounds[0]} s"
        case "collective" if found["ranks"] > 1 and found["rounds"] < 1:
            return "no round, and more than one rank"
        case "check" if not found.get("passes"):
            return "accepted, and does not pass"
    written = _value_of(words, "--output")
    if words[0] == "plan" and written and (status := cli.main(["check", written])):
        return f"the plan that was written does not pass: status {status}"
    if words[0] == "simulate" and (read := _value_of(words, "--plan")) and (status := cli.main(["check", read])):
        return f"a plan was simulated that does not pass: status {status}"
    return "" if not written or Path(written).exists() else f"nothing was written to {written}"


def _value_of(words: list[str], option: str) -> str:
    given = [after for word, after in pairwise(words) if word == option]
    return given[-1] if given else ""


def _numbers(found: Any, name: str = "answer") -> Iterator[tuple[str, float]]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _numbers(value, str(key))
    elif isinstance(found, list):
        for value in found:
            yield from _numbers(value, name)
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield name, found
