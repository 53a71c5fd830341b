"""Third-party measurements: the logs that the authors of MG-WFBP published with their code.

They are obtained, never kept in this repository: from a folder, else by one attempt to fetch them from the authors'
repository at a fixed commit. Their SHA-256 is checked, so that every user gets the same inputs.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradsync import reading
from gradsync.errors import InputError
from gradsync.results import write_whole
from gradsync.workload import Layer, Workload
from gradsync.writing import make_folder

COMMIT = "1e8a70d84cbe9524a249fa907c634a0ca89c57fb"
ADDRESS = f"https://raw.githubusercontent.com/shyhuai/B-Caffe/{COMMIT}/logdata"
SHA256 = {
    "allreduce2.log": "934f82d6a0796995d9b6ff131380b3f835b97b00653c0fc5a99d4e172f4affb4",
    "allreduce8.log": "6603f4d4f7755f8abd64ea5caef594ba853545e593e44646e3f3f6c6b7d720d5",
    "tmp8comm.log": "bf50599d3cdd96210070fb0f33e31a60082c194ed5f0956c96e8936186d87df7",
}
FETCH_SECONDS = 10.0
VARIABLE = "GRADSYNC_EXTERNAL_DATA"
NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"  # not negative


def obtain(folder: str | None, output: Path) -> dict[str, Any]:
    """Copy or fetch the logs into `output` and write `status.json` there: whether they are available, else why not.

    Raises InputError where a named folder is missing or a file in it is not the published one: a user who names a
    folder wants those files, not silence.
    """
    make_folder(output)
    named = folder or os.environ.get(VARIABLE)
    if named:
        contents, origin = _local(Path(named)), f"folder {named}"
    else:
        try:
            contents, origin = _fetch(), ADDRESS
        except (OSError, InputError, http.client.HTTPException) as error:
            status = {
                "available": False,
                "reason": f"third-party logs not available (no folder named; {ADDRESS}: {error}): "
                f"set external_data in the configuration or {VARIABLE} to a folder that holds them",
            }
            write_whole(output / "status.json", json.dumps(status, indent=1) + "\n")
            return status
    for name, content in contents.items():
        write_whole(output / name, content)
    status = {"available": True, "origin": origin, "sha256": SHA256}
    write_whole(output / "status.json", json.dumps(status, indent=1) + "\n")
    return status


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


def _fetch() -> dict[str, bytes]:
    deadline = time.monotonic() + FETCH_SECONDS
    contents = {}
    for name in SHA256:
        left = deadline - time.monotonic()
        if left <= 0:
            raise OSError(f"not fetched within {FETCH_SECONDS:g} s")
        with urllib.request.urlopen(f"{ADDRESS}/{name}", timeout=left) as answer:
            contents[name] = _read(answer, deadline)
        _verify(name, contents[name], f"{ADDRESS}/{name}")
    return contents


def _read(answer: Any, deadline: float) -> bytes:
    """All of an answer, piece by piece: the timeout of a connection only limits each wait."""
    parts = []
    while part := answer.read1(64 * 1024):
        parts.append(part)
        if time.monotonic() > deadline:
            raise OSError(f"not fetched within {FETCH_SECONDS:g} s")
    if answer.length:
        raise http.client.IncompleteRead(b"".join(parts), answer.length)
    return b"".join(parts)


def _verify(name: str, content: bytes, where: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise InputError(
            f"third-party logs: {where} is not the published file: SHA-256 {found}, expected {SHA256[name]}"
        )


def status(folder: Path) -> dict[str, Any]:
    """What `obtain` left in `folder`."""
    try:
        found = json.loads((folder / "status.json").read_text())
        if not isinstance(found, dict) or not isinstance(found.get("available"), bool):
            raise ValueError("does not say whether the logs are available")
        return found
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / 'status.json'}: {error}: run `gradsync external` again") from None


class LoggedLayer(NamedTuple):
    """A weight and its bias in one iteration of a layer log; layer 0 is next to the input."""

    elements: int
    backward_seconds: float
    allreduce_seconds: float


def _layers(path: Path) -> list[LoggedLayer]:
    """The layers of a B-Caffe log: rows `[id, elements, backward_us, allreduce_us, allreduce_us_of_merged]`.

    The last iteration in the file counts. A weight row and the bias row after it share one backward time and are
    one layer; their elements and all-reduce times add up. Raises InputError with file and line for a row that is none.
    """
    rows: list[tuple[int, int, float, float]] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        found = re.search(rf"\[(\d+), ([1-9]\d*), ({NUMBER}), ({NUMBER}), {NUMBER}\]\s*$", line)
        if found is None:
            raise InputError(f"{path}, line {number}: not a row [id, elements, backward_us, allreduce_us, merged_us]")
        if int(found[1]) == 0:
            rows = []  # a new iteration
        rows.append((int(found[1]), int(found[2]), float(found[3]), float(found[4])))
    if not rows or len(rows) % 2 or [row[0] for row in rows] != list(range(len(rows))):
        raise InputError(
            f"{path}: the last iteration has {len(rows)} rows; weights and biases must come in pairs from 0"
        )
    return [
        LoggedLayer(weight[1] + bias[1], weight[2] * 1e-6, (weight[3] + bias[3]) * 1e-6)
        for weight, bias in zip(rows[0::2], rows[1::2], strict=True)
    ]


def layer_log(path: Path, *, forward_share: float) -> Workload:
    """The workload of a B-Caffe layer log; `forward_share`: t_f as a share of t_b, which the log does not hold."""
    layers = [
        Layer(
            name=f"layer{number}",
            bytes=4 * layer.elements,
            elements=layer.elements,
            backward_seconds=layer.backward_seconds,
        )
        for number, layer in enumerate(_layers(path))
    ]
    t_b = sum(layer.backward_seconds for layer in layers)
    return Workload(
        name="googlenet",
        forward_seconds=forward_share * t_b,
        layers=tuple(reversed(layers)),
        provenance={
            "measured": "third party: B-Caffe log tmp8comm.log, GoogLeNet, batch 64, Tesla K80, 8 nodes, 10 GbE",
            "assumed": f"forward seconds: {forward_share:g} of the backward seconds (not in the log)",
        },
    )


def layer_allreduces(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, seconds) of the all-reduce of each layer of a B-Caffe log, as training waited for it."""
    layers = _layers(path)
    return np.array([4.0 * layer.elements for layer in layers]), np.array([layer.allreduce_seconds for layer in layers])


def osu_log(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, seconds) of an OSU all-reduce latency log with rows `nodes,bytes microseconds`."""
    sizes, times = [], []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = re.fullmatch(rf"\d+,(\d+)\s+({NUMBER})", line.strip())
        if found is None:
            raise InputError(f"{path}, line {number}: not a row `nodes,bytes microseconds`: {line.strip()!r}")
        sizes.append(float(found[1]))
        times.append(float(found[2]) * 1e-6)
    return np.array(sizes), np.array(times)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}") from None
