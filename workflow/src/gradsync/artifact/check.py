"""Hold the results of a run against an archive: what was promised to be the same, and what timing explains."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradsync import claims
from gradsync.artifact import archive
from gradsync.artifact.broken import COMPARED, broken
from gradsync.artifact.promises import IDENTICAL, RUNS, TIMING, TOLERANCE
from gradsync.comparison import compare_results
from gradsync.comparison.results import LEDGER
from gradsync.errors import InputError
from gradsync.files import disk, reading

NOTHING, TIMES, MORE = "nothing", "timing only", "more than timing"
COMPUTED = ("derived", "simulated")


def check(path: Path, results: Path) -> dict[str, Any]:
    """What differs between an archive and a folder of results, as `compare_results` tells it, and promises that broke.

    `unexplained` also lists files that only one of them has, files that were promised to be the same and are not, and
    verdicts on tables that nothing timed goes into. Raises InputError if the archive or the folder can't be read.
    """
    listed, files = archive.read(path)
    prefix = f"{archive.RESULTS}/"
    promised = {each.path.removeprefix(prefix): each.promise for each in listed.files if each.path.startswith(prefix)}
    with tempfile.TemporaryDirectory(prefix="gradsync-artifact-") as temporary:
        first = Path(temporary) / "artifact"
        with disk.explain_errors(first):
            for name in promised:
                (first / name).parent.mkdir(parents=True, exist_ok=True)
                (first / name).write_bytes(files[prefix + name])
        try:
            told = _told(path, first, results, promised, listed.left_out)
        except InputError as error:
            raise InputError(
                str(error).replace(f"{first}/", f"{path}, {prefix}").replace(str(first), str(path))
            ) from None
    second = claims.load(results / LEDGER).origin
    if second.configuration not in ("", listed.configuration):
        raise InputError(
            f"results {results}: they are those of the configuration {second.configuration}, and {path} is of "
            f"{listed.configuration}: run that one"
        )
    same = all(
        reading.raw(results / name, "result") == files[prefix + name]
        for name in promised
        if name.endswith(COMPARED) and (results / name).is_file()
    )
    kinds = (IDENTICAL, TOLERANCE, RUNS, TIMING)
    return {
        "what_differs": MORE if told["unexplained"] else NOTHING if same else TIMES,
        "commits": [listed.code or "not known", second.code or "not known"],
        "promised": {kind: sum(each == kind for each in promised.values()) for kind in kinds},
        **told,
    }


def _told(path: Path, first: Path, results: Path, promised: Mapping[str, str], left_out: list[str]) -> dict[str, Any]:
    """What `compare_results` tells of the unpacked archive and the results, and all that was promised and is not so."""
    told = compare_results(first, results)
    unexplained = [each.replace(str(first), str(path)) for each in told["unexplained"]]
    for difference in [*_of_files(path, first, results, promised), *_more(results, promised, left_out)]:
        name = difference.split(": ")[0]
        if not any(each.startswith(f"{name}:") for each in unexplained):
            unexplained.append(difference)
    unexplained += _verdicts(told["verdicts"], first, promised)
    simulated = {
        name: largest for name, largest in told["simulated_otherwise"].items() if promised.get(name) in (RUNS, TIMING)
    }
    return {**told, "simulated_otherwise": simulated, "unexplained": unexplained}


def _of_files(path: Path, first: Path, results: Path, promised: Mapping[str, str]) -> Iterator[str]:
    """Files of the archive that are missing in the results, or not what was promised of them."""
    for name, promise in promised.items():
        if archive.is_log(name):
            continue
        if not (results / name).is_file():
            expected = f"it is missing, and was promised to be {promise}"
            yield f"{name}: {expected if promise in (IDENTICAL, TOLERANCE) else f'only in {path}'}"
        elif where := broken(first / name, results / name, promise):
            yield f"{name}: {where} is another one, and was promised to be {promise if promise != RUNS else TOLERANCE}"


def _more(results: Path, promised: Mapping[str, str], left_out: list[str]) -> Iterator[str]:
    """Files that only the results have, of those that are compared."""
    known = {*promised, *left_out}
    for file in archive.below(results):
        name = file.relative_to(results).as_posix()
        if name not in known and file.suffix in COMPARED and not archive.is_log(name):
            yield f"{name}: only in {results}"


def _verdicts(changed: list[dict[str, Any]], first: Path, promised: Mapping[str, str]) -> Iterator[str]:
    """Verdicts that changed although no timing goes into their table."""
    table_of = {
        (f"{each.paper}: {each.claim}", each.rung): f"tables/{each.paper}/{each.table}.csv"
        for each in claims.read(first / LEDGER)
    }
    for each in changed:
        table = table_of.get((each["claim"], each["rung"]))
        if each["rung"] in COMPUTED and promised.get(str(table)) in (IDENTICAL, TOLERANCE):
            yield f"verdict on {each['claim']} ({each['rung']}): {each['first']} and {each['second']}"
