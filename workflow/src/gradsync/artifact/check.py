"""Hold the results of a run against an archive: what was promised to be the same, and what timing explains."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gradsync import claims
from gradsync.artifact import archive
from gradsync.artifact.promises import IDENTICAL, RELATIVE, TIMING, TOLERANCE
from gradsync.claims import cells
from gradsync.comparison import compare_results

NOTHING, TIMES, MORE = "nothing", "timing only", "more than timing"
COMPARED = (".csv", ".json")  # what people read is written from these, and pictures are drawn from them
COMPUTED = ("derived", "simulated")


def check(path: Path, results: Path) -> dict[str, Any]:
    """What differs between an archive and a folder of results, as `compare_results` tells it, and promises that broke.

    `unexplained` also lists files that were promised to be the same and are not, and verdicts on tables that nothing
    timed goes into. Raises InputError if the archive or the folder can't be read.
    """
    listed, files = archive.read(path)
    prefix = f"{archive.RESULTS}/"
    promised = {each.path.removeprefix(prefix): each.promise for each in listed.files if each.path.startswith(prefix)}
    with tempfile.TemporaryDirectory(prefix="gradsync-artifact-") as temporary:
        first = Path(temporary) / "artifact"
        for name in promised:
            (first / name).parent.mkdir(parents=True, exist_ok=True)
            (first / name).write_bytes(files[prefix + name])
        told = compare_results(first, results)
        told["unexplained"] = [each.replace(str(first), str(path)) for each in told["unexplained"]]
        tables = {name for name in promised if name.endswith(".csv")}
        broken = [
            difference
            for name, promise in promised.items()
            if promise in (IDENTICAL, TOLERANCE) and name.endswith(COMPARED)
            for difference in _differences(first / name, results / name, promise, name)
        ]
        told["unexplained"] += [each for each in broken if not _told(each, told["unexplained"])]
        told["unexplained"] += _verdicts(told["verdicts"], first, promised, tables)
        same = all(
            (results / name).is_file() and (results / name).read_bytes() == files[prefix + name]
            for name in promised
            if name.endswith(COMPARED)
        )
    told["simulated_otherwise"] = {
        name: largest for name, largest in told["simulated_otherwise"].items() if promised.get(name) == TIMING
    }
    second = claims.load(results / "claims.json").origin.code
    return {
        "what_differs": MORE if told["unexplained"] else NOTHING if same else TIMES,
        "commits": [listed.code or "not known", second or "not known"],
        "promised": {kind: sum(each == kind for each in promised.values()) for kind in (IDENTICAL, TOLERANCE, TIMING)},
        **told,
    }


def _differences(one: Path, other: Path, promise: str, name: str) -> Iterator[str]:
    """The first difference of a file from what was promised of it."""
    if not other.is_file():
        yield f"{name}: it is missing, and was promised to be {promise}"
        return
    if one.read_bytes() == other.read_bytes():
        return
    if name.endswith(".json"):
        different = not _close(json.loads(one.read_text()), json.loads(other.read_text()), 0.0)
        where = "its content" if different else ""
    else:
        where = _cell(cells.read(one) or [], cells.read(other) or [], 0.0 if promise == IDENTICAL else RELATIVE)
    if where:
        yield f"{name}: {where} is another one, and was promised to be {promise}"


def _cell(first: list[cells.Row], second: list[cells.Row], relative: float) -> str:
    """Where two tables differ first by more than a tolerance; empty if nowhere."""
    for number, (one, other) in enumerate(zip_longest(first, second), 1):
        if one is None or other is None or [*one] != [*other]:
            return f"row {number}"
        for column in one:
            if one[column] != other[column] and not _close(_parsed(one[column]), _parsed(other[column]), relative):
                return f"row {number}, {column} ({one[column]} and {other[column]})"
    return ""


def _parsed(cell: str) -> Any:
    """A cell as a number or a list of numbers, if it is one."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _close(one: Any, other: Any, relative: float) -> bool:
    """Whether two contents are the same, their numbers within a relative tolerance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key], relative) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_close(*pair, relative) for pair in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=relative)
    return bool(one == other)


def _told(difference: str, unexplained: list[str]) -> bool:
    """Whether a difference of the same file is among those that are told already."""
    return any(each.startswith(difference.split(": ")[0] + ":") for each in unexplained)


def _verdicts(changed: list[dict[str, Any]], first: Path, promised: dict[str, Any], tables: set[str]) -> Iterator[str]:
    """Verdicts that changed although no timing goes into their table."""
    table_of = {
        (f"{each.paper}: {each.claim}", each.rung): f"tables/{each.paper}/{each.table}.csv"
        for each in claims.read(first / "claims.json")
    }
    for each in changed:
        table = table_of.get((each["claim"], each["rung"]))
        if each["rung"] in COMPUTED and table in tables and promised[table] != TIMING:
            yield f"verdict on {each['claim']} ({each['rung']}): {each['first']} and {each['second']}"
