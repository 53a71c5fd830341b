"""`gradsync table`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument("paper", help="mgwfbp, bml_bcube, ...")
    parser.add_argument("id", nargs="+", help="as in the paper: table2, fig9a, ...")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Compute tables of a paper and write each as CSV, Markdown and LaTeX."""
    from gradsync.papers import compute, refuse_unknown_tables, tables

    settings, results = configured.load(options)
    refuse_unknown_tables(options.paper, options.id)
    rows, written = 0, []
    for name in options.id:
        table = compute(options.paper, name, settings, results)
        rows += len(table.frame)
        written += tables.write(table, results / "tables" / options.paper, name)
    return {"rows": rows, "written": written}
