"""FSDP2 in the ranking of `gradsync advise`, if the workload tells the blocks of its model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_lines import LINE, advice, workload_json


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "w.json"
    path.write_text(workload_json())
    return str(path)


def with_blocks(path: Path, device: str = "") -> str:
    """The workload's file, each layer a block of its own; measured on that device, if one is named."""
    content = json.loads(path.read_text())
    for layer in content["layers"]:
        layer["block"] = layer["name"]
    content["provenance"] = {"device": device} if device else {}
    path.write_text(json.dumps(content))
    return str(path)


def test_fsdp2_stands_in_the_ranking_if_the_blocks_of_the_model_are_known(workload, capsys):
    told = advice(capsys, "--workload", workload, "--allreduce", LINE)
    assert "does not tell the blocks" in told["left_out"]["fsdp2"]
    told = advice(capsys, "--workload", with_blocks(Path(workload)), "--allreduce", LINE, "--explain")
    ranking = {row["scheme"]: row for row in told["ranking"]}
    assert {"fsdp2", "fsdp2_kept"} <= set(ranking) - set(told["left_out"])
    seconds = [row["iteration_seconds"] for row in told["ranking"]]
    assert seconds == sorted(seconds)
    kept, again, wfbp = ranking["fsdp2_kept"], ranking["fsdp2"], ranking["wfbp"]
    assert (kept["messages"], again["messages"]) == (2 * wfbp["messages"], 3 * wfbp["messages"])
    assert kept["iteration_seconds"] <= again["iteration_seconds"]
    assert again["state_bytes"] < wfbp["state_bytes"]
    assert not again["planned"]
    assert wfbp["planned"]
    told = advice(capsys, "--workload", with_blocks(Path(workload), "cpu"), "--allreduce", LINE)
    assert "on GPUs alone" in told["left_out"]["fsdp2_kept"]
    with_blocks(Path(workload))
    for steps, reason in (("--accumulate=2", "one micro-batch"), ("--optimizer=lamb", "norms of whole tensors")):
        told = advice(capsys, "--workload", workload, "--allreduce", LINE, steps)
        assert reason in told["left_out"]["fsdp2"]


@pytest.mark.parametrize("ranks", [2, 8])
def test_fsdp2_updates_a_ranks_own_part_after_all_messages(workload, capsys, ranks):
    content = json.loads(Path(workload).read_text())
    seconds = []
    for update in (0.0, 16.0):
        Path(workload).write_text(json.dumps({**content, "update_seconds": update}))
        told = advice(capsys, "--workload", with_blocks(Path(workload)), "--allreduce", LINE, f"--ranks={ranks}")
        seconds.append(next(row["iteration_seconds"] for row in told["ranking"] if row["scheme"] == "fsdp2"))
    assert seconds[1] - seconds[0] == pytest.approx(16.0 / ranks)
