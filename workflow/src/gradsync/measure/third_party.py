"""The logs that the authors of MG-WFBP published with their code, which check what this repository carries over.

Nothing is made from them: figures and claims come from the tables in `carried`. Somebody who has the logs in a folder
can compute these tables again and hold them against the carried ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.results import write_whole
from gradsync.files.writing import make_folder
from gradsync.measure import carried
from gradsync.measure.carried import LoggedAllreduce, LoggedLayer

COMMIT = "1e8a70d84cbe9524a249fa907c634a0ca89c57fb"
ADDRESS = f"https://github.com/shyhuai/B-Caffe/tree/{COMMIT}/logdata"
SHA256 = {
    "allreduce2.log": "934f82d6a0796995d9b6ff131380b3f835b97b00653c0fc5a99d4e172f4affb4",
    "allreduce8.log": "6603f4d4f7755f8abd64ea5caef594ba853545e593e44646e3f3f6c6b7d720d5",
    "tmp8comm.log": "bf50599d3cdd96210070fb0f33e31a60082c194ed5f0956c96e8936186d87df7",
}
VARIABLE = "GRADSYNC_EXTERNAL_DATA"
NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"  # not negative


def check(folder: str | None, output: Path) -> dict[str, Any]:
    """Hold the carried tables against the logs in a folder, and write the outcome into `output` as `status.json`.

    Raises InputError if no folder is named or it is missing, a file in it is not the published one, or a table
    differs from what its log says.
    """
    named = folder or os.environ.get(VARIABLE)
    if not named:
        raise InputError(
            f"third-party logs: no folder named: set external_data in the configuration or {VARIABLE} to one that "
            f"holds {', '.join(SHA256)} of {ADDRESS}; no figure and no claim needs them"
        )
    logs = _local(Path(named))
    _compare(carried.LAYERS, carried.layers(), parsed_layers(logs["tmp8comm.log"].decode(), "tmp8comm.log"))
    points = [
        point for n in (2, 8) for point in parsed_allreduces(logs[f"allreduce{n}.log"].decode(), f"allreduce{n}.log")
    ]
    _compare(carried.ALLREDUCES, carried.benchmark(), points)
    make_folder(output)
    status = {"agree": True, "origin": f"folder {named}", "sha256": SHA256}
    write_whole(output / "status.json", json.dumps(status, indent=1) + "\n")
    return status


def _compare(path: Path, carried_rows: Sequence[object], logged_rows: Sequence[object]) -> None:
    """Raises InputError for the first row of a carried table that differs from its log."""
    for number, (row, logged) in enumerate(zip(carried_rows, logged_rows, strict=False), 1):
        if row != logged:
            raise InputError(f"{path}: row {number} is {row}, and the log says {logged}: restore the file")
    if len(carried_rows) != len(logged_rows):
        raise InputError(f"{path}: has {len(carried_rows)} rows, and the log {len(logged_rows)}: restore the file")


def _local(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        raise InputError(f"third-party logs: folder {folder} does not exist")
    # the folder itself, or the repository's name in it
    place = next(
        (place for place in (folder, folder / "bcaffe", folder / "logdata") if (place / "tmp8comm.log").is_file()), None
    )
    if place is None:
        raise InputError(f"third-party logs: {folder} holds no tmp8comm.log: it must hold {', '.join(SHA256)}")
    contents = {}
    for name in SHA256:
        contents[name] = reading.raw(place / name, "third-party log")
        _verify(name, contents[name], str(place / name))
    return contents


def _verify(name: str, content: bytes, path: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        raise InputError(
            f"third-party logs: {path} is not the published file: SHA-256 {digest}, expected {SHA256[name]}"
        )


def parsed_layers(text: str, source: str) -> list[LoggedLayer]:
    """The layers of a B-Caffe log: rows `[id, elements, backward_us, allreduce_us, allreduce_us_of_merged]`.

    The last iteration in the file counts. A weight row and the bias row after it share one backward time and are
    one layer; their elements and all-reduce times add up. Raises InputError with file and line for a row that is none.
    """
    rows: list[tuple[int, int, float, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = re.search(rf"\[(\d+), ([1-9]\d*), ({NUMBER}), ({NUMBER}), {NUMBER}\]\s*$", line)
        if match is None:
            raise InputError(f"{source}, line {number}: not a row [id, elements, backward_us, allreduce_us, merged_us]")
        if int(match[1]) == 0:
            rows = []  # a new iteration
        rows.append((int(match[1]), int(match[2]), float(match[3]), float(match[4])))
    if not rows or len(rows) % 2 or [row[0] for row in rows] != list(range(len(rows))):
        raise InputError(
            f"{source}: the last iteration has {len(rows)} rows; weights and biases must come in pairs from 0"
        )
    return [
        LoggedLayer(weight[1] + bias[1], weight[2], weight[3] + bias[3])
        for weight, bias in zip(rows[0::2], rows[1::2], strict=True)
    ]


def parsed_allreduces(text: str, source: str) -> list[LoggedAllreduce]:
    """The points of an OSU all-reduce latency log with rows `nodes,bytes microseconds`.

    Raises InputError with file and line for a row that is none.
    """
    points = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(rf"(\d+),(\d+)\s+({NUMBER})", line.strip())
        if match is None:
            raise InputError(f"{source}, line {number}: not a row `nodes,bytes microseconds`: {line.strip()!r}")
        points.append(LoggedAllreduce(int(match[1]), int(match[2]), float(match[3])))
    return points
