"""`gradsync claims`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.commands import configured

CONFIGURATIONS = Path("config")  # of the checkout that a command runs in


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Decide every claim of the papers on the tables that are there, and tell which verdicts changed."""
    from datetime import UTC, datetime

    from gradsync import claims
    from gradsync.claims import published
    from gradsync.files import checkout
    from gradsync.files.results import write_whole

    settings, results = configured.load_with_results(options)
    files = {name: Path(paper.published) for name, paper in settings.papers.items()}
    papers = [published.of_paper(name, file) for name, file in files.items()]
    verdicts = [verdict for file in files.values() for verdict in claims.evaluate(file, results / "tables")]
    remedies = claims.Remedies.of(options.config, settings, papers, CONFIGURATIONS)
    origin = claims.Origin(datetime.now(UTC).isoformat(timespec="seconds"), checkout.running(), settings.name)
    changes = claims.keep(results, verdicts, origin)
    write_whole(results / "claims.json", claims.ledger_json(verdicts, origin, changes))
    write_whole(results / "claims.md", claims.page(verdicts, remedies.remedy, changes))
    judged = claims.by_claim(verdicts)
    told = {} if changes is None else {"changed": len(changes.verdicts)}
    return {"claims": len(judged), **claims.counts(judged), **told}
