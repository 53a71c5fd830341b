"""The scripts of `docs/examples/`, under torchrun on two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]
EQUAL = "equal to DDP: True"
VERDICTS = {"cnn": EQUAL, "transformer": "close to DDP: True", "accumulation": EQUAL, "auto": EQUAL}
UNLIKE = """
import sys, torch, gradsync, os
model = torch.nn.Linear(3, 3 + int(os.environ["RANK"]))
gradsync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "mgwfbp", inputs=torch.zeros(1, 3))
"""


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow/src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANGS_SECONDS, env=environment, cwd=ROOT, check=False
    )


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "docs" / "examples").glob("*.py")} == VERDICTS.keys()


@pytest.mark.deep
@pytest.mark.parametrize("name", VERDICTS)
def test_an_example_trains_as_ddp_does(name):
    ran = torchrun(f"docs/examples/{name}.py", "--beside-ddp")
    assert ran.returncode == 0, ran.stderr
    assert "loss " in ran.stdout
    assert VERDICTS[name] in ran.stdout


@pytest.mark.deep
def test_a_model_that_differs_between_ranks_ends_all_with_status_2(tmp_path):
    script = tmp_path / "unlike.py"
    script.write_text(UNLIKE)
    ran = torchrun(str(script))
    assert ran.returncode != 0
    assert ran.stderr.count("gradsync: error: attach: the model differs between ranks: 'weight' [3, 3]") == 1
    assert "exitcode  : 2" in ran.stderr
    assert "Traceback" not in ran.stderr.split("ChildFailedError")[0].split("torch/distributed")[0]
