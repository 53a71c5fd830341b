"""Archives with anything odd in them are compared or refused, and never end in a traceback."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradsync import claims, cli
from gradsync.artifact.promises import IDENTICAL, RUNS, TIMING, TOLERANCE
from gradsync.claims import CONFIRMED, Verdict
from gradsync.files.results import Result
from hostile import changed, positions

FOLDER = "gradsync-quick"
RUN = Result(
    rung="measured",
    scheme="wfbp",
    model="lenet5",
    ranks=2,
    settings={"plan": "p1", "batch": 8},
    conformance={"parameters_sha256": "w1"},
)
VERDICT = Verdict("toy", "fast", "Fig. 1", "it is fast", "fig1", "simulated", CONFIRMED, "", True)
TABLE = "rung,scheme,launch,seconds,seconds_samples\nderived,wfbp,,1,[1.0]\nsimulated,wfbp,,2,\nmeasured,wfbp,a,3,\n"
CONTENTS = {
    "claims.json": (claims.ledger_json([VERDICT]), TIMING),
    "counted/lenet5/workload.json": ('{"layers": [{"name": "a", "bytes": 8}], "seconds": 0.5}', IDENTICAL),
    "runs/train/lenet5-2/wfbp/result.json": (RUN.model_dump_json(), TIMING),
    "tables/toy/fig1.csv": (TABLE, TOLERANCE),
    "tables/toy/fig2.csv": (TABLE, RUNS),
}
ODD: list[Any] = [None, True, -1, 0, 1.5, 10**39, "", "x", "\0", "../x", "results/x", [], [[]], {}, {"a": None}]
CELLS = [
    "",
    "nan",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "[" * 3000,
    "[1,",
    '"',
    ",",
    "\0",
    "\ufeff",
    "é",
    "-0",
    "x" * 140_000,
]


def manifest(contents: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "version": 2,
        "gradsync": "0",
        "configuration": "quick",
        "config": "config/quick.yaml",
        "code": "0123456789ab",
        "made": "",
        "promises": {},
        "images": [],
        "left_out": [],
        "files": [
            {
                "path": f"results/{name}",
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "promise": CONTENTS[name][1],
            }
            for name, content in contents.items()
        ],
    }


def packed(path: Path, listed: Any, contents: Mapping[str, bytes], more: tuple[tarfile.TarInfo, ...] = ()) -> None:
    files = {
        "MANIFEST.json": json.dumps(listed).encode(),
        **{f"results/{name}": each for name, each in contents.items()},
    }
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member, io.BytesIO(bytes(max(0, member.size))))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results, and room for an archive."""
    folder = tmp_path_factory.mktemp("odd")
    for name, (text, _) in CONTENTS.items():
        (folder / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "results" / name).write_text(text)
    return folder


def ended(place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """How a comparison of the archive ends, and what it says; any exception fails the test by itself."""
    status = cli.main(["compare", str(place / "a.tar.gz"), str(place / "results"), "--json"])
    shown = capsys.readouterr()
    assert status in (0, 1, 2)
    assert bool(shown.err.strip()) == bool(status)
    assert bool(shown.out.strip()) == (status != 2)
    assert "gradsync-artifact-" not in shown.err + shown.out
    return status, shown.err + shown.out


BOUNDED = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RIGHT = {name: text.encode() for name, (text, _) in CONTENTS.items()}


def test_what_is_changed_is_right_as_it_stands(place, capsys):
    packed(place / "a.tar.gz", manifest(RIGHT), RIGHT)
    status, said = ended(place, capsys)
    assert (status, json.loads(said)["what_differs"]) == (0, "nothing")


@BOUNDED
@given(data=st.data())
def test_bytes_of_an_archive_that_changed_on_the_way(place, capsys, data):
    """As it is stored, and as it is unpacked: then the checksum of gzip is right."""
    packed(place / "a.tar.gz", manifest(RIGHT), RIGHT)
    whole = (place / "a.tar.gz").read_bytes()
    inner = data.draw(st.booleans())
    content = bytearray(gzip.decompress(whole) if inner else whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content)) | st.just(len(content))) :]
    (place / "a.tar.gz").write_bytes(gzip.compress(content, 1) if inner else bytes(content))
    ended(place, capsys)


@BOUNDED
@given(data=st.data())
def test_members_that_no_archive_has(place, capsys, data):
    """Names, kinds, sizes and headers of extended archives."""
    member = tarfile.TarInfo()
    known = st.sampled_from([f"{FOLDER}/results/{name}" for name in CONTENTS])
    odd = st.text(max_size=9) | st.sampled_from(["..", ".", "/", "//", "", "x" * 300, "a/" * 3000])
    member.name = data.draw(known) + data.draw(st.sampled_from(["", "/more", "/", "/.."]) | odd)
    member.type = data.draw(st.sampled_from([bytes([kind]) for kind in b"01234567LKSxgAV?"]))
    member.size = data.draw(st.sampled_from([0, 1, 512, 100_000]))
    member.linkname = data.draw(odd)
    key = data.draw(st.sampled_from(["path", "size", "mtime", "GNU.sparse.map", "GNU.sparse.size", "hdrcharset"]))
    member.pax_headers = {key: data.draw(odd | st.sampled_from(["-1", "1e9", "9" * 30, "0,1", "BINARY"]))}
    try:
        packed(place / "a.tar.gz", manifest(RIGHT), RIGHT, (member,))
    except (ValueError, UnicodeError):  # what tarfile itself can't write
        return
    ended(place, capsys)


@BOUNDED
@given(data=st.data())
def test_json_and_tables_with_one_odd_value(place, capsys, data):
    """In the manifest, or in a file that the manifest knows of."""
    contents, listed = dict(RIGHT), None
    name = data.draw(st.sampled_from(["MANIFEST.json", *CONTENTS]))
    if name.endswith(".csv"):
        text = CONTENTS[name][0]
        at = data.draw(st.integers(0, len(text)))
        contents[name] = (text[:at] + data.draw(st.sampled_from(CELLS)) + text[at:]).encode()
    else:
        content = manifest(RIGHT) if name == "MANIFEST.json" else json.loads(CONTENTS[name][0])
        content = changed(content, data.draw(st.sampled_from([*positions(content)])), data.draw(st.sampled_from(ODD)))
        if name == "MANIFEST.json":
            listed = content
        else:
            contents[name] = json.dumps(content).encode()
            cut = data.draw(st.integers(1, len(contents[name])) | st.just(len(contents[name])))
            contents[name] = contents[name][:cut]
    packed(place / "a.tar.gz", manifest(contents) if listed is None else listed, contents)
    ended(place, capsys)
