"""How long the jobs behind a file took when they last ran, one after the other, by Snakemake's own records."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDS = Path(".snakemake/metadata")


class Records:
    """Records of the last runs, by the path of each file that was made."""

    def __init__(self, folder: Path = RECORDS) -> None:
        self._records = dict(_read(folder))

    def minutes(self, path: str) -> float | None:
        """What making a file took, with every job that it waits for; None if there is no record of it."""
        if path not in self._records:
            return None
        seconds: dict[tuple[str, str], float] = {}  # jobs of several outputs count once
        seen, to_visit = {path}, [path]
        while to_visit:
            record = self._records[to_visit.pop()]
            seconds[record["rule"], str(record.get("log"))] = record["endtime"] - record["starttime"]
            new = [name for name in record.get("input") or () if name in self._records and name not in seen]
            seen.update(new)
            to_visit += new
        return sum(seconds.values()) / 60


def _read(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        try:
            # a long name is split into folders, each but the last with an @ before it
            parts = (part.removeprefix("@") for part in file.relative_to(folder).parts)
            record = json.loads(file.read_text())
            if _timed(record) and not record.get("incomplete"):
                yield urlsafe_b64decode("".join(parts)).decode(), record
        except (OSError, ValueError):
            continue


def _timed(record: Any) -> bool:
    """Whether it is a record that tells its rule, its inputs and its times."""
    return (
        isinstance(record, dict)
        and isinstance(record.get("rule"), str)
        and isinstance(record.get("input") or [], list)
        and all(isinstance(record.get(key), int | float) for key in ("starttime", "endtime"))
    )
