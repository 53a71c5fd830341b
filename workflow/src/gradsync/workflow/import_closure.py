"""The code behind a stage of the workflow: its entry, and every module of the package that the entry comes to import.

Imports are read from the sources (grimp), those inside functions too. A package that finds its modules by itself, such
as the schedules, can load any of them: all count.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import grimp

PACKAGE = __name__.partition(".")[0]
FINDS_ITS_MODULES = "modules_in(__path__)"
HANDS_OVER = (f"{PACKAGE}.commands", f"{PACKAGE}.papers")  # they call one of their modules, which the entries name


def digest(*entries: str) -> str:
    """16 digits that change with the code behind `entries` (modules below the package, `runtime.train`).

    Raises KeyError for a module that does not exist.
    """
    content_hash = hashlib.sha256()
    for module in modules(*entries):
        content_hash.update(module.encode() + b"\0" + _source(module))
    return content_hash.hexdigest()[:16]


def modules(*entries: str) -> list[str]:
    """Every module behind `entries`, and they themselves, by their full names, sorted."""
    graph, reached = _graph(), set[str]()
    to_visit = [f"{PACKAGE}.{entry}" for entry in entries]
    if unknown := [module for module in to_visit if module not in graph.modules]:
        raise KeyError(f"{', '.join(unknown)}: not in the package any more")
    while to_visit:
        module = to_visit.pop()
        if module in reached:
            continue
        reached.add(module)
        if module in HANDS_OVER:
            continue
        to_visit += graph.find_modules_directly_imported_by(module)
        if "." in module:
            to_visit.append(module.rpartition(".")[0])  # whose __init__.py runs first
        if FINDS_ITS_MODULES.encode() in _source(module):
            to_visit += graph.find_children(module)
    return sorted(reached)


@cache
def _graph() -> Any:
    return grimp.build_graph(PACKAGE, cache_dir=None)


@cache
def _source(module: str) -> bytes:
    root = Path(str(sys.modules[PACKAGE].__file__)).parent
    path = root.joinpath(*module.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_bytes()
