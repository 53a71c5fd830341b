"""Build an image: into a file beside the target, which it replaces only if the build and its %test went well."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from gradsync.errors import InputError, RunError
from gradsync.files.checkout import code_version
from gradsync.images import BASE, BASE_DEFINITIONS, definition, failures, fingerprint, host, preconditions

SILENCE_SECONDS = 1800.0  # without a line of output: packing 6 GB on one slow core prints nothing for minutes
HEARTBEAT_SECONDS = 30.0
GRACE_SECONDS = 15.0
PACKING = "-Xcompression-level 4"  # a quarter of the default's time for 4 % more bytes; gzip, which every kernel reads
# Variables that mount the folders of jobs: one that is no part of an image can't be mounted while it is being built.
MOUNTS = {f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in ("BIND", "BINDPATH", "MOUNT")}
Tell = Callable[[str, bool], None]  # prints a line; the second argument says whether it is only a sign of life


class Source(NamedTuple):
    """What a base image comes from: `debootstrap` with a mirror and suite, or `docker` with an image of a registry."""

    bootstrap: str = "debootstrap"
    mirror: str | None = None
    suite: str | None = None
    image: str | None = None


def build(kind: str, output: Path, base: Path, source: Source, log: Path) -> dict[str, Any]:
    """Build the image of a kind (base, cpu, cuda) from the definitions in the current folder.

    The base is an input of the other kinds. Everything that the build prints goes to `log`, its steps to stderr.
    Raises InputError if something is missing, RunError with one message if the build or its %test fails.
    """
    started = time.monotonic()
    path = definition(kind)
    arguments = {"version": code_version(), "definitions": fingerprint(kind)}
    preconditions.refuse(kind, source.bootstrap, output)
    if kind == BASE:
        arguments |= _base_arguments(source)
    elif not base.is_file():
        raise InputError(f"image {kind}: {base} is missing: build it with `gradsync image base --output {base}`")
    else:
        _refuse_old(kind, base)
        arguments["base"] = str(base)
    for folder in (output.parent, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.stem}.{os.getpid()}.sif")
    try:
        with _scratch() as scratch, log.open("w", encoding="utf-8") as record:
            lent = scratch / "lent"
            lent.mkdir()
            command = ["apptainer", "build", "--fakeroot"]
            command += [f"--build-arg={key}={value}" for key, value in arguments.items()]
            command += [f"--bind={mount}" for mount in host.lend(lent)]
            status, lines = _run([*command, str(unfinished), str(path)], scratch, record, _progress(kind, started))
        if status or not unfinished.is_file():
            raise RunError(f"image {kind}: {failures.explain(lines)}; the whole log: {log}")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return {"image": str(output), "bytes": output.stat().st_size, "seconds": time.monotonic() - started, **arguments}


def labels(image: Path) -> dict[str, str]:
    """The labels of an image; raises InputError if the file is not one, or Apptainer is missing."""
    preconditions.apptainer(str(image))
    command = ["apptainer", "inspect", "--json", "--labels", str(image)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        by_name = json.loads(answer.stdout)["data"]["attributes"]["labels"]
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError):
        raise InputError(f"{image}: not an image that Apptainer reads: delete it, or build it with --force") from None
    return dict(by_name or {})


def _refuse_old(kind: str, base: Path) -> None:
    """Raises InputError for a base of other definitions than today's, which the label of the image on it would claim.

    A base that was built by hand, or is none of ours, has no label with its definitions and is taken.
    """
    if labels(base).get(BASE_DEFINITIONS, "unknown") not in ("unknown", fingerprint(BASE)):
        raise InputError(
            f"image {kind}: {base} was built from other definitions: `gradsync image base --force --output {base}`"
        )


def _base_arguments(source: Source) -> dict[str, str]:
    if source.bootstrap == "docker":
        return {"bootstrap": "docker", "mirror": "none"} | ({"from": source.image} if source.image else {})
    mirror, suite = host.mirror_and_suite(source.mirror, source.suite)
    return {"bootstrap": source.bootstrap, "mirror": mirror, "suite": suite}


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for all that a build leaves behind; it is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gradsync-image-", dir=preconditions.folder_of_builds()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            print(f"image: {folder} holds files of other users' ids and is left there", file=sys.stderr)


def _progress(kind: str, started: float) -> Tell:
    """Gives a function that prints each step with the seconds since the start, and at times the latest line."""
    last_line_at = started

    def tell(line: str, beat: bool) -> None:
        nonlocal last_line_at
        now = time.monotonic()
        step = line.startswith("INFO:") and not beat
        if step or beat or now - last_line_at > HEARTBEAT_SECONDS:
            text = line.removeprefix("INFO:").strip()[:100]
            print(
                f"image {kind}: {now - started:4.0f} s: {'... ' if not step else ''}{text}", file=sys.stderr, flush=True
            )
            last_line_at = now

    return tell


def _run(command: list[str], scratch: Path, record: IO[str], tell: Tell) -> tuple[int, list[str]]:
    """Run a build; returns its exit status and all its lines. It ends with this process, and after a long silence."""
    inherited = {name: value for name, value in os.environ.items() if name not in MOUNTS}
    environment = {"APPTAINER_MKSQUASHFS_ARGS": PACKING, **inherited, "APPTAINER_TMPDIR": str(scratch)}
    lines: list[str] = []
    with (
        _ending_on_sigterm(),
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in _lines(child.stdout):
                if line is None:
                    tell(lines[-1] if lines else "", True)
                    continue
                lines.append(line)
                record.write(f"{line}\n")
                record.flush()
                tell(line, False)
            return child.wait(), lines
        finally:
            _end(child)


def _lines(stream: IO[bytes]) -> Iterator[str | None]:
    """Yield lines as they come, and None after HEARTBEAT_SECONDS without any. Raises RunError after SILENCE_SECONDS."""
    last_output = time.monotonic()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(HEARTBEAT_SECONDS):
                if time.monotonic() - last_output > SILENCE_SECONDS:
                    raise RunError(f"the build said nothing for {SILENCE_SECONDS:.0f} s and was ended: see its log")
                yield None
                continue
            last_output = time.monotonic()
            chunk = os.read(stream.fileno(), 65536)
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace").rstrip() for line in whole)
            if not chunk:
                if rest:
                    yield rest.decode(errors="replace")
                return


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """A workflow ends its jobs with SIGTERM, which must end the build too."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build that still runs, and what it started."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
            return
