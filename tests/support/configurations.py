"""The configuration that a test begins from: that of `quick.yaml`, with changes; a file of schemes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from gradsync.configuration import settings

ROOT = Path(__file__).parents[2]


def quick() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load((ROOT / "config" / "quick.yaml").read_text()))


def parse(**changes: object) -> settings.Settings:
    return settings.parse({**quick(), **changes}, "test.yaml")


def scheme_file(folder: Path, text: str) -> Path:
    path = folder / "schemes.yaml"
    path.write_text(text)
    return path
