"""A wheel of the project works outside of a checkout, with the files that it needs."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from waiting import HANGS_SECONDS

ROOT = Path(__file__).parents[3]
PARTS = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "workflow/src", "config", "reports", "envs")
OF_THE_WORKFLOW = {"snakemake", "grimp"}  # which is in a checkout alone
OF_GPUS = {"triton", "nvidia-ml-py"}  # which come with the environment for GPUs
ATTACHED = """
import gradsync, sys
assert "torch" not in sys.modules
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attached = gradsync.attach(model, optimizer, "mgwfbp_as_printed", inputs=torch.ones(4, 3), all_reduce="a=1e-4,b=1e-9")
model(torch.ones(4, 3)).sum().backward()
optimizer.step()
print(gradsync.__file__, attached.plan.name, float(model.bias.grad[0]))
"""


def ran(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        cwd=cwd,
        env=environment,
        check=False,
    )


def imported() -> list[set[str]]:
    """The distributions that may bring each module which the package imports, if one is here: a GPU's may not be."""
    modules = set()
    for file in (ROOT / "workflow/src/gradsync").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.split(".")[0])
    provided = importlib.metadata.packages_distributions()
    return [set(map(canonical, provided[module])) for module in sorted(modules - {"gradsync"}) if module in provided]


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def needed(distribution: str) -> set[str]:
    """What a distribution needs wherever it runs."""
    requirements = importlib.metadata.requires(distribution) or ()
    return {canonical(re.split(r"[^\w.-]", each)[0]) for each in requirements if "extra ==" not in each}


def test_what_is_imported_comes_with_the_package():
    own = needed("gradsync")
    assert own >= {"numpy", "torch", "torchvision", "pandas", "pydantic"}
    there = own.union(OF_THE_WORKFLOW, OF_GPUS, *(needed(name) for name in own))
    assert not [names for names in imported() if not names & there]


@pytest.mark.deep
def test_a_wheel_is_built_installed_and_used_elsewhere(tmp_path):
    source, fresh = tmp_path / "source", tmp_path / "fresh"
    for part in PARTS:
        (source / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    built = ran(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    ran(sys.executable, "-m", "venv", "--without-pip", fresh, cwd=tmp_path)
    python = fresh / "bin/python"
    (wheel,) = tmp_path.glob("*.whl")
    installed = ran(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    libraries = next((fresh / "lib").glob("python*/site-packages"))
    (libraries / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # what gradsync needs besides
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "usage: gradsync" in ran(python, "-m", "gradsync", "--help", cwd=elsewhere).stdout
    options = ("--model", "lenet5", "--peer", "nosuch", "--output", "runs")
    refused = ran(python, "-m", "gradsync", "train", *options, cwd=elsewhere)
    assert refused.returncode == 2
    assert "'nosuch' does not exist; there are: ddp, ddp_view" in refused.stderr
    used = ran(python, "-c", ATTACHED, cwd=elsewhere)
    assert used.returncode == 0, used.stderr
    file, plan, gradient = used.stdout.split()
    assert file.startswith(str(fresh))
    assert (plan, float(gradient)) == ("mgwfbp_as_printed", 4.0)
