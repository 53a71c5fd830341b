"""`gradsync advise`: the ranking is what `plan` predicts scheme by scheme, and its reasons hold when tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_lines import LINE, ROOT, advice, points_csv, workload_json
from gradsync import compressors, sparse, updates
from gradsync.cli import main
from gradsync.configuration import networks
from gradsync.configuration import schemes as configuration
from gradsync.configuration.options import options_of
from gradsync.costs.contention_points import Contention, ContentionPoint
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.experiments import advise, at_hand, other_networks
from gradsync.experiments.other_networks import TIED
from gradsync.experiments.profile import launch
from gradsync.runtime.launch import VARIABLES

TWO = ("wfbp", "single")
LINKS = "alpha=0.1,bandwidth=1"
POINT = InterferencePoint(bytes=8, computation=1.2, communication=1.5)
SCHEMES = str(ROOT / "config" / "schemes.yaml")


def predicted(capsys, scheme: str, workload: str, line: str, ranks: int = 2) -> float:
    arguments = ["plan", "--json", "--workload", workload, "--allreduce", line, "--ranks", str(ranks)]
    assert main([*arguments, "--schedule", scheme, "--schemes", SCHEMES]) == 0
    return json.loads(capsys.readouterr().out)["iteration_seconds"]


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "w.json"
    path.write_text(workload_json())
    return str(path)


def test_the_ranking_is_what_plan_predicts_of_each_scheme(workload, capsys):
    told = advice(capsys, "--workload", workload, "--allreduce", LINE, "--schemes", SCHEMES)
    ranking = {row["scheme"]: row for row in told["ranking"]}
    assert {"wfbp", "mgwfbp", "optimal", "pipelined", "fixed_buckets"} <= set(ranking)
    assert [row["iteration_seconds"] for row in told["ranking"]] == sorted(
        row["iteration_seconds"] for row in told["ranking"]
    )
    for scheme in ("wfbp", "mgwfbp", "optimal", "pipelined"):
        assert ranking[scheme]["iteration_seconds"] == predicted(capsys, scheme, workload, LINE)
        baseline = ranking["fixed_buckets"]["iteration_seconds"]
        assert ranking[scheme]["over_baseline"] == ranking[scheme]["iteration_seconds"] / baseline
    assert ranking["optimal"]["iteration_seconds"] < ranking["mgwfbp"]["iteration_seconds"]  # it is the erratum's net


def test_collectives_are_compared_on_links_and_left_out_if_a_line_says_nothing_of_them(workload, capsys):
    told = advice(capsys, "--workload", workload, "--allreduce", LINE, "--ranks", "4")
    assert "a line is the cost of one collective" in told["left_out"]["ring"]
    assert "no links of their own" in told["left_out"]["bml"]
    links = ("--allreduce", "alpha=0.1,bandwidth=1", "--ranks", "4")
    told = advice(capsys, "--workload", workload, *links)
    ranking = [row["scheme"] for row in told["ranking"]]
    others = [name for name in updates.methods() if not updates.steps(name)]
    peers = ("fsdp2", "fsdp2_kept")  # nothing tells the blocks of the model
    assert set(told["left_out"]) == {
        "bml",
        "shared_tree",
        "native_by_level",
        *sparse.names(),
        *compressors.names(),
        *others,
        *peers,
    }
    assert "sums in memory that all ranks share" in told["left_out"]["shared_tree"]
    parts = {"hitopk": "a part", "exact_topk": "a part", "sign": "a code", "qsgd": "a code"}
    for scheme, sent in parts.items():
        assert (
            told["left_out"][scheme] == f"it sends {sent} of each gradient, and so trains another thing than the others"
        )
    apart = {row["scheme"]: row for row in told["other_training"]}
    assert set(apart) == {name for name in updates.methods() if updates.steps(name)}
    assert not set(apart) & set(ranking)
    assert "every 8 iterations parameters are synchronised" in apart["local_sgd"]["changes_training"]
    assert apart["local_sgd"]["iteration_seconds"] > apart["diloco"]["iteration_seconds"]  # which has a longer period
    assert ranking.index("ring") < ranking.index("ps_central")
    told = advice(capsys, "--workload", workload, *links, "--topology", "bcube:2,2")
    assert "bml" in [row["scheme"] for row in told["ranking"]]


def test_schemes_that_are_alike_are_said_to_be(tmp_path, capsys):
    path = tmp_path / "one.json"
    path.write_text(workload_json([("only", 12, 5.0)]))
    told = advice(capsys, "--workload", str(path), "--allreduce", LINE)
    assert {"wfbp", "single", "mgwfbp", "optimal"} <= set(told["not_told_apart"])
    (same,) = (names for tie in told["ties"] for names in tie["of_one_plan"] if "wfbp" in names)
    assert {"wfbp", "single", "mgwfbp", "optimal"} <= set(same)  # a single layer is one message by any of them
    assert main(["advise", "--workload", str(path), "--allreduce", LINE]) == 0
    printed = capsys.readouterr().out
    assert "not told apart from" in printed
    assert "are one and the same" in printed


def test_ties_behind_the_first_are_said_too(workload, capsys):
    """A central server and one of whole tensors move the same bytes over the same links, far behind the others."""
    links = ("--workload", workload, "--allreduce", "alpha=0.1,bandwidth=1", "--ranks", "4")
    told = advice(capsys, *links)
    seconds = {row["scheme"]: row["iteration_seconds"] for row in told["ranking"]}
    for tie in told["ties"]:
        tied = [seconds[name] for name in tie["schemes"]]
        assert max(tied) <= min(tied) * (1 + TIED)
    in_a_tie = {name for tie in told["ties"] for name in tie["schemes"]}
    assert {"ps_central", "ps_tensor"} <= in_a_tie
    assert {"ps_central", "ps_tensor"}.isdisjoint(told["not_told_apart"])
    assert main(["advise", *links]) == 0
    assert "not told apart from one another: " in capsys.readouterr().out


def test_under_interference_no_other_schedule_on_one_lane_is_ranked_before_the_optimum(tmp_path, capsys):
    path, slowing = tmp_path / "w.json", tmp_path / "interference.json"
    path.write_text(workload_json([("four", 40, 3.0), ("three", 8, 4.0), ("two", 30, 6.0), ("one", 20, 5.0)]))
    points = (
        InterferencePoint(bytes=8, computation=1.2, communication=1.5),
        InterferencePoint(bytes=90, computation=2.0, communication=3.0),
    )
    slowing.write_text(Interference(points=points, handover_seconds=0.4).to_json())
    told = advice(capsys, "--workload", str(path), "--allreduce", "a=2,b=0.1", "--interference", str(slowing))
    seconds = {row["scheme"]: row["iteration_seconds"] for row in told["ranking"]}
    others = ("naive", "wfbp", "mgwfbp", "single", "fixed_buckets")
    assert seconds["optimal"] <= min(seconds[name] for name in others) * (1 + 1e-9)
    assert seconds["optimal"] < seconds["wfbp"]


def test_a_line_ties_all_collectives_and_plan_says_so(workload, capsys):
    by_a_line = {}
    for collective in ("native", "ring", "ps_p2p"):
        arguments = [
            "plan",
            "--json",
            "--workload",
            workload,
            "--allreduce",
            LINE,
            "--ranks",
            "4",
            "--schedule",
            "wfbp",
        ]
        assert main([*arguments, "--collective", collective]) == 0
        prediction = json.loads(capsys.readouterr().out)
        by_a_line[collective] = prediction["iteration_seconds"]
        told = [warning for warning in prediction["warnings"] if "a line is the cost of one collective" in warning]
        assert len(told) == (collective != "native")
        assert collective == "native" or collective in told[0]
    assert len(set(by_a_line.values())) == 1


def test_the_residual_of_a_fit_is_the_interval_of_a_prediction(workload, tmp_path, capsys):
    points = tmp_path / "points.csv"
    rows = points_csv([1, 2, 4, 8, 16, 24]).splitlines()
    points.write_text("\n".join([*rows[:3], rows[3].split(",")[0] + ",13.0", *rows[4:]]) + "\n")  # one is off the line
    told = advice(capsys, "--workload", workload, "--allreduce", str(points))
    for row in told["ranking"]:
        assert row["low_seconds"] < row["iteration_seconds"] < row["high_seconds"]
    naive = next(row for row in told["ranking"] if row["scheme"] == "naive")
    width = (naive["high_seconds"] - naive["low_seconds"]) / (2 * naive["exposed_communication_seconds"])
    assert "mean relative residual" in told["all_reduce"]
    assert f"residual {width:.2%}" in told["all_reduce"]  # all of its communication is exposed


def test_reasons_hold_when_they_are_tried(tmp_path, workload, capsys):
    schemes = tmp_path / "two.yaml"
    schemes.write_text("wfbp: {}\nsingle: {}\n")
    told = advice(capsys, "--workload", workload, "--allreduce", LINE, "--explain", "--schemes", str(schemes))
    why = told["why"]
    row = next(row for row in told["ranking"] if row["scheme"] == why["scheme"])
    assert why["exposed_communication_seconds"] == row["exposed_communication_seconds"]
    assert all(message["tensors"] for message in why["exposed_messages"])
    first = told["ranking"][0]["scheme"]
    slower = next(each for each in told["elsewhere"] if each["what"] == "half the bandwidth")
    assert slower["iteration_seconds"] == pytest.approx(predicted(capsys, first, workload, "a=8,b=2"))


def test_the_bandwidth_at_which_the_order_changes_is_where_both_take_as_long(tmp_path, capsys):
    """A large tensor is ready 1 s before two small ones; T(m) = 0.45 s + b m.

    `wfbp` ends 3 starts after the large one's bytes, or 2 starts after backward; `single` one start and all bytes after
    it: max(1.45 + 1000 b, 2) + 0.9 = 2.45 + 1000 b if b = 0.45e-3, but for the small ones' bytes.
    """
    path, schemes = tmp_path / "w.json", tmp_path / "two.yaml"
    path.write_text(workload_json([("large", 1000, 1.0), ("small", 1, 1.0), ("last", 1, 0.0)]))
    schemes.write_text("wfbp: {}\nsingle: {}\n")
    arguments = ("--workload", str(path), "--schemes", str(schemes), "--explain")
    options = advise.Options(workload=str(path), allreduce="a=0.45,b=1e-3", schemes=str(schemes))
    named = configuration.load(schemes)
    first_two = [
        advise._candidate(named[name].model_copy(update={"topology": "switch:2"}), options, None) for name in TWO
    ]
    (change,) = other_networks.order_changes(first_two, options)
    assert change["bandwidth_ratio"] == pytest.approx(1 / 0.45, rel=0.02)
    assert change["fastest_above"] == "single"
    line = f"a=0.45,b={1e-3 / change['bandwidth_ratio']}"
    wfbp, single = (predicted(capsys, name, str(path), line) for name in TWO)
    assert (wfbp - single) / single == pytest.approx(TIED, abs=1e-4)
    told = advice(capsys, *arguments, "--allreduce", "a=0.45,b=1e-3")
    assert "order_changes" in told


def test_schemes_with_phases_are_left_out_though_plan_predicts_them(workload, capsys):
    told = advice(capsys, "--workload", workload, "--allreduce", LINE, "--schemes", SCHEMES)
    assert "gradsync plan predicts them and their mean" in told["left_out"]["mstopk_then_dense"]
    parts = ("mstopk_sgd", "torus2d_sgd")
    assert not set(parts) <= {row["scheme"] for row in told["ranking"]}  # so they are not judged by their phases either


def test_contention_of_the_backends_own_is_why_other_collectives_are_left_out(workload, tmp_path, capsys):
    measured = tmp_path / "contention.json"
    lanes_and_sizes = [(lanes, 2**i) for lanes in (1, 2) for i in range(1, 6)]
    points = tuple(ContentionPoint(lanes=k, bytes=m, seconds=(8.0 + k * m,) * 3) for k, m in lanes_and_sizes)
    measured.write_text(Contention(ranks=2, points=points).to_json())
    costs = ("--allreduce", LINKS, "--contention", str(measured))
    told = advice(capsys, "--workload", workload, *costs)
    assert "--contention is of all-reduces of the backend's own" in told["left_out"]["ring"]
    assert "ring" in [row["scheme"] for row in advice(capsys, "--workload", workload, *costs[:2])["ranking"]]


def test_collectives_without_measured_points_are_left_out_for_that(workload, tmp_path, capsys):
    points = tmp_path / "points.csv"
    rows = "".join(f"2,{size},{8.0 + size},\n" for size in (2, 4, 8, 12, 16))
    points.write_text(f"ranks,bytes,seconds,collective\n{rows}")
    told = advice(capsys, "--workload", workload, "--allreduce", str(points))
    assert "these collectives were not measured" in told["left_out"]["ring"]


def test_an_interference_that_cannot_be_read_is_no_reason_to_leave_schemes_out(workload, tmp_path, capsys):
    broken = tmp_path / "interference.json"
    for content in ("{}", Interference(ranks=4, points=[POINT]).to_json()):
        broken.write_text(content)
        assert main(["advise", "--workload", workload, "--allreduce", LINE, "--interference", str(broken)]) == 2
        error = capsys.readouterr().err
        assert str(broken) in error
        assert "no scheme fits" not in error


def test_the_interference_is_read_once(workload, tmp_path, capsys, monkeypatch):
    path, loads = tmp_path / "interference.json", []
    path.write_text(Interference(points=[POINT]).to_json())
    load = Interference.load
    monkeypatch.setattr(Interference, "load", staticmethod(lambda *given: loads.append(given) or load(*given)))
    told = advice(capsys, "--workload", workload, "--allreduce", LINE, "--interference", str(path))
    assert len(told["ranking"]) > 1
    assert len(loads) == 1


def test_what_does_not_go_together_is_refused_in_one_line(workload, tmp_path, capsys):
    for arguments, message in (
        (["--allreduce", LINE, "--ranks", "8", "--topology", "bcube:2,2"], "holds 1 to 4 ranks"),
        (["--allreduce", "a=x,b=1"], "must be numbers"),
        (["--allreduce", LINE, "--picture", str(tmp_path / "x.gif")], "the ending must be one of"),
    ):
        status = main(["advise", "--workload", workload, *arguments])
        error = capsys.readouterr().err
        assert status == 2
        assert message in error
        assert len(error.splitlines()) == 1


def test_the_ranking_is_drawn(workload, tmp_path, capsys):
    picture = tmp_path / "ranking.svg"
    assert main(["advise", "--workload", workload, "--allreduce", LINE, "--picture", str(picture)]) == 0
    assert "exposed communication" in picture.read_text()
    assert "stock DDP, default buckets" in picture.read_text()
    assert "over DDP" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["10gbe", "fdr56", "25gbe,nvlink2"])
def test_a_described_network_is_the_links_that_it_says(workload, capsys, name):
    between, _, inside = name.partition(",")
    known = networks.load(ROOT / networks.FILE)
    link, local = known.between[between], known.inside[inside or "pcie3"]
    rate, alpha = link.bits_per_second * link.share / 8, f"alpha={link.alpha_seconds:g}"
    if not inside:
        told = advice(capsys, "--workload", workload, "--network", name, "--ranks", "8")
        same = advice(capsys, "--workload", workload, "--allreduce", f"{alpha},bandwidth={rate:g}", "--ranks", "8")
        assert told["ranking"] == same["ranking"]
        assert told["network"] == {"text": link.text, "source": link.source}
    told = advice(capsys, "--workload", workload, "--network", name, "--ranks", "4x2")
    behind = max(link.alpha_seconds - local.alpha_seconds, 0) / 2
    links = f"alpha={local.alpha_seconds:g},inside={local.bits_per_second * local.share / 8:g},between={rate:g}"
    links += f",latency_between={behind:g}"
    nodes = ("--ranks", "8", "--topology", "dense_gpu:4,2")
    assert told["ranking"] == advice(capsys, "--workload", workload, "--allreduce", links, *nodes)["ranking"]
    assert (told["ranks"], told["topology"]) == (8, "dense_gpu:4,2")
    assert told["network"]["text"] == f"{link.text}; inside a node {local.text}"


def test_every_described_network_has_its_sources_and_can_be_named():
    known = networks.load(ROOT / networks.FILE)
    (meaning,) = (each.about.meaning for each in options_of(advise.Options) if each.name == "network")
    assert all(name in meaning for name in (*known.between, *known.inside))
    assert all(link.source for link in (*known.between.values(), *known.inside.values()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--network", "25gb"), "network '25gb' does not exist; did you mean 25gbe?"),
        (("--network", "25gbe,nvlink9", "--ranks", "4x2"), "network inside nodes 'nvlink9' does not exist"),
        (("--network", "25gbe,nvlink2", "--ranks", "8"), "one rank a node has nothing inside: leave out nvlink2"),
        (("--network", "25gbe", "--ranks", "4x2", "--topology", "switch"), "leave one out"),
        (("--ranks", "4x2"), "what links nodes is not measured on one machine: give --network"),
        (("--topology", "dense_gpu:4,2", "--ranks", "8"), "what links nodes is not measured on one machine"),
        (("--topology", "nosuch"), "'nosuch' does not exist"),
        (("--schemes", "missing.yaml"), "missing.yaml"),
        (("--interference", "missing.json"), "missing.json"),
        (("--contention", "missing.json"), "missing.json"),
        (("--picture", "ranking.gif"), "the ending must be one of"),
        (("--output", "/proc/none/advice.json"), "/proc/none"),
        (("--nodes", "2"), "--nodes: only with --cluster"),
        (("--batch", "4", "--network", "25gbe"), "--batch: only with --model"),
        (("--device", "cuda", "--network", "25gbe"), "--device: nothing is measured here"),
        (("--network", ""), "network '' does not exist"),
        (("--network", "25gbe,"), "network inside nodes '' does not exist"),
        (("--allreduce", ""), "'' is no path of a file"),
        (("--cluster", "c.yaml", "--ranks", "4x2", "--nodes", "3"), "--nodes 3: --ranks 4x2 has 4"),
        (("--network", "25gbe", "--keep", "kept"), "--keep: nothing is measured"),
        (("--network", "25gbe", "--ranks", "4x"), "must be a whole number, or NODESxRANKS as 16x8, not '4x'"),
        (("--network", "25gbe", "--ranks", "0x8"), "--ranks 0: at least 1"),
        (("--network", "25gbe", "--allreduce", "a=1,b=1"), "not allowed with"),
        (("--network", "25gbe", "--testbed", "switch"), "--testbed is where --measure N trains"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(workload, capsys, words, message):
    assert main(["advise", "--workload", workload, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_model_or_its_workload_is_needed(capsys):
    assert main(["advise", "--network", "25gbe"]) == 2
    assert "--workload or --model: needed, and not given" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "ranks", "nodes"), [("16x8", 128, (16, 8)), ("4", 4, None)])
def test_ranks_are_a_number_or_nodes_of_some(text, ranks, nodes):
    assert (networks.Ranks(text), networks.Ranks(text).nodes) == (ranks, nodes)


def test_a_measured_cluster_takes_its_nodes_from_the_ranks(workload, tmp_path):
    options = advise.Options(workload=workload, cluster="c.yaml", ranks=networks.Ranks("4x2"))
    with at_hand.known(options) as (told, network, passing):
        assert (told.nodes, told.ranks, told.topology, network, passing) == (4, 8, "switch:8", None, None)


IN_HALVES = "reduce_scatter@world", "all_gather@world"
BY_LEVEL = *IN_HALVES, "reduce_scatter@local", "all_reduce@node", "all_gather@local"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("ranks", "kinds", "axes"),
    [("4", IN_HALVES, ()), ("2x3", BY_LEVEL, ("node:2", "local:3")), ("3x1", IN_HALVES, ())],
)
def test_what_schemes_send_between_ranks_is_measured(monkeypatch, tmp_path, device, ranks, kinds, axes):
    seen = []

    def measure(options):
        options.refuse_kinds([int(options.ranks)], options.collective)
        seen.append(options)

    monkeypatch.setattr(launch, "measure", measure)
    monkeypatch.setattr(at_hand, "_alone", lambda options: False)
    given = {"model": "net.py:make", "batch": 3, "device": device, "ranks": networks.Ranks(ranks)}
    options = advise.Options(**given, keep=tmp_path)
    with at_hand.known(options) as told:
        names = ("workload.json", "allreduce.csv", "interference.json")
        files = (told.options.workload, told.options.allreduce, told.options.interference)
        assert files == tuple(str(tmp_path / name) for name in names)
    (asked,) = seen
    assert (asked.model, asked.batch, asked.ranks, asked.device) == ("net.py:make", 3, int(given["ranks"]), device)
    assert (asked.kind, asked.axes) == (kinds, axes)


def test_a_rank_of_another_launcher_measures_nothing(monkeypatch, capsys):
    for name in VARIABLES:
        monkeypatch.setenv(name, "0")
    assert main(["advise", "--model", "lenet5"]) == 2
    assert "gradsync starts ranks of its own" in capsys.readouterr().err
