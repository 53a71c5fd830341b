"""A measured cluster: fits that know how sure they are, a file that is read back as written, plans made from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gradsync import clusters
from gradsync.cli import main
from gradsync.clusters import choice, nodes, parts, text
from gradsync.costs import fitted, line
from gradsync.errors import InputError
from made_up_cluster import SIZES, A, B, all_reduce, drawn, four, kind, timed


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Four nodes of two ranks: inside, between, and everything but three nodes; layers with one and two a node."""
    path = tmp_path / "four.yaml"
    parts.assemble("four", four(), path)
    return path


# Lines and how sure they are


def test_intervals_hold_the_true_line_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = np.zeros(2)
    for _ in range(600):
        fit = line.through(SIZES, drawn(rng, A, B))
        for i, (value, interval) in enumerate(((A, fit.a_interval), (B, fit.b_interval))):
            assert interval is not None
            inside[i] += interval[0] <= value <= interval[1]
    assert (inside / 600 > 0.92).all()
    assert (inside / 600 < 0.98).all()


def test_a_perfect_line_is_found_exactly():
    fit = line.through(SIZES, [A + B * np.array(SIZES)] * 6)
    assert (fit.a_seconds, fit.b_seconds_per_byte) == pytest.approx((A, B), rel=1e-9)
    assert fit.a_interval == pytest.approx((A, A), rel=1e-9)
    assert fit.worst_residual < 1e-9
    assert (fit.points, fit.from_bytes, fit.to_bytes, fit.sweeps) == (len(SIZES), SIZES[0], SIZES[-1], 6)


def test_five_sweeps_have_no_interval():
    fit = line.through(SIZES, drawn(np.random.default_rng(0), A, B)[:5])
    assert (fit.sweeps, fit.a_interval, fit.b_interval) == (5, None, None)


def test_a_single_sweep_has_no_interval_and_says_how_far_it_is_off():
    fit = line.through([100, 200, 300], [[1.0, 1.0, 2.0]])
    assert fit.a_interval is None
    assert fit.b_interval is None
    predicted = fit.a_seconds + fit.b_seconds_per_byte * np.array([100, 200, 300])
    off = np.abs(predicted / np.array([1.0, 1.0, 2.0]) - 1)
    assert (fit.mean_residual, fit.worst_residual) == pytest.approx((off.mean(), off.max()))


def test_neither_start_up_nor_slope_is_negative():
    a, b = line.least_relative_squares([1, 2, 3], [1.0, 2.5, 4.5])
    assert a == 0.0
    assert b > 0
    a, b = line.least_relative_squares([1, 2, 3], [3.0, 2.0, 1.0])
    assert b == 0.0
    assert a > 0


@pytest.mark.parametrize(
    ("sizes", "times"), [([8, 8], [[1.0, 1.0]]), ([8, 9], [[1.0, 0.0]]), ([8, 9], [[1.0, np.nan]])]
)
def test_a_line_through_nothing_is_refused(sizes, times):
    with pytest.raises(InputError, match="a line needs"):
        line.through(sizes, times)


# The file


def test_the_file_is_read_back_as_written(cluster, tmp_path):
    profile = clusters.load(cluster)
    again = tmp_path / "again.yaml"
    text.save(profile, again)
    assert again.read_text() == cluster.read_text()
    assert clusters.load(again) == profile
    assert profile.nodes.kinds[0].hosts == ("n1", "n2", "n3")
    assert [(one.nodes, one.ranks_per_node) for one in profile.allreduce.all()] == [
        (1, 2),
        (2, 1),
        (2, 2),
        (4, 1),
        (4, 2),
    ]
    assert profile.contention is profile.topk is profile.io is None
    assert profile.notes == ("a note",)


def test_the_file_says_what_each_part_is(cluster):
    lines = cluster.read_text().splitlines()
    assert max(map(len, lines)) <= 120
    for key in ("contention", "topk", "io"):
        at = lines.index(f"{key}: null")
        assert lines[at - 1].startswith("# Not measured yet: ")
    assert sum(bool(re.match(r" +- \[\d", line)) for line in lines) == 5 * len(SIZES)  # a point a line


