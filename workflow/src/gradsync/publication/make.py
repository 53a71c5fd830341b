"""Make an entry of published results from a folder of results; what others couldn't check is refused.

Refused are runs and verdicts made with uncommitted changes or by a commit that isn't known, what was timed while other
work took more than a tenth of the cores, and results without anything that was timed.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gradsync import claims
from gradsync.claims import cells
from gradsync.claims.verdicts import UNDECIDED
from gradsync.errors import InputError
from gradsync.files import checkout, reading
from gradsync.files.results import TIMED, Result
from gradsync.files.writing import make_folder, write_whole
from gradsync.publication import entry
from gradsync.publication.entry import Provenance
from gradsync.publication.timed import timed
from gradsync.statistics import quiet

MOST_BYTES = 500_000  # of a table: an entry is read in a checkout, and on the pages of the report
NAMED = 5  # reasons that a message has in full


class Run(NamedTuple):
    """A run that was timed, by its folder below the results."""

    where: str
    result: Result


def publish(config: str, results: Path, name: str, output: Path) -> dict[str, Any]:
    """Write the entry `output` of the configuration `name`, over an earlier one; returns what it holds.

    Raises InputError if the results can't be published, with the reasons, or if `output` is another folder.
    """
    if output.exists() and not (output / entry.ENTRY).is_file() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output}: it is no entry of published results: name another folder with --output")
    ledger = claims.load(results / "claims.json")
    runs = [
        Run(str(file.parent.relative_to(results)), result)
        for file in sorted((results / "runs").rglob("result.json"))
        if (result := Result.load(file)).rung in TIMED
    ]
    problems = [*_problems(runs), *_loaded_profiles(results)]
    if why := checkout.unclean(ledger.origin.code):
        problems.append(f"claims.json: {why}: run gradsync claims again, in a clean checkout")
    if not runs:
        problems.append("nothing in them was timed: whatever else they hold, the quick configuration makes in minutes")
    if problems:
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise InputError(f"results {results}: they can't be published: {'; '.join(problems[:NAMED])}{more}")
    provenance = _provenance(config, name, runs, ledger.origin.code)
    decided = [each for each in ledger.verdicts if each.rung in TIMED and each.verdict != UNDECIDED]
    make_folder(output.parent)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as temporary:
        folder = Path(temporary) / output.name
        tables, too_large = _write_tables(results, folder)
        fields = provenance.model_dump(mode="json")
        write_whole(folder / entry.ENTRY, yaml.safe_dump(fields, sort_keys=False, width=120))
        write_whole(folder / entry.CONFIGURATION, reading.text(config, "configuration"))
        write_whole(folder / entry.LEDGER, claims.ledger_json(decided, ledger.origin))
        entry.load(folder)  # what can't be read again is not published
        if output.exists():
            shutil.rmtree(output)
        folder.rename(output)
    return {
        "published": str(output),
        "runs": len(runs),
        "verdicts": len(decided),
        "tables": tables,
        "too_large": too_large,
        "days": f"{provenance.first} to {provenance.last}",
    }


def _problems(runs: Iterable[Run]) -> Iterator[str]:
    """Why runs can't be published, launch by launch."""
    told: dict[tuple[str, str], None] = {}
    for where, result in runs:
        launch = str(Path(where).parent)
        if why := checkout.unclean(str(result.provenance.get("code", ""))):
            told[launch, why] = None
        elif not re.fullmatch(r"\d{4}-\d\d-\d\d", str(result.provenance.get("date", ""))):
            told[launch, "the day of the run is not known"] = None
        if quiet.load_warnings(result.provenance, launch):
            told[launch, f"{quiet.UNDER_LOAD} more than {quiet.QUIET:.0%} of the cores"] = None
    return (f"{launch}: {why}: delete the folder and run it again" for launch, why in told)


def _loaded_profiles(results: Path) -> Iterator[str]:
    """Profiles that plans and predictions come from and that were made on a busy machine."""
    for file in sorted((results / "profile").rglob("*")):
        where = str(file.relative_to(results))
        if file.suffix == ".json":
            content = reading.json_of(file, "profile")
            provenance = content.get("provenance") if isinstance(content, dict) else None
            yield from quiet.load_warnings(provenance if isinstance(provenance, dict) else {}, where)
        elif file.suffix == ".csv":
            yield from quiet.load_warnings_of_points(reading.text(file, "profile"), where)


def _provenance(config: str, name: str, runs: Sequence[Run], decided_by: str) -> Provenance:
    facts = [run.result.provenance for run in runs]
    days = sorted(str(each["date"]) for each in facts)
    cores = max(int(each.get("cores", 1)) for each in facts)
    file = Path(config).resolve()
    if not file.is_relative_to(Path.cwd()):
        raise InputError(f"configuration {config}: it lies outside of the checkout: name one of its configurations")
    shown = file.relative_to(Path.cwd()).as_posix()
    return Provenance(
        configuration=name,
        config=shown,
        command=f"snakemake --cores {cores} --configfile {shown}",
        commits=sorted({str(each["code"]) for each in facts}),
        decided_by=decided_by,
        first=days[0],
        last=days[-1],
        machines=sorted({_in_words(each) for each in facts}),
        runs=len(runs),
        rungs=[rung for rung in ("emulated", "measured") if any(run.result.rung == rung for run in runs)],
    )


def _in_words(provenance: dict[str, Any]) -> str:
    """`2 cores of Intel Xeon, Linux 6.18`: no host's name, and of the system only what it is."""
    system = re.match(r"\S+(?: \d+\.\d+)?", str(provenance.get("system", "")))
    nodes = int(provenance.get("nodes", 1))
    parts = [f"{provenance.get('cores', '?')} cores of {provenance.get('processor', 'an unknown processor')}"]
    parts += [f"on {nodes} nodes"] if nodes > 1 else []
    parts += [str(provenance["device"])] if provenance.get("device") else []
    return ", ".join([*parts, *([system[0]] if system else [])])


def _write_tables(results: Path, folder: Path) -> tuple[int, list[str]]:
    """Write the tables that have timed rows; returns how many, and those that are too large for an entry."""
    written, too_large = 0, []
    for file in sorted((results / "tables").glob("*/*.csv")):
        rows = timed(cells.read(file) or [])
        if not rows:
            continue
        name = file.relative_to(results / "tables")
        stream = io.StringIO()
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        text = reading.text(file.with_suffix(".md"), "table")
        if max(len(stream.getvalue()), len(text)) > MOST_BYTES:
            too_large.append(name.as_posix())
            continue
        write_whole(folder / entry.TABLES / name, stream.getvalue())
        write_whole(folder / entry.TABLES / name.with_suffix(".md"), text)
        written += 1
    return written, too_large
