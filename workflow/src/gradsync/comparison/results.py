"""All results of two runs of the workflow: verdicts, runs and tables, with what should be the same and is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradsync.claims import changed, ledger
from gradsync.claims.cells import read
from gradsync.comparison.runs import different, parameters, planned, same_or_not
from gradsync.comparison.tables import compare_tables
from gradsync.errors import InputError
from gradsync.files.results import Result

LEDGER = "claims.json"


def compare_results(first: Path, second: Path) -> dict[str, Any]:
    """What differs between two folders of results, such as `results/quick` of two checkouts.

    `unexplained` lists what no timing explains: files that only one of them has, other settings of a run, other
    parameters at the end of one plan, other published or derived numbers, and timed rows that only one table has.
    Simulated numbers may follow a profile that was measured; of those that differ, the largest relative difference is
    told by table.

    Raises InputError if a folder has no ledger, or a file can't be read.
    """
    for folder in (first, second):
        if not (folder / LEDGER).is_file():
            raise InputError(
                f"{folder}: has neither result.json nor {LEDGER}: give two runs, or two folders of results"
            )
    unexplained: list[str] = []
    runs = _in_both(first, second, "runs/**/result.json", unexplained)
    tables = _in_both(first, second, "tables/*/*.csv", unexplained)
    other_plans = []
    for name in runs:
        pair = Result.load(first / name), Result.load(second / name)
        where = str(Path(name).parent)
        if changed := different(pair):
            unexplained.append(f"{where}: settings: {'; '.join(f'{key} {text}' for key, text in changed.items())}")
        elif same_or_not(*map(planned, pair)) == "different":
            other_plans.append(where)
        elif same_or_not(*map(parameters, pair)) == "different":
            unexplained.append(f"{where}: other parameters after training by the same plan")
    simulated = {}
    for name in tables:
        fixed, largest = compare_tables(read(first / name) or [], read(second / name) or [])
        if fixed:
            unexplained.append(f"{name}: {fixed}")
        if largest:
            simulated[name] = largest
    return {
        "verdicts": _verdicts(first, second),
        "runs": len(runs),
        "planned_otherwise": other_plans,
        "tables": len(tables),
        "simulated_otherwise": simulated,
        "unexplained": unexplained,
    }


def _in_both(first: Path, second: Path, pattern: str, unexplained: list[str]) -> list[str]:
    """Names of the files that both folders have, sorted; the others are unexplained."""
    names = [{str(path.relative_to(folder)) for path in folder.glob(pattern)} for folder in (first, second)]
    both = names[0] & names[1]
    for folder, own in zip((first, second), names, strict=True):
        unexplained += [f"{name}: only in {folder}" for name in sorted(own - both)]
    return sorted(both)


def _verdicts(first: Path, second: Path) -> list[dict[str, Any]]:
    """The verdicts that changed, and those that only one ledger has."""
    one, other = (ledger.read(folder / LEDGER) for folder in (first, second))
    return [
        {"claim": f"{each.paper}: {each.claim}", "rung": each.rung, "first": each.before, "second": each.now}
        for each in changed(one, other)
    ]
