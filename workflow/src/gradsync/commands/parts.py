"""`gradsync parts`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import parts


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, parts.Options)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Tell into how many parts a chip is best cut, each with a copy of the weights and data, and why."""
    answer = parts.choose(parsing.read(parts.Options, options))
    if options.json:
        return answer
    print(f"{answer['model']}, batch {answer['batch']} of each part, {answer['cores']} cores of {answer['chip']}")
    for row in answer["rows"]:
        origin = "measured" if row["measured"] else "fitted"
        print(
            f"  {row['parts']:4} parts  {1e3 * row['iteration_seconds']:9.2f} ms ({origin})  "
            f"{row['samples_per_second']:10.1f} samples/s  {row['refused'] and 'refused'}".rstrip()
        )
    print(f"best: {answer['why']}")
    for warning in answer["warnings"]:
        print(f"warning: {warning}")
    return None
