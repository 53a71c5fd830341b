"""`gradsync advise --measure`: the first schemes train on real ranks, and the ranking is corrected by their times."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_lines import workload_json
from gradsync.cli import main
from gradsync.experiments import shortlist

LINKS = "alpha=2e-4,bandwidth=1e9"
LAYERS = [("third", 4_000_000, 1e-3), ("second", 400_000, 1e-3), ("first", 4_000, 1e-3)]
MODEL = """
import torch


def make():
    labels = torch.randint(10, (4,))
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    return model, lambda output: torch.nn.functional.cross_entropy(output, labels), torch.randn(4, 300)
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "w.json"
    path.write_text(workload_json(LAYERS))
    return str(path)


def test_the_first_schemes_train_beside_ddp_and_the_ranking_is_theirs(workload, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(shortlist, "SECONDS", 1.0)
    output = tmp_path / "advice.json"
    arguments = ["--workload", workload, "--allreduce", LINKS, "--measure", "2", "--output", str(output)]
    assert main(["advise", *arguments]) == 0
    advice = json.loads(output.read_text())
    measured, ranking = advice["measured"], advice["ranking"]
    trained = {row["scheme"]: row for row in measured["rows"]}
    assert {"ddp", measured["over"]} < set(trained)
    assert 3 <= len(trained) <= 4  # two schemes, DDP, and its plan unless that is one of the two
    assert trained[measured["over"]]["over"] == 1
    for name, row in trained.items():
        assert row["low_seconds"] <= row["iteration_seconds"] <= row["high_seconds"]
        assert row["iteration_seconds"] > 3e-3  # of computation, which is replayed
        if name != "ddp":
            assert row["over_predicted"] == pytest.approx(row["iteration_seconds"] / row["predicted_seconds"])
    seconds = [row["corrected_seconds"] for row in ranking]
    assert seconds == sorted(seconds)
    for row in ranking:
        same = measured["of_one_plan"].get(row["scheme"], row["scheme"])
        if same in trained:
            expected = trained[same]["over"] * trained[measured["over"]]["iteration_seconds"]
            assert row["measured_seconds"] == row["corrected_seconds"] == pytest.approx(expected)
        else:
            expected = row["iteration_seconds"] * measured["over_predicted"]
            assert (row["measured_seconds"], row["corrected_seconds"]) == (None, pytest.approx(expected))
    printed = capfd.readouterr().out
    assert f"fastest when measured: {measured['rows'][0]['scheme']}" in printed
    assert "corrected" in printed


def test_a_testbed_without_anything_to_measure_is_refused(workload, capfd):
    assert main(["advise", "--workload", workload, "--allreduce", LINKS, "--testbed", "switch"]) == 2
    assert "--testbed is where --measure N trains" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--measure", "0"], "--measure 0: at least 1, at most 16"),
        (["--measure", "17"], "--measure 17: at least 1, at most 16"),
        (["--measure", "2", "--ranks", "100000"], "--ranks"),
        (["--measure", "2", "--testbed", "nosuch"], "nosuch"),
    ],
)
def test_what_can_not_be_measured_is_refused_with_one_message(workload, capfd, more, message):
    assert main(["advise", "--workload", workload, "--allreduce", LINKS, *more]) == 2
    refused = capfd.readouterr().err
    assert message in refused
    assert "Traceback" not in refused


@pytest.mark.deep
def test_without_a_workload_and_a_cost_the_model_and_the_ranks_are_measured(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    assert main(["advise", "--model", "net.py:make", "--keep", "kept", "--output", "advice.json"]) == 0
    advice = json.loads(Path("advice.json").read_text())
    assert (advice["workload"], advice["tensors"], advice["ranks"]) == ("net_make", 4, 2)
    assert {"mgwfbp", "pipelined", "fixed_buckets"} <= {row["scheme"] for row in advice["ranking"]}
    assert "these collectives were not measured" in advice["left_out"]["ring"]
    measured = {path.name for path in Path("kept").iterdir()}
    assert measured == {"workload.json", "allreduce.csv", "interference.json"}
    assert {"reduce_scatter", "all_gather"} <= set(re.split(r"[,\n]", Path("kept/allreduce.csv").read_text()))
    capfd.readouterr()
    # what was kept is what was ranked by
    told = ["--workload", "kept/workload.json", "--allreduce", "kept/allreduce.csv"]
    assert main(["advise", *told, "--interference", "kept/interference.json", "--json"]) == 0
    again = json.loads(capfd.readouterr().out)
    assert again["ranking"] == advice["ranking"]


@pytest.mark.deep
def test_all_reduces_of_a_workload_are_measured_between_the_ranks(workload, tmp_path, capfd):
    assert main(["advise", "--workload", workload, "--keep", str(tmp_path), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert f"({tmp_path / 'allreduce.csv'})" in told["all_reduce"]
    assert {"mgwfbp", "fixed_buckets"} <= {row["scheme"] for row in told["ranking"]}


def test_a_model_is_measured_for_a_described_network(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    assert main(["advise", "--model", "net.py:make", "--network", "10gbe", "--ranks", "4x2", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["ranks"], told["topology"]) == (8, "dense_gpu:4,2")
    assert told["network"]["text"].startswith("10 Gbit/s Ethernet")
    assert {"ring", "hierarchical", "mgwfbp"} <= {row["scheme"] for row in told["ranking"]}
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("net.py", "__pycache__")] == []