def test_links_that_were_not_measured_have_a_reason(tmp_path):
    these = nodes.Nodes(count=1, ranks_per_node=1, kinds=(kind("n1"),))
    about = parts.NodesPart(nodes=these, measured="now", reasons={"between": "there was one node"})
    profile = parts.assemble("one", [about], tmp_path / "one.yaml")
    assert profile.allreduce.between == clusters.Link(measured=None, reason="there was one node")
    assert profile.allreduce.inside.reason == "no such part was given"
    assert "between: not measured: there was one node" in text.show(profile)


def test_ranks_that_shared_cores_are_noted(tmp_path):
    these = nodes.Nodes(count=1, ranks_per_node=2, kinds=(kind("n1"),))
    links = [parts.LinkPart(kind="inside", allreduce=all_reduce(1, each)) for each in (8, 16)]
    profile = parts.assemble("one", [parts.NodesPart(nodes=these, measured="now"), *links], tmp_path / "one.yaml")
    assert len(profile.notes) == 1
    assert "16 rank(s)" in profile.notes[0]
    assert "8 cores" in profile.notes[0]


def changed(cluster: Path, where: str, value: object) -> Path:
    content = yaml.safe_load(cluster.read_text())
    *parents, last = (int(key) if key.isdigit() else key for key in where.split("."))
    place: Any = content
    for key in parents:
        place = place[key]
    place[last] = value
    path = cluster.with_name("changed.yaml")
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 7, "version 7"),
        ("colour", "red", "colour: no such key"),
        ("nodes.kinds.0.memory_gib", "much", "nodes.kinds.0.memory_gib"),
        ("allreduce.inside.measured.0.points.3.0", 8, "inside.measured.0: points must be of asc"),
        ("allreduce.inside.measured.0.points.3.4", -1.0, "seconds of points must be finite and positive"),
        ("allreduce.inside.measured.0.line.points", 5, "line was fitted to other points"),
        ("allreduce.inside.measured.0.ranks_per_node", 1, "needs two ranks or more"),
        ("allreduce.between.measured", None, "allreduce.between: needs either measured all-reduces"),
        ("contention", {"k": 2}, "contention"),
        ("profile", "guessed", "profile"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(cluster, key, value, message):
    path = changed(cluster, key, value)
    with pytest.raises(InputError, match=r"changed\.yaml: ") as error:
        clusters.load(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"), [("a: [", "not YAML"), ("", "not a measured cluster"), ("[1]", "not a me")]
)
def test_what_is_no_profile_is_refused(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        clusters.load(path)


def test_the_described_testbed_of_a_paper_is_no_measured_cluster():
    with pytest.raises(InputError, match="described testbed"):
        clusters.load(Path(__file__).parents[3] / "config/papers/mgwfbp/testbed.yaml")


# What plans take of it


def test_the_cost_is_that_of_the_points_of_that_many_ranks(cluster):
    profile = clusters.load(cluster)
    cost, each, notes = choice.cost(profile, cluster, 8)
    (measured,) = (one for one in profile.allreduce.everything.measured or () if one.nodes == 4)
    expected = fitted.fit([p.bytes for p in measured.points], [p.mean_seconds for p in measured.points])
    assert (each, notes) == (2, [])
    assert cost.seconds(np.array(SIZES)) == pytest.approx(expected.seconds(np.array(SIZES)), rel=0)


def test_ranks_on_the_fewest_nodes_win_and_the_choice_is_told(cluster):
    profile = clusters.load(cluster)
    cost, each, notes = choice.cost(profile, cluster, 4)
    assert each == 2
    assert "2 node(s); measured on 4 node(s) too" in notes[0]
    other, each, notes = choice.cost(profile, cluster, 4, nodes=4)
    assert (each, notes) == (1, [])
    assert other.seconds(256.0) > cost.seconds(256.0)
    with pytest.raises(InputError, match=r"4 ranks were measured on 2, 4 node\(s\), not on 1"):
        choice.cost(profile, cluster, 4, nodes=1)


def test_other_numbers_of_ranks_are_refused_or_scaled_as_a_ring_and_said(cluster):
    profile = clusters.load(cluster)
    with pytest.raises(InputError, match=r"no all-reduce times of 16 ranks; .*: 2 \(1 x 2\), 2 \(2 x 1\)"):
        choice.cost(profile, cluster, 16)
    cost, _, notes = choice.cost(profile, cluster, 16, scale=True)
    assert "4 node(s) scaled as a ring, start-up times 2.14, the rest times 1.07" in notes[0]
    assert notes[0] in cost.describe()
    measured, _, _ = choice.cost(profile, cluster, 8)
    largest = float(SIZES[-1])
    assert cost.seconds(largest) / measured.seconds(largest) == pytest.approx((15 / 16) / (7 / 8), rel=0.03)
    assert cost.seconds(256.0) / measured.seconds(256.0) == pytest.approx(15 / 7, rel=0.15)


def test_a_scaled_line_is_the_line_of_a_ring(cluster):
    """Of points that are a ring's, scaling to n ranks gives the ring of n."""
    alpha, beta = 1e-5, 1e-9
    m = np.array(SIZES, float)
    t = 2 * 3 * alpha + 2 * 3 / 4 * beta * m
    points = tuple(clusters.ClusterPoint(size, s, s, s, s, 1) for size, s in zip(SIZES, t.tolist(), strict=True))
    one = all_reduce(4, 1).model_copy(update={"points": points})
    cost, _, _ = choice.scaled(one, 32, "here")
    assert cost.seconds(m) == pytest.approx(2 * 31 * alpha + 2 * 31 / 32 * beta * m, rel=1e-6)


def test_layer_times_are_those_of_as_many_ranks_a_node(cluster):
    profile = clusters.load(cluster)
    for each in (1, 2):
        load, notes = choice.workload(profile, cluster, "net", each)
        assert load.forward_seconds == 0.01 * each
        assert notes == []
    load, notes = choice.workload(profile, cluster, "net", 8)
    assert load.forward_seconds == 0.02
    assert "measured with 2 rank(s) at once" in notes[0]
    with pytest.raises(InputError, match=r"no layer times of 'bert' \(it has: net\)"):
        choice.workload(profile, cluster, "bert", 1)


def test_a_workload_that_does_not_fit_the_profile_is_refused(cluster):
    profile = clusters.load(cluster)
    path = cluster.parent / profile.workloads[0].file
    path.write_text(timed(0.5, 4).to_json())
    with pytest.raises(InputError, match=r"workloads: four/net-4x1\.json does not have"):
        choice.workload(profile, cluster, "net", 1)
    path.unlink()
    with pytest.raises(InputError, match="can't be read"):
        choice.workload(profile, cluster, "net", 1)


# The command line


def points_csv(one: clusters.AllReduce) -> str:
    return "bytes,seconds\n" + "".join(f"{point.bytes},{point.mean_seconds!r}\n" for point in one.points)


@pytest.mark.parametrize("schedule", ["wfbp", "mgwfbp", "optimal"])
def test_a_plan_from_the_cluster_is_the_plan_from_its_points_and_layers(cluster, tmp_path, capsys, schedule):
    profile = clusters.load(cluster)
    (measured,) = (one for one in profile.allreduce.everything.measured or () if one.nodes == 4)
    points = tmp_path / "points.csv"
    points.write_text(points_csv(measured))
    plans, answers = [tmp_path / "a.json", tmp_path / "b.json"], []
    layers = str(cluster.parent / "four" / "net-4x2.json")
    for given, plan in (
        (["--cluster", str(cluster), "--workload", "net"], plans[0]),
        (["--allreduce", str(points), "--workload", layers], plans[1]),
    ):
        assert main(["plan", *given, "--schedule", schedule, "--ranks", "8", "--output", str(plan), "--json"]) == 0
        planned = json.loads(capsys.readouterr().out)
        assert main(["simulate", *given, "--plan", str(plan), "--json"]) == 0
        simulated = json.loads(capsys.readouterr().out)
        assert simulated["iteration_seconds"] == planned["iteration_seconds"]
        answers.append((planned["messages"], planned["iteration_seconds"], simulated["model_bound_seconds"]))
    assert answers[0] == answers[1]
    ours, theirs = (json.loads(plan.read_text()) for plan in plans)
    assert {**ours, "provenance": None} == {**theirs, "provenance": None}


def test_what_is_chosen_and_scaled_is_a_warning(cluster, capsys):
    command = ["plan", "--cluster", str(cluster), "--workload", "net", "--schedule", "wfbp"]
    assert main([*command, "--ranks", "16", "--scale", "--json"]) == 0
    captured = capsys.readouterr()
    assert "scaled as a ring" in json.loads(captured.out)["warnings"][0]
    assert "gradsync: warning: all-reduce times of 16 ranks were not measured" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "{cluster}", "--workload", "net", "--ranks", "16"], "has no all-reduce times of 16 ranks"),
        (["--cluster", "{cluster}", "--workload", "vgg", "--ranks", "8"], "no layer times of 'vgg'"),
        (["--cluster", "nosuch.yaml", "--workload", "net"], "cluster nosuch.yaml: can't be read"),
        (["--allreduce", "a=1,b=1", "--workload", "net", "--scale"], "--scale: only with --cluster"),
        (["--allreduce", "a=1,b=1", "--workload", "net", "--nodes", "2"], "--nodes: only with --cluster"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(cluster, capsys, arguments, message):
    formatted = [text.format(cluster=cluster) for text in arguments]
    assert main(["plan", *formatted, "--schedule", "wfbp"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_show_prints_every_number_that_a_reader_looks_for(cluster, capsys):
    assert main(["cluster", "show", str(cluster)]) == 0
    shown = capsys.readouterr().out
    for word in ("n1, n2, n3", "eth0 (ethernet, 10 Gbit/s)", "NV2", "4 x 2", "net", "contention", "a note"):
        assert word in shown
    assert main(["cluster", "show", str(cluster), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "four"


def test_parts_of_several_jobs_become_one_profile(cluster, tmp_path, capsys):
    folder = tmp_path / "parts"
    these = nodes.Nodes(count=4, ranks_per_node=2, kinds=(kind("n1", "n2", "n3", "n4"),))
    parts.write(parts.NodesPart(nodes=these, measured="now"), folder / "nodes.json")
    parts.write(parts.LinkPart(kind="inside", allreduce=all_reduce(1, 2)), folder / "inside.json")
    (folder / "w.json").write_text(timed(0.01, 8).to_json())
    output = tmp_path / "out" / "made.yaml"
    files = [str(folder / name) for name in ("nodes.json", "inside.json")]
    command = ["cluster", "assemble", "made", "--workload", str(folder / "w.json"), "--output", str(output), "--part"]
    assert main([*command, *files]) == 0
    profile = clusters.load(output)
    assert [(one.model, one.nodes, one.ranks_per_node) for one in profile.workloads] == [("net", 4, 2)]
    assert choice.workload(profile, output, "net", 2)[0] == timed(0.01, 8)
    capsys.readouterr()
    for bad, message in ((files[1:], "says what the nodes are"), ([*files, str(folder / "w.json")], "no part of a")):
        assert main([*command, *bad]) == 2
        assert message in capsys.readouterr().err
    twice = "all-reduces inside, 2 rank(s) on each of 1 node(s): measured"
    for again, message in ((0, "2 descriptions of its nodes"), (1, twice)):
        assert main([*command, *files, files[again]]) == 2
        assert message in capsys.readouterr().err


def test_a_file_that_is_no_profile_is_not_overwritten(cluster, tmp_path, capsys):
    other = tmp_path / "other.yaml"
    other.write_text("name: mine\n")
    assert main(["cluster", "assemble", "x", "--part", "p.json", "--output", str(other)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert other.read_text() == "name: mine\n"
