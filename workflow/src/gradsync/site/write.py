"""Write the pages of the site: their templates are those of `reports/site/`, their content is that of the results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gradsync import claims, publication
from gradsync.claims import Changes, Judged, Ledger, Origin, Remedies, Verdict, published
from gradsync.claims.published import Paper
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files import packaged
from gradsync.files.results import write_whole
from gradsync.papers.declaration import Place
from gradsync.papers.labels import labels
from gradsync.publication import Entry
from gradsync.site import claimed, earlier
from gradsync.site.coverage import coverage, systems
from gradsync.site.links import FOLDER, Links
from gradsync.site.runs import mlflow_command, runs
from gradsync.site.scoreboard import SHOWN, score
from gradsync.site.sections import sections

TEMPLATES = packaged.file("reports/site")
COPIED = ("style.css", "tables.js")


def write(config: str, settings: Settings, results: Path, folder: Path) -> list[Path]:
    """Write `site/*` below the results of a configuration, and return the paths; the first is that of the start page.

    `folder` is the one of configurations, which tells what would decide open claims, and has the files of papers that
    the configuration doesn't show, and results that were published. Raises InputError if a result can't be read or the
    templates are missing.
    """
    if not TEMPLATES.is_dir():
        raise InputError(
            f"{TEMPLATES}: no such folder: the site is made in a checkout of the project, by its templates"
        )
    shown = {name: published.of_paper(name, paper.published) for name, paper in settings.papers.items()}
    ledger = _ledger(results / "claims.json")
    verdicts = [verdict for verdict in ledger.verdicts if verdict.paper in shown]
    judged = {name: claims.by_claim([each for each in verdicts if each.paper == name]) for name in shown}
    entries = publication.entries(folder / publication.FOLDER)
    environment = _environment(config, settings, results, shown)
    environment.globals |= {"entries": entries, "earlier": earlier.verdicts(entries, verdicts)}
    pages = {
        "index": _index(shown, judged, verdicts, Remedies.of(config, settings, shown.values(), folder), ledger.changes),
        **{
            name: _paper(paper, judged[name], Place(name, settings, results), config, entries)
            for name, paper in shown.items()
        },
        "ledger": {"claims": [claimed.claimed(each) for papers in judged.values() for each in papers]},
        "coverage": _coverage(settings, results, shown, folder),
        "runs": {"runs": runs(results), "mlflow": mlflow_command(results)},
    }
    written = []
    for name, content in pages.items():
        template = environment.get_template("paper.html" if name in shown else f"{name}.html")
        written.append(results / FOLDER / f"{name}.html")
        write_whole(written[-1], template.render(page=name, **content))
    for name in COPIED:
        written.append(results / FOLDER / name)
        write_whole(written[-1], (TEMPLATES / name).read_bytes())
    return written


def code(text: str) -> Markup:
    """The text, escaped, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _environment(config: str, settings: Settings, results: Path, papers: Mapping[str, Paper]) -> Environment:
    """The templates, with what all pages share."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": code, "style": claimed.style, "short": lambda kind: claimed.SHORT[kind]}
    environment.globals |= {
        "papers": papers,
        "configuration": settings.name,
        "config": config,
        "rungs": claimed.RUNGS,
        "known_kinds": claims.KINDS,
        "label": labels(settings),
        "links": Links(results),
        "decide": f"snakemake --cores 2 {results}/claims.json --configfile {config}",
    }
    return environment


def _ledger(path: Path) -> Ledger:
    """The ledger; one without verdicts if it has not been made yet."""
    return claims.load(path) if path.is_file() else Ledger([], Origin(), None)


def _index(
    papers: Mapping[str, Paper],
    judged: Mapping[str, list[Judged]],
    verdicts: Sequence[Verdict],
    remedies: Remedies,
    changes: Changes | None,
) -> dict[str, Any]:
    nowhere = {(each.paper, each.verdicts[0].claim) for found in judged.values() for each in found if not each.decided}
    undecided = [verdict for verdict in verdicts if (verdict.paper, verdict.claim) in nowhere]
    return {
        "scores": [score(paper, judged[name]) for name, paper in papers.items() if judged[name]],
        "kinds": [*SHOWN],
        "open": claims.open_verdicts(undecided, remedies.remedy),
        "changes": changes,
        "claims": {(each.paper, each.verdicts[0].claim) for found in judged.values() for each in found},
    }


def _paper(
    paper: Paper, judged: Sequence[Judged], place: Place, config: str, entries: Sequence[Entry]
) -> dict[str, Any]:
    of_paper = [claimed.claimed(each) for each in judged]
    made = sections(paper, of_paper, place, config, entries)
    told = {remark.id for section in made for remark in section.errata}
    ids = {section.id for section in made}
    return {
        "paper": paper,
        "sections": made,
        "score": score(paper, judged) if judged else None,
        "kinds": [*SHOWN],
        "others": [remark for remark in paper.remarks if remark.id not in told],
        "elsewhere": [entry for entry in paper.published if entry.table not in ids],
    }


def _coverage(settings: Settings, results: Path, papers: Mapping[str, Paper], folder: Path) -> dict[str, Any]:
    covered = coverage(settings, results)
    files = sorted((folder / "papers").glob("*/published.yaml"))
    others = [published.load(file) for file in files if file.parent.name not in papers]
    return {"covered": covered, "systems": systems([*papers.values(), *others], settings, covered)}
