"""Make an entry of published results from a folder of results; what others couldn't check is refused.

Refused are runs and verdicts made with uncommitted changes or by a commit that isn't known, what was timed while other
work took more than a tenth of the cores, runs of which nobody knows that, results of another configuration, and results
without anything that was timed.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gradsync import claims
from gradsync.claims import cells
from gradsync.claims.verdicts import UNDECIDED
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files import checkout, disk, reading
from gradsync.files.results import TIMED
from gradsync.files.writing import make_folder, write_whole
from gradsync.publication import entry, replace, whose
from gradsync.publication.entry import Provenance
from gradsync.publication.timed import timed
from gradsync.publication.whose import Run
from gradsync.statistics import quiet

MOST_BYTES = 500_000  # of a table: an entry is read in a checkout, and on the pages of the report
NAMED = 5  # reasons that a message has in full


def publish(config: str, settings: Settings, results: Path, output: Path) -> dict[str, Any]:
    """Write the entry `output` of a configuration, in the place of an earlier one; returns what it holds.

    `unwatched` are profiles of which nobody knows whether the machine was quiet.

    Raises InputError if the results can't be published, with the reasons, or if `output` holds anything else.
    """
    replace.refuse_place(output)
    ledger = claims.load(results / "claims.json")
    runs = whose.runs(results)
    whose.refuse_others(settings, results, ledger.origin, runs)
    runs = [run for run in runs if run.result.rung in TIMED]
    loaded, unwatched = _profiles(results)
    problems = [*_problems(runs), *loaded]
    if why := checkout.unclean(ledger.origin.code):
        problems.append(f"claims.json: {why}: run gradsync claims again, in a clean checkout")
    if not runs:
        problems.append("nothing in them was timed: whatever else they hold, the quick configuration makes in minutes")
    if problems:
        more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise InputError(f"results {results}: they can't be published: {'; '.join(problems[:NAMED])}{more}")
    shown = _in_checkout(config)
    decided = [each for each in ledger.verdicts if each.rung in TIMED and each.verdict != UNDECIDED]
    make_folder(output.parent)
    with (
        disk.explain_errors(output),
        tempfile.TemporaryDirectory(
            prefix=f".{output.name[:100]}.", dir=output.parent, ignore_cleanup_errors=True
        ) as beside,
    ):
        folder = Path(beside) / "entry"
        tables, too_large = _write_tables(results, folder)
        write_whole(folder / entry.CONFIGURATION, reading.text(config, "configuration"))
        write_whole(folder / entry.LEDGER, claims.ledger_json(decided, ledger.origin))
        provenance = _provenance(shown, settings.name, runs, ledger.origin.code, folder)
        fields = provenance.model_dump(mode="json")
        write_whole(folder / entry.ENTRY, yaml.safe_dump(fields, sort_keys=False, width=120))
        entry.load(folder)  # what can't be read again is not published
        replace.refuse_place(output)  # again: something may have come there since
        replace.put(folder, output)
    return {
        "published": str(output),
        "runs": len(runs),
        "verdicts": len(decided),
        "tables": tables,
        "too_large": too_large,
        "unwatched": unwatched,
        "days": f"{provenance.first} to {provenance.last}",
    }


def _problems(runs: Iterable[Run]) -> Iterator[str]:
    """Why runs can't be published, launch by launch."""
    told: dict[tuple[str, str], None] = {}
    for run in runs:
        provenance = run.result.provenance
        if why := checkout.unclean(str(provenance.get("code", ""))):
            told[run.launch, why] = None
        elif not re.fullmatch(r"\d{4}-\d\d-\d\d", str(provenance.get("date", ""))):
            told[run.launch, "the day of the run is not known"] = None
        if not quiet.known(provenance):
            told[run.launch, "whether other work ran on the cores meanwhile is not known"] = None
        elif quiet.load_warnings(provenance, run.launch):
            told[run.launch, f"{quiet.UNDER_LOAD} more than {quiet.QUIET:.0%} of the cores"] = None
    return (f"{launch}: {why}: delete the folder and run it again" for launch, why in told)


def _profiles(results: Path) -> tuple[list[str], list[str]]:
    """Of profiles that plans and predictions come from: warnings of those of a busy machine, and those unwatched."""
    warnings, unwatched = list[str](), list[str]()
    for file in sorted((results / "profile").rglob("*")):
        where = str(file.relative_to(results))
        if file.suffix == ".json":
            content = reading.json_of(file, "profile")
            recorded = content.get("provenance") if isinstance(content, dict) else None
            provenance = recorded if isinstance(recorded, dict) else {}
        elif file.suffix == ".csv":
            provenance = quiet.provenance_of_points(reading.text(file, "profile"))
        else:
            continue
        warnings += quiet.load_warnings(provenance, where)
        unwatched += [] if quiet.known(provenance) else [where]
    return warnings, unwatched


def _in_checkout(config: str) -> str:
    """The path of a configuration below the current folder; raises InputError if it lies elsewhere."""
    file = Path(config).resolve()
    if not file.is_relative_to(Path.cwd()):
        raise InputError(f"configuration {config}: it lies outside of the checkout: name one of its configurations")
    return file.relative_to(Path.cwd()).as_posix()


def _provenance(config: str, name: str, runs: Sequence[Run], decided_by: str, folder: Path) -> Provenance:
    facts = [run.result.provenance for run in runs]
    days = sorted(str(each["date"]) for each in facts)
    return Provenance(
        configuration=name,
        config=config,
        command=f"snakemake --cores {max(_count(each, 'cores') for each in facts)} --configfile {config}",
        commits=sorted({str(each["code"]) for each in facts}),
        decided_by=decided_by,
        first=days[0],
        last=days[-1],
        machines=sorted({_in_words(each) for each in facts}),
        runs=len(runs),
        rungs=[rung for rung in ("emulated", "measured") if any(run.result.rung == rung for run in runs)],
        files={
            path.relative_to(folder).as_posix(): entry.hash_of(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    )


def _count(provenance: Mapping[str, Any], key: str) -> int:
    """How many cores or nodes; 1 if it is not recorded."""
    value = provenance.get(key)
    return value if isinstance(value, int) else 1


def _in_words(provenance: dict[str, Any]) -> str:
    """`2 cores of Intel Xeon, Linux 6.18`: no host's name, and of the system only what it is."""
    system = re.match(r"\S+(?: \d+\.\d+)?", str(provenance.get("system", "")))
    nodes = _count(provenance, "nodes")
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
