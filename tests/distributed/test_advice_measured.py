"""`gradsync advise --measure`: the first schemes train on real ranks, and the ranking is corrected by their times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_lines import workload_json
from gradsync.cli import main
from gradsync.experiments import shortlist

LINKS = "alpha=2e-4,bandwidth=1e9"
LAYERS = [("third", 4_000_000, 1e-3), ("second", 400_000, 1e-3), ("first", 4_000, 1e-3)]


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
