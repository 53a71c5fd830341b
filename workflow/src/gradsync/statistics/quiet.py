"""Whether a machine was quiet while something was timed on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

KEY = "other_work"  # in provenance: the share of the cores' time that work of others took; not there if not known
QUIET = 0.1  # the largest share at which times are taken for those of the machine
UNDER_LOAD = "timed while other work took"


def told(provenance: Mapping[str, Any], what: str) -> list[str]:
    """What to say of `what` was timed while other work took more than QUIET of the cores; nothing if none did."""
    share = provenance.get(KEY)
    if not isinstance(share, int | float) or not share > QUIET:
        return []
    return [f"{what}: {UNDER_LOAD} {share:.0%} of the cores: measure again on a quiet machine"]


def told_of_points(text: str, what: str) -> list[str]:
    """As `told`, of a file of points whose provenance stands in its comments."""
    line = re.search(rf"^# {KEY}: ([0-9.e-]{{1,30}})$", text, re.MULTILINE)
    try:
        return told({KEY: json.loads(line[1])} if line else {}, what)
    except ValueError:
        return []
