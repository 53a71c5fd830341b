"""Judges, as far as possible, whether the answer to an accepted input, or the refusal of another, is right."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from gradsync import cli

LONGEST_REFUSAL = 10_000  # characters: one message, besides how a subcommand is used
ROUNDING = 1e-9  # relative, of a time that is compared with its bound
# endings of names of numbers that must not be below 0
NOT_NEGATIVE = ("seconds", "gpu_hours", "bytes", "rounds", "transfers", "ranks", "iterations", "buckets")


def refused(message: str) -> str:
    """What is wrong with a refusal; empty if nothing is."""
    if not message.strip():
        return "refused without a word"
    if "Traceback (most recent call last)" in message:
        return "refused with a traceback"
    return f"refused in {len(message)} characters" if len(message) > LONGEST_REFUSAL else ""


def accepted(words: list[str], answer: str) -> str:
    """What is wrong with the answer to a command line that was accepted; empty if nothing is."""
    if "--json" not in words or not answer.strip() or "--help" in words or "-h" in words:
        return ""
    try:
        content = json.loads(answer)
    except ValueError as error:
        return f"the answer is no JSON: {error}"
    for name, number in _numbers(content):
        if not math.isfinite(number):
            return f"{name} is {number}"
        if number < 0 and any(name.endswith(each) for each in NOT_NEGATIVE):
            return f"{name} is {number}, below 0"
    return _of(words, content)


def _of(words: list[str], content: Any) -> str:
    match words[0]:
        case "plan" | "simulate" if content.get("steady"):
            bounds = [content.get(f"{kind}_bound_seconds") for kind in ("hard", "model")]
            if bounds[0] is not None and content["iteration_seconds"] < bounds[0] * (1 - ROUNDING):
                return f"an iteration of {content['iteration_seconds']} s, below its bound of {bounds[0]} s"
        case "collective" if content["ranks"] > 1 and content["rounds"] < 1:
            return "no round, and more than one rank"
        case "check" if not content.get("passes"):
            return "accepted, and does not pass"
    written = _value_of(words, "--output")
    if words[0] == "plan" and written and (status := cli.main(["check", written])):
        return f"the plan that was written does not pass: status {status}"
    if words[0] == "simulate" and (read := _value_of(words, "--plan")) and (status := cli.main(["check", read])):
        return f"a plan was simulated that does not pass: status {status}"
    if written and words[0] == "export":  # a file per rank
        written += ".0.et"
    return "" if not written or Path(written).exists() else f"nothing was written to {written}"


def _value_of(words: list[str], option: str) -> str:
    values = [after for word, after in pairwise(words) if word == option]
    return values[-1] if values else ""


def _numbers(content: Any, name: str = "answer") -> Iterator[tuple[str, float]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _numbers(value, str(key))
    elif isinstance(content, list):
        for value in content:
            yield from _numbers(value, name)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield name, content
