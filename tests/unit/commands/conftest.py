"""The command line, run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from command_lines import LINE, ROOT, workload_json
from gradsync.cli import main


class Ended(NamedTuple):
    status: int | str | None
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(argument, ...): exit status and output of the command line, in the project's folder."""
    monkeypatch.chdir(ROOT)
    capfd.readouterr()

    def call(*arguments: object) -> Ended:
        try:
            status: int | str | None = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        return Ended(status, *capfd.readouterr())

    return call


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload.json"
    path.write_text(workload_json())
    return path


@pytest.fixture
def plan(tmp_path: Path, workload: Path, run: Run) -> Path:
    path = tmp_path / "wfbp.json"
    assert run("plan", "--workload", workload, "--allreduce", LINE, "--schedule", "wfbp", "--output", path).status == 0
    return path
