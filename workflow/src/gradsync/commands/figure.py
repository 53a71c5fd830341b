"""`gradsync figure`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument("paper", help="mgwfbp, bml_bcube, ...")
    parser.add_argument("id", nargs="+", help="as in the paper: fig1, fig9a, ...")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Draw figures of a paper from its tables, each as SVG, PDF and PNG, with its data as CSV."""
    from gradsync.papers import figures

    settings, results = configured.load(options)
    figures.refuse_unknown(options.paper, options.id)
    return {"written": [path for name in options.id for path in figures.write(options.paper, name, settings, results)]}
