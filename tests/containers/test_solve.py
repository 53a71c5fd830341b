"""The build of torch that pip itself would put into an environment, from packages without content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from waiting import HANGS_SECONDS

TORCH_CPU = ("torch", "2.13.0+cpu", ())
TORCH_CUDA = ("torch", "2.13.0", ("nvidia-nccl-cu13==2.29.7",))
NCCL = ("nvidia-nccl-cu13", "2.29.7", ())


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...]) -> None:
    """A package without content: pip solves by metadata alone."""
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        info = f"{stem}.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def check(tmp_path: Path):
    """check(kind, requirement, packages): `gradsync image KIND --check` with a pip that knows these packages alone."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "wheels").mkdir()

    def run(kind: str, requirement: str, *packages: tuple) -> subprocess.CompletedProcess[str]:
        for package in packages:
            wheel(tmp_path / "wheels", *package)
        (tmp_path / "envs" / f"{kind}.txt").write_text(f"{requirement}\n")
        variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
        command = [sys.executable, "-m", "gradsync", "image", kind, "--check", "--json"]
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, timeout=HANGS_SECONDS
        )

    return run


def test_each_pin_takes_its_own_build_where_both_are_there(check):
    for kind, requirement, torch, nccl in [
        ("cpu", "torch==2.13.0+cpu", "2.13.0+cpu", None),
        ("cuda", "torch===2.13.0", "2.13.0", "2.29.7"),
    ]:
        ended = check(kind, requirement, TORCH_CPU, TORCH_CUDA, NCCL)
        assert ended.returncode == 0, ended.stderr
        answer = json.loads(ended.stdout)
        assert (answer["torch"], answer["nccl"]) == (torch, nccl)


def test_a_pin_that_lets_the_cpu_build_into_the_cuda_image_is_found(check):
    ended = check("cuda", "torch==2.13.0", TORCH_CPU, TORCH_CUDA, NCCL)
    assert ended.returncode == 1
    assert "image cuda: envs/cuda.txt solves to torch 2.13.0+cpu, a CPU build" in ended.stderr


def test_a_pin_that_lets_the_cuda_build_into_the_cpu_image_is_found(check):
    ended = check("cpu", "torch==2.13.0", TORCH_CUDA, NCCL)
    assert ended.returncode == 1
    assert "image cpu: envs/cpu.txt solves to torch 2.13.0, a CUDA build" in ended.stderr


def test_an_index_without_cpu_builds_is_told_so(check):
    ended = check("cpu", "torch==2.13.0+cpu", TORCH_CUDA, NCCL)
    assert ended.returncode == 1
    assert "pip finds no torch==2.13.0+cpu: point it at an index with CPU builds" in ended.stderr


def test_an_environment_without_torch_is_refused(check):
    ended = check("cpu", "nvidia-nccl-cu13", NCCL)
    assert ended.returncode == 1
    assert "installs no torch" in ended.stderr


def test_the_base_has_no_environment_to_check(check):
    ended = check("base", "torch", TORCH_CPU)
    assert ended.returncode == 2
    assert "it holds no environment to check" in ended.stderr


def test_the_projects_own_pins_tell_the_builds_apart():
    from packaging.requirements import Requirement

    root = Path(__file__).parents[2] / "envs"

    def torch(name: str) -> Requirement:
        lines = (root / f"{name}.txt").read_text().splitlines()
        return next(Requirement(line) for line in lines if line.startswith("torch="))

    assert not torch("cpu").specifier.contains("2.13.0")
    assert torch("cpu").specifier.contains("2.13.0+cpu")
    assert not torch("cuda").specifier.contains("2.13.0+cpu")
    assert torch("cuda").specifier.contains("2.13.0")
