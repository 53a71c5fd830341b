"""`gradsync plan` and `simulate` of schemes with a collective and a topology of their own: what their messages cost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gradsync.cli import main
from gradsync.plan import Plan
from gradsync.plan.trace import Trace

ROOT = Path(__file__).parents[3]
ALPHA, BANDWIDTH = 1e-4, 1e9
LINKS = f"alpha={ALPHA},bandwidth={BANDWIDTH}"
SIZE = 9_000_000
BML = 2 * 2 * ALPHA + 2 * (9 - 1) / (2 * 9) * SIZE / BANDWIDTH  # 2k rounds; 2(N-1)/(kN) T_F
RING = 2 * 8 * ALPHA + 2 * 8 / 9 * SIZE / BANDWIDTH


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    """plan(argument, ...): what `gradsync plan` of one layer of SIZE bytes says, or its error where it has one."""
    monkeypatch.chdir(ROOT)
    layer = {"name": "all", "bytes": SIZE, "backward_seconds": 1.0}
    content = {"version": 1, "name": "net", "forward_seconds": 1.0, "layers": [layer], "statistics": 1000}
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps(content))

    def call(*arguments: object, command: str = "plan") -> Any:
        words = [command, "--workload", workload, "--json", *arguments]
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return json.loads(out) if status == 0 else err

    return call


@pytest.mark.parametrize(
    ("arguments", "topology", "seconds"),
    [
        (["--schedule", "bml"], "bcube:3,2", BML),
        (["--schedule", "single", "--collective", "bml"], "bcube:3,2", BML),
        (["--schedule", "bml", "--schemes", "config/schemes.yaml"], "bcube:3,2", BML),
        (["--schedule", "bml", "--topology", "bcube:9,1"], "bcube:9,1", 2 * ALPHA + 2 * 8 / 9 * SIZE / BANDWIDTH),
        (["--schedule", "ring"], "switch:9", RING),
        (["--schedule", "wfbp"], "switch:9", RING),  # the backend's own is taken for a ring
        (["--schedule", "hierarchical", "--ranks-a-node", 9], "dense_gpu:1,9", 2 * ALPHA + (RING - 16 * ALPHA)),
    ],
)
def test_links_give_the_cost_of_the_very_collective(plan, tmp_path, arguments, topology, seconds):
    file = tmp_path / "plan.json"
    options = ("--ranks", 9, "--allreduce", LINKS, "--statistics", "local")
    answer = plan(*arguments, *options, "--output", file)
    assert answer["topology"] == topology
    assert answer["exposed_communication_seconds"] == pytest.approx(seconds, rel=1e-9)
    assert Plan.from_json(file.read_text()).provenance["topology"] == topology
    timed = plan("--plan", file, "--allreduce", LINKS, command="simulate")
    assert timed["iteration_seconds"] == pytest.approx(answer["iteration_seconds"], rel=1e-12)


def test_measured_points_of_the_very_collective_are_taken(plan, tmp_path):
    points, file = tmp_path / "points.csv", tmp_path / "plan.json"
    rows = [(9, "", 1e-3), (9, "bml-3x3", 0.5), (4, "bml-2x2", 0.25), (9, "ring-9", 2.0)]
    lines = [f"{n},{size},{seconds},{name}" for n, name, seconds in rows for size in (4, SIZE)]
    points.write_text("\n".join(["ranks,bytes,seconds,collective", *lines]) + "\n")
    options = ("--allreduce", points, "--statistics", "local")
    for name, ranks, seconds in (("bml", 9, 0.5), ("bml", 4, 0.25), ("ring", 9, 2.0), ("wfbp", 9, 1e-3)):
        answer = plan("--schedule", name, "--ranks", ranks, *options, "--output", file)
        assert answer["exposed_communication_seconds"] == pytest.approx(seconds, rel=1e-9)
        timed = plan("--plan", file, "--allreduce", points, command="simulate")
        assert timed["exposed_communication_seconds"] == pytest.approx(seconds, rel=1e-9)
    assert "points.csv: has times of the backend's own, bml-2x2, bml-3x3, ring-9, not of ps_p2p-9" in plan(
        "--schedule", "ps_p2p", "--ranks", 9, *options
    )


def test_a_plan_is_drawn_with_the_points_of_its_own_collective(plan, tmp_path, capsys):
    points, file = tmp_path / "points.csv", tmp_path / "plan.json"
    points.write_text("ranks,bytes,seconds,collective\n" + "".join(f"9,{m},0.5,bml-3x3\n" for m in (4, SIZE)))
    plan("--schedule", "bml", "--ranks", 9, "--allreduce", LINKS, "--output", file)
    words = ("draw", file, "--allreduce", points, "--output", tmp_path / "plan.svg", "--json")
    assert main([str(word) for word in words]) == 0
    assert json.loads(capsys.readouterr().out)["spans"] > 0


@pytest.mark.parametrize("roles", [[], [{"name": "worker", "ranks": list(range(9)), "body": []}]])
def test_a_plan_without_operations_is_refused_in_one_line(plan, tmp_path, roles):
    file = tmp_path / "plan.json"
    plan("--schedule", "bml", "--ranks", 9, "--allreduce", LINKS, "--output", file)
    file.write_text(json.dumps({**json.loads(file.read_text()), "roles": roles}))
    assert main(["simulate", "--plan", str(file), "--workload", str(tmp_path / "workload.json"), "--allreduce", LINKS])


@pytest.mark.parametrize(("native", "seconds"), [("", 2.5), ("9,4,16,\n9,8,16,\n", 4.5)])
def test_other_messages_follow_from_the_backends_own_all_reduce(plan, tmp_path, native, seconds):
    """A broadcast of log2(9) steps, each a 16th of the start-up of the all-reduce: 16 s make it end after backward."""
    points, file = tmp_path / "points.csv", tmp_path / "plan.json"
    points.write_text(f"ranks,bytes,seconds,collective\n{native}9,4,0.5,bml-3x3\n9,8,0.5,bml-3x3\n")
    answer = plan("--schedule", "bml", "--ranks", 9, "--allreduce", points, "--output", file)
    assert Plan.from_json(file.read_text()).communications()[0].kind == "broadcast"
    assert answer["iteration_seconds"] == pytest.approx(seconds if not native else 1 + math.log2(9) + 0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bml", "--allreduce", "alpha=1"], "give alpha=SECONDS,bandwidth=BYTES_PER_SECOND"),
        (["bml", "--allreduce", "bandwidth=1,a=2"], "give alpha=SECONDS,bandwidth=BYTES_PER_SECOND"),
        (["bml", "--allreduce", "alpha=1,bandwidth=fast"], "must be a number"),
        (["bml", "--allreduce", "alpha=1,bandwidth=0"], "bandwidth 0 B/s: must be finite and above 0"),
        (["bml", "--allreduce", "alpha=nan,bandwidth=1"], "alpha nan s: must be finite and not negative"),
        (["bml", "--allreduce", LINKS, "--topology", "switch"], "scheme 'bml': collective 'bml' sends on all levels"),
        (["bml", "--allreduce", LINKS, "--topology", "bcube:2,2"], "'bcube:2,2' holds 1 to 4 ranks, not 9"),
        (["bml", "--allreduce", LINKS, "--ranks", "10"], "scheme 'bml': topology 'bcube': 10 is no n^k"),
        (["wfbp", "--allreduce", LINKS, "--collective", "nosuch"], "collective 'nosuch' does not exist"),
        (["bml", "--allreduce", LINKS, "--ranks-a-node", "0"], "--ranks-a-node 0: at least 1"),
        (["bml", "--cluster", "nosuch.yaml"], "all-reduces of the backend's own were measured there, none of 'bml'"),
    ],
)
def test_what_cannot_be_costed_is_refused_in_one_line(plan, arguments, message):
    ranks = () if "--ranks" in arguments else ("--ranks", 9)
    error = plan("--schedule", *arguments, *ranks)
    assert error.startswith("gradsync: ")
    assert error.count("\n") == 1
    assert message in error


# Where ranks are


@pytest.mark.parametrize(
    ("topology", "nodes", "well"),
    [
        ("dense_gpu:2,2", "aabb", True),
        ("dense_gpu:2,2", "abab", False),
        ("dense_gpu:2,2", "aaab", False),
        ("dense_gpu:4,1", "aabb", False),  # more links between nodes than there are nodes
        ("dense_gpu:4,1", "abcd", True),
        ("dense_gpu:1,4", "aabb", False),
        ("dense_gpu:2,2", "aaaa", True),  # on one machine any topology is pretended
        ("bcube:2,2", "abab", True),  # says nothing of machines
        ("", "abab", True),  # a plan made by hand
    ],
)
def test_ranks_that_are_not_where_the_topology_has_them_are_named(topology, nodes, well):
    from gradsync.runtime.hosts import misplaced

    plan = Plan("p", 4, (), (), (), {"topology": topology} if topology else {})
    notes = misplaced(plan, list(nodes))
    assert notes == [] if well else (len(notes) == 1 and f"topology {topology} has " in notes[0])


@pytest.mark.parametrize("scheme", ["bml", "ps_p2p", "ring"])
def test_transfers_one_by_one_take_what_rounds_in_step_do(plan, tmp_path, scheme):
    file = tmp_path / "plan.json"
    plan("--schedule", scheme, "--ranks", 9, "--allreduce", LINKS, "--statistics", "local", "--output", file)
    whole = plan("--plan", file, "--allreduce", LINKS, command="simulate")
    trace = tmp_path / "trace.json"
    single = plan(
        *("--plan", file, "--allreduce", LINKS, "--transfers", "--gamma", 0, "--output", trace), command="simulate"
    )
    assert single["iteration_seconds"] == pytest.approx(whole["iteration_seconds"], rel=1e-6)
    assert whole["hard_bound_seconds"] <= whole["model_bound_seconds"] * (1 + 1e-9)
    assert whole["model_bound_seconds"] <= whole["iteration_seconds"] * (1 + 1e-9)
    # by the links alone: 2 (N-1)/N of the gradients over those of a rank, from the first gradient on
    assert whole["hard_bound_seconds"] * (1 - 1e-4) <= single["hard_bound_seconds"] <= single["iteration_seconds"]
    assert single["model_bound_seconds"] is None
    assert len(Trace.from_json(trace.read_text()).of(0)) > 10 * single["turns"]  # sends and receives
    refused = plan("--plan", file, "--allreduce", "a=1e-4,b=1e-9", "--transfers", command="simulate")
    assert "give alpha=SECONDS,bandwidth=BYTES_PER_SECOND" in refused


def test_each_kind_of_links_may_have_its_own_bandwidth(plan):
    options = ("--schedule", "hierarchical", "--ranks", 16, "--topology", "dense_gpu:2,8", "--statistics", "local")
    answer = plan(*options, "--allreduce", "alpha=0,inside=1e11,between=1e9")
    inside = 2 * 7 / 8 * SIZE / 1e11
    between = SIZE / 1e9  # a node's link carries the eighths of all its GPUs, each way half of each
    assert answer["exposed_communication_seconds"] == pytest.approx(inside + between, rel=1e-9)
    assert "has no 'middle' links, whose bandwidth is given; it has: inside, between" in plan(
        *options, "--allreduce", "alpha=0,middle=1"
    )
    assert "needs the bandwidth of its 'between' links too" in plan(*options, "--allreduce", "alpha=0,inside=1e11")
    assert "between must be a number" in plan(*options, "--allreduce", "alpha=0,inside=1,between=x")
