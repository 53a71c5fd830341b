"""Whether a machine was quiet while something was timed on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

KEY = "other_work"  # in provenance: the share of the cores' time that other work took; missing if it is not known
QUIET = 0.1  # the largest share at which times are taken for those of the machine
UNDER_LOAD = "timed while other work took"


def known(provenance: Mapping[str, Any]) -> bool:
    """Whether anybody knows what share of the cores other work took."""
    return _share(provenance) is not None


def load_warnings(provenance: Mapping[str, Any], subject: str) -> list[str]:
    """A warning about `subject` if it was timed while other work took more than QUIET of the cores; else none."""
    share = _share(provenance)
    if share is None or not share > QUIET:
        return []
    return [f"{subject}: {UNDER_LOAD} {share:.0%} of the cores: measure again on a quiet machine"]


def load_warnings_of_points(text: str, subject: str) -> list[str]:
    """As `load_warnings`, for a file of points that has its provenance in comments."""
    return load_warnings(provenance_of_points(text), subject)


def provenance_of_points(text: str) -> dict[str, Any]:
    """The share that a file of points tells in its comments, as provenance has it; empty if it tells none."""
    comment = re.search(rf"^# {KEY}: ([0-9.e-]{{1,30}})$", text, re.MULTILINE)
    try:
        return {KEY: json.loads(comment[1])} if comment else {}
    except ValueError:
        return {}


def _share(provenance: Mapping[str, Any]) -> float | None:
    share = provenance.get(KEY)
    return share if isinstance(share, int | float) else None
