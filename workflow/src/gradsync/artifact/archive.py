"""The archive as a file: the same results in the same checkout give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from gradsync import __version__, claims
from gradsync.artifact import manifest
from gradsync.artifact.manifest import File, Image, Manifest
from gradsync.artifact.promises import PROMISES, SOURCE, Promise, Promises
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.writing import replacing
from gradsync.publication import whose

MOST_BYTES = 2 << 20  # of a trace, a plan or a log: a larger one is named in the manifest, and left out
MOST_UNPACKED = 512 << 20  # bytes: the quick configuration's results have some 34 million
RESULTS, CHECKOUT, INSTALLED = "results", "checkout", "environment/installed.txt"
LEFT = ("site", "ledgers", "benchmarks", "tracked.json")  # can be made again, or belongs to one machine
SOURCES = ("envs/*.txt", "config/*.yaml", "config/papers/*/*", "CITATION.cff", "LICENSE", "docs/artifact.md")


def write(config: str, settings: Settings, results: Path, output: Path) -> dict[str, Any]:
    """Write the archive of a configuration's results; returns what is in it.

    Raises InputError if the claims haven't been decided, if the results are another configuration's, or if a file can't
    be read or written.
    """
    ledger = claims.load(results / "claims.json")
    if link := next((path for path in sorted(results.rglob("*")) if path.is_symlink()), None):
        raise InputError(f"{link}: it is a link, and an archive holds files alone: put what it leads to in its place")
    whose.refuse_others(settings, results, ledger.origin, whose.runs(results))
    contents: dict[str, tuple[bytes, Promise]] = {}
    left_out = []
    promises = Promises(settings, results)
    for path in below(results):
        name = path.relative_to(results)
        if path.stat().st_size > MOST_BYTES and not (path.suffix == ".csv" or path.name == "result.json"):
            left_out.append(name.as_posix())
            continue
        contents[f"{RESULTS}/{name.as_posix()}"] = reading.raw(path, "result"), promises.of(name)
    sources = {path for pattern in SOURCES for path in Path().glob(pattern) if path.is_file()} | {Path(config)}
    for path in sorted(sources):
        shown = path.name if path.is_absolute() else path.as_posix()
        contents[f"{CHECKOUT}/{shown}"] = reading.raw(path, "file of the checkout"), SOURCE
    contents[INSTALLED] = "".join(f"{line}\n" for line in installed()).encode(), SOURCE
    listed = Manifest(
        gradsync=__version__,
        configuration=settings.name,
        config=Path(config).name if Path(config).is_absolute() else config,
        code=ledger.origin.code,
        made=ledger.origin.time,
        promises=PROMISES,
        images=[Image(file=str(path), sha256=_hash_of_file(path)) for path in sorted(Path("containers").glob("*.sif"))],
        left_out=left_out,
        files=[
            File(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), promise=promise)
            for name, (content, promise) in sorted(contents.items())
        ],
    )
    files = {manifest.NAME: listed.model_dump_json(indent=1).encode() + b"\n"}
    files |= {name: content for name, (content, _) in sorted(contents.items())}
    with replacing(output) as temporary:
        _pack(temporary, f"gradsync-{settings.name}", files)
    return {
        "artifact": str(output),
        "bytes": output.stat().st_size,
        "sha256": _hash_of_file(output),
        "code": listed.code or "not known",
        "files": len(listed.files),
        "left_out": left_out,
    }


def read(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """(the manifest, the content of each of its files); raises InputError if anything in it isn't as it was written."""
    files: dict[str, bytes] = {}
    try:
        for name, content in _members(path):
            if name in files:
                raise InputError(f"artifact {path}: {reading.shown(name)} is there twice: get the archive again")
            files[name] = content
    except (OSError, EOFError, ValueError, OverflowError, zlib.error, tarfile.TarError) as error:
        raise InputError(f"artifact {path}: can't be read: {error}") from None
    if inner := next((name for name in files for folder in PurePosixPath(name).parents if str(folder) in files), None):
        raise InputError(f"artifact {path}: {reading.shown(inner)} lies in what is a file: get the archive again")
    if manifest.NAME not in files:
        raise InputError(f"artifact {path}: it has no {manifest.NAME}: make it with `gradsync artifact`")
    listed = manifest.parse(files.pop(manifest.NAME).decode(errors="replace"), f"artifact {path}, {manifest.NAME}")
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    wanted = {each.path: each.sha256 for each in listed.files}
    if odd := sorted(name for name in {*hashes, *wanted} if hashes.get(name) != wanted.get(name)):
        raise InputError(f"artifact {path}: {odd[0]!a} is not what the manifest says: get the archive again")
    return listed, files


def installed() -> list[str]:
    """`name==version` of every package of this environment, sorted."""
    known = {(each.metadata["Name"] or "").lower(): each.version for each in importlib.metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in known.items() if name)


def below(results: Path) -> Iterator[Path]:
    """Every file of results that an archive of them has, or names as left out; sorted."""
    for path in sorted(results.rglob("*")):
        if path.is_file() and path.relative_to(results).parts[0] not in LEFT and not path.name.startswith("."):
            yield path


def is_log(name: str) -> bool:
    """Whether a file below the results is a job's log: which there are follows from when jobs ran."""
    return name.startswith("logs/")


def _pack(target: Path, folder: str, files: dict[str, bytes]) -> None:
    with (
        target.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """(path below the archive's folder, content) of each file; anything but files below one folder is refused."""
    with gzip.open(path) as packed:  # with all that is no content of a file, as long names are
        unpacked = packed.read(MOST_UNPACKED + 1)
    if len(unpacked) > MOST_UNPACKED:
        raise InputError(f"artifact {path}: more than {MOST_UNPACKED >> 20} MiB unpacked")
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
        for member in archive:
            reading.refuse_path(member.name, f"artifact {path}")
            parts = PurePosixPath(member.name).parts
            whole = member.isreg() and not member.issparse() and 0 <= member.size <= len(unpacked)
            content = archive.extractfile(member) if whole else None
            if content is None or len(parts) < 2 or ".." in parts or parts[0] == "/":
                raise InputError(f"artifact {path}: {reading.shown(member.name)} is no file of an archive of gradsync")
            yield "/".join(parts[1:]), content.read()


def _hash_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
