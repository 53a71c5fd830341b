"""The published testbed that a configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gradsync.errors import InputError
from gradsync.settings import Settings


def cluster(settings: Settings) -> dict[str, Any]:
    """Its numbers; raises InputError with file and key where one that is needed is not there."""
    try:
        content = yaml.safe_load(Path(settings.cluster).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cluster {settings.cluster}: {' '.join(str(error).split())}") from None
    for key in ("alpha_seconds", "link_bits_per_second", "slope_hint_seconds_per_byte"):
        try:
            found = content[key]["value"]
        except (KeyError, TypeError):
            found = None
        if not isinstance(found, int | float):
            raise InputError(f"cluster {settings.cluster}: {key}: needs a value, a number")
    return content
