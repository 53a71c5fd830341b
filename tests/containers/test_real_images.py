"""The project's own images: what is in them, and that ranks work in them. They are built by `gradsync image cpu`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

from tiny_project import ROOT, in_image

from gradsync.images import build, fingerprint
from waiting import HANGS_SECONDS


def pinned() -> dict[str, str]:
    lines = (ROOT / "envs" / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    return dict(line.split("==") for line in lines)


def test_the_image_is_of_these_definitions(cpu_image):
    labels = build.labels(cpu_image)
    assert labels["gradsync.definitions"] == fingerprint("cpu", ROOT)
    assert labels["gradsync.torch"] == "cpu"
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?|\S+-g[0-9a-f]+(-dirty)?|[0-9.]+\S*", labels["gradsync.version"])


def test_every_package_has_its_pinned_version(cpu_image):
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    ended = in_image(cpu_image, "python", "-c", code)
    installed = {name.lower().replace("_", "-"): version for name, version in json.loads(ended.stdout).items()}
    assert installed.pop("torch") == "2.13.0+cpu"
    assert installed.pop("torchvision") == "0.28.0"
    known = pinned()
    assert {name: version for name, version in installed.items() if known.get(name) != version}.keys() <= {
        "gradsync",
        "pip",
    }
    assert not any(name.startswith("nvidia") for name in installed)


def test_nothing_of_the_host_stayed_in_it(cpu_image):
    ended = in_image(
        cpu_image,
        *("sh", "-c", "ls -A /mnt; ls /opt; ls /opt/gradsync/pip.conf /etc/pip.conf 2>/dev/null; true"),
    )
    assert ended.stdout == "gradsync\n"


def test_ranks_reduce_in_it_and_the_checkout_wins_over_what_is_installed(cpu_image, tmp_path):
    code = "import gradsync; print(gradsync.__file__)"
    assert in_image(cpu_image, "python", "-c", code).stdout.startswith("/opt/gradsync/")
    source = ROOT / "workflow" / "src"
    of_checkout = in_image(cpu_image, "env", f"PYTHONPATH={source}", "python", "-c", code, bind=source)
    assert of_checkout.stdout.startswith(f"{source}/")
    points = tmp_path / "points.csv"
    measured = in_image(
        cpu_image,
        *("gradsync", "measure", "allreduce", "--ranks", "2", "--smallest", "1024", "--largest", "16384"),
        *("--output", str(points)),
        bind=tmp_path,
    )
    assert measured.returncode == 0, measured.stderr
    assert points.read_text().count("\n") > 3


def test_an_index_without_the_cpu_build_fails_the_build_in_one_message(base_image, tmp_path):
    for name in ("containers", "envs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.sif", "*.log"))
    shutil.copytree(ROOT / "workflow" / "src" / "gradsync", tmp_path / "workflow" / "src" / "gradsync")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "envs" / "cpu.txt").write_text("torch==2.13.0+cpu\n")
    (tmp_path / "none").mkdir()
    environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "none")}
    command = [sys.executable, "-m", "gradsync", "image", "cpu", "--base", str(base_image), "--output", "cpu.sif"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
    )
    assert ended.returncode == 1
    message = ended.stderr.splitlines()[-1]
    assert message.startswith(
        "gradsync: image cpu: %post: pip finds no torch==2.13.0+cpu: point it at an index with CPU"
    )
    assert not list(tmp_path.glob("*.sif"))
