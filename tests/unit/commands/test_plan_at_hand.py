"""`gradsync plan` of a model that it measures, on a network that is described."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from command_lines import LINE, ROOT, workload_json
from gradsync.cli import main
from gradsync.configuration import networks
from gradsync.experiments import predict
from gradsync.experiments.profile import layers

SCHEMES = str(ROOT / "config" / "schemes.yaml")
PIPELINED = ("--schedule", "pipelined")


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "w.json"
    path.write_text(workload_json())
    return str(path)


def planned(capsys, *words: str) -> dict:
    assert main(["plan", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_described_network_is_its_links_between_nodes_of_ranks(workload, capsys):
    named = ("--network", "25gbe", "--ranks", "4x2")
    links = networks.described("25gbe", in_nodes=True).allreduce
    told = ("--allreduce", links, "--ranks", "8", "--topology", "dense_gpu:4,2")
    first, second = (planned(capsys, "--workload", workload, *PIPELINED, *words) for words in (named, told))
    assert first == second
    assert (first["ranks"], first["topology"]) == (8, "dense_gpu:4,2")


def test_ranks_that_are_nodes_are_plain_numbers_in_a_plan(workload, tmp_path, capsys):
    output = tmp_path / "plan.json"
    planned(capsys, "--workload", workload, *PIPELINED, "--network", "25gbe", "--ranks", "4x2", "--output", str(output))
    assert main(["check", str(output)]) == 0
    assert json.loads(output.read_text())["ranks"] == 8


def test_layers_of_a_model_are_measured_and_planned_for(workload, tmp_path, monkeypatch, capsys):
    asked = []

    def measure(options):
        asked.append(options)
        options.output.write_text(Path(workload).read_text())

    monkeypatch.setattr(layers, "measure", measure)
    keep = ("--keep", str(tmp_path / "kept"))
    own = planned(capsys, "--model", "net.py:make", *PIPELINED, "--allreduce", LINE, "--batch", "3", *keep)
    assert own == planned(capsys, "--workload", workload, *PIPELINED, "--allreduce", LINE)
    assert [(each.model, each.batch, each.ranks) for each in asked] == [("net.py:make", 3, 1)]
    assert (tmp_path / "kept" / "workload.json").is_file()


@pytest.mark.parametrize(
    ("allreduce", "message"),
    [("alpha=1", "--allreduce alpha=1: give alpha="), ("none.csv", "none.csv"), ("a=1,b=x", "b=x")],
)
def test_costs_that_can_not_be_read_are_refused_before_layers_are_measured(monkeypatch, capsys, allreduce, message):
    asked = []
    monkeypatch.setattr(layers, "measure", asked.append)
    assert main(["plan", "--model", "lenet5", *PIPELINED, "--allreduce", allreduce]) == 2
    assert message in capsys.readouterr().err
    assert not asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--allreduce or --cluster or --network: needed, and not given"),
        (("--network", "25gb"), "network '25gb' does not exist; did you mean 25gbe?"),
        (("--network", "25gbe", "--allreduce", LINE), "not allowed with"),
        (("--network", "25gbe", "--ranks", "4x2", "--topology", "switch"), "leave one out"),
        (("--network", "25gbe", "--ranks", "4x2", "--ranks-a-node", "4"), "--ranks has 2 a node: leave one out"),
        (("--network", "25gbe", "--ranks", "0x2"), "--ranks 0: at least 1"),
        (("--network", "25gbe", "--ranks", "4x2", "--schedule", "sync_easgd1"), "take no notice of nodes"),
        (("--network", "25gbe", "--device", "cuda"), "--device: nothing is measured here"),
        (("--network", "25gbe", "--keep", "here"), "--keep: nothing is measured"),
        (("--network", "25gbe", "--size", "32"), "--size: only with --model"),
    ],
)
def test_what_makes_no_sense_is_refused(workload, capsys, words, message):
    assert main(["plan", "--workload", workload, *PIPELINED, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_nodes_of_a_scheme_made_for_them_have_links_inside(workload, capsys):
    named = ("--workload", workload, "--schedule", "wfbp", "--collective", "hierarchical", "--network", "25gbe")
    of_scheme = planned(capsys, *named, "--ranks", "8", "--ranks-a-node", "2")
    assert of_scheme == planned(capsys, *named, "--ranks", "4x2")
    assert of_scheme == planned(capsys, *named, "--ranks", "8", "--topology", "dense_gpu", "--ranks-a-node", "2")
    assert (of_scheme["topology"], of_scheme["ranks"]) == ("dense_gpu:4,2", 8)


@pytest.mark.parametrize("schedule", ["mstopk_then_dense_hundredth", "mstopk_then_horovod_hundredth"])
def test_phases_are_planned_on_nodes(workload, capsys, schedule):
    content = json.loads(workload_json([("second", 400_000, 1e-3), ("first", 4_000, 1e-3)]))
    kernels = dict.fromkeys(("encode_mstopk", "decode_sum"), 1e-9)
    Path(workload).write_text(json.dumps({**content, "kernels": kernels}))
    words = ("--workload", workload, "--schemes", SCHEMES, "--schedule", schedule)
    told = planned(capsys, *words, "--network", "25gbe", "--ranks", "4x2")
    assert told == planned(capsys, *words, "--network", "25gbe", "--ranks", "8", "--ranks-a-node", "2")
    assert [part["topology"] for part in told["phases"]] == ["dense_gpu:4,2"] * 2


def test_all_schemes_of_a_described_network_are_on_its_nodes(workload, capsys):
    words = ("--workload", workload, "--schedule", "wfbp", "--network", "25gbe")
    told = planned(capsys, *words, "--ranks", "8", "--ranks-a-node", "2")
    assert told == planned(capsys, *words, "--ranks", "4x2")
    assert told["topology"] == "dense_gpu:4,2"
    assert planned(capsys, *words, "--ranks", "8")["topology"] == "switch:8"
    assert planned(capsys, *words, "--collective", "hierarchical", "--ranks", "4x1")["topology"] == "dense_gpu:4,1"


def test_what_a_launch_plans_from_is_told_and_measures_nothing():
    names = {field.name for field in fields(predict.Options)}
    assert not names & {"model", "device", "network", "keep"}


def test_a_scheme_that_can_not_be_planned_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(layers, "measure", lambda options: pytest.fail("measured"))
    words = ("--model", "lenet5", "--schedule", "bml", "--network", "25gbe", "--ranks", "4x2")
    assert main(["plan", *words]) == 2
    assert "has no links of their own" in capsys.readouterr().err
