"""Sums by level in the ranking of `gradsync advise`, on nodes whose links are known, and start-ups between nodes."""

from __future__ import annotations

import json

import pytest

from command_lines import ROOT, advice, points_csv
from gradsync import topologies
from gradsync.cli import main
from gradsync.configuration import networks
from gradsync.experiments import costs
from gradsync.rounds import flow_level


def test_sums_by_level_are_ranked_if_links_inside_and_between_nodes_are_known(workload, capsys):
    """As `plan` predicts them; where start-ups count, they are what GPUs execute of the fastest."""
    links = ("--allreduce", "alpha=0.1,inside=1000,between=2,latency_between=1", "--ranks", "8x2")
    told = advice(capsys, "--workload", workload, *links)
    ranking = {row["scheme"]: row for row in told["ranking"]}
    arguments = ["plan", "--json", "--workload", str(workload), *links, "--schedule", "native_by_level"]
    assert main(arguments) == 0
    predicted = json.loads(capsys.readouterr().out)["iteration_seconds"]
    by_level = ranking["native_by_level"]
    assert by_level["iteration_seconds"] == predicted < ranking["optimal"]["iteration_seconds"]
    assert {name for name, row in ranking.items() if not row["on_gpus"]} >= {"hierarchical", "torus2d", "ring"}
    assert by_level["on_gpus"]
    first = told["ranking"][0]["scheme"]
    assert first in ("hierarchical", "binary_tree")
    assert main(["advise", "--workload", str(workload), *links]) == 0
    assert "of what GPUs execute the fastest is native_by_level" in capsys.readouterr().out


def test_sums_by_level_are_ranked_by_points_over_their_axes(workload, tmp_path, capsys):
    rows = [f"{size},{8.0 + size}" for size in (1, 4, 16)]
    halves = [f"{size},{2.0 + size / 8}" for size in (1, 4, 16)]
    kinds = ("reduce_scatter@local:2", "all_reduce@node:2", "all_gather@local:2")
    lines = [f",{row}" for row in rows] + [f"{kind},{row}" for kind in kinds for row in halves]
    points = tmp_path / "points.csv"
    points.write_text("\n".join(["kind,bytes,seconds", *lines]) + "\n")
    told = advice(
        capsys, "--workload", workload, "--allreduce", str(points), "--ranks", "4", "--topology", "dense_gpu:2,2"
    )
    ranking = {row["scheme"]: row for row in told["ranking"]}
    assert ranking["native_by_level"]["iteration_seconds"] < ranking["optimal"]["iteration_seconds"]


def test_sums_by_level_are_left_out_if_their_cost_would_be_a_guess(workload, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text(points_csv([1, 2, 4, 8, 16, 32]))
    nodes = ("--topology", "dense_gpu:2,2")
    for given, reason in (
        (("--allreduce", str(points), *nodes), "--kind reduce_scatter@local all_reduce@node all_gather@local --axes"),
        (("--allreduce", "alpha=0.1,bandwidth=1"), "needs 2 levels"),
        (("--allreduce", "alpha=0.1,inside=4,between=1", *nodes, "--capacity", "2"), "at a time"),
        (("--allreduce", "alpha=0.1,inside=4,between=1", "--topology", "dense_gpu:1,4"), "ranks of one node"),
    ):
        told = advice(capsys, "--workload", workload, *given, "--ranks", "4")
        assert reason in told["left_out"]["native_by_level"]


@pytest.mark.parametrize("name", ["10gbe", "25gbe,nvlink2"])
def test_a_message_between_nodes_starts_up_in_the_time_that_is_described(name):
    known = networks.load(ROOT / networks.FILE)
    speeds = costs.speeds_of(networks.described(name, True).allreduce)
    one_step = flow_level.cost("ring", topologies.parse("dense_gpu:2,1"), speeds, 2).line.a / 2
    assert one_step == pytest.approx(known.between[name.partition(",")[0]].alpha_seconds, rel=1e-4)
