"""Tables and figures of the BML paper: states as printed, times by links against closed forms, completion times."""

from __future__ import annotations

import json
import re
from math import isqrt
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gradsync import claims, papers
from gradsync.claims.published import load
from gradsync.configuration import settings
from gradsync.drawing import style
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers import figures, tables
from gradsync.papers.bml_bcube import completion, equipment, states, synchronisation, testbed
from gradsync.papers.table import file, read
from gradsync.plan.workload import Layer, Workload
from made_up_repeats import repeated

ROOT = Path(__file__).parents[3]
PAPER = ROOT / "config/papers/bml_bcube/published.yaml"
BENCH = ROOT / "config/papers/bml_bcube/testbed.yaml"
NINE = {"paper": "bml_bcube", "ranks": 9, "schemes": ["ps_p2p", "tf_ps", "bml"]}
LAUNCHES = [
    {**NINE, "model": "lenet5", "name": "batch4", "batch": 4},
    {**NINE, "model": "lenet5", "name": "batch16", "batch": 16},
    {**NINE, "model": "vgg19_eighth", "batch": 2},
]
# two layers: operations are 1e9 a sample forward; the second is nearly all of the bytes
COUNTED = (("head", 4_000, 0.5e-3), ("body", 4_000_000, 1.5e-3))  # name, elements, seconds backward at 1e12 a second
RATE = 1e12  # operations a second of all GPUs of a server, in the tiny testbed
LINK = 1e8  # bytes a second


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def chosen(**changes: Any) -> settings.Settings:
    shown = {"mgwfbp": {}, "bml_bcube": {}}
    return settings.parse({"version": 1, "name": "tiny", "papers": shown, **changes}, "test")


def small_bench(folder: Path, **changes: Any) -> str:
    """The testbed with round numbers and two points of the band."""
    content = yaml.safe_load(BENCH.read_text())
    content |= {"gpus_per_server": {"value": 1}, "gpu_operations_per_second": {"value": RATE}}
    content |= {"link_bits_per_second": {"value": 8 * LINK}, "share_of_link_rate": {"value": [1.0, 0.1]}}
    content |= {"alpha_seconds": {"value": [0.0]}, "share_of_peak": {"lenet5": [1.0], "vgg19": [1.0]}}
    content["sub_minibatches"] = {"value": {"lenet5": [2, 4], "vgg19": [2, 4]}}
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return str(path)


def write_inputs(results: Path) -> Path:
    """Counted workloads, and the results of three launches."""
    layers = tuple(
        Layer(name=name, bytes=4 * elements, backward_seconds=seconds) for name, elements, seconds in COUNTED
    )
    for model in ("lenet5", "vgg19"):
        path = results / "counted" / model / "workload.json"
        path.parent.mkdir(parents=True)
        path.write_text(Workload(name=model, forward_seconds=1e-3, layers=layers).to_json())
    for number, launch in enumerate(LAUNCHES):
        job = settings.Training(**launch).job
        for scheme, seconds in (("ps_p2p", 0.5), ("tf_ps", 0.8), ("bml", 0.4)):
            Result(
                rung="measured",
                paper="bml_bcube",
                table="training",
                scheme=scheme,
                model=launch["model"],
                ranks=9,
                settings={"batch": launch["batch"]},
                **repeated(iteration_seconds=seconds * (1 + number / 100)),
                conformance={"oracle_difference": 1e-16, "difference_to_first": 0.0},
                notes=["9 ranks share 2 cores"],
            ).save(results / "runs" / "train" / job / scheme)
        folder = results / "runs" / "train" / job
        (folder / "schemes.json").write_text(json.dumps(launch["schemes"]))
    return results


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[settings.Settings, Path]:
    """Settings and a results folder with all tables of the paper."""
    folder = tmp_path_factory.mktemp("bml")
    results = write_inputs(folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wanted = chosen(training=LAUNCHES, papers={"bml_bcube": {"testbed": small_bench(folder)}})
        for name in ("fig4", "fig4_steps", "fig5", "switches", "fig6", "fig7", "emulated", "training"):
            tables.write(papers.compute("bml_bcube", name, wanted, results), results / "tables" / "bml_bcube", name)
    return wanted, results


def table(made: tuple[settings.Settings, Path], name: str) -> pd.DataFrame:
    return read(file(made[1], "bml_bcube", name), ["rung"])


# Fig. 4


def test_the_45_states_are_those_of_the_figure(made):
    frame = table(made, "fig4")
    assert len(frame) == 45
    assert frame.as_printed.eq(1).all()
    at = frame.set_index(["state", "server"])
    # Section 3.2 spells these out
    assert at.thread_0["b", "[0,0]"] == "<0,*,0>([0,*])"
    assert at.thread_0["c", "[0,0]"] == "<0,0,0>([*,*])"
    # the rule behind the figure, for every server [i,j]
    for i in range(3):
        for j in range(3):
            assert at.thread_1["b", f"[{i},{j}]"] == f"<1,{i},*>([*,{j}])"
            assert at.thread_0["d", f"[{i},{j}]"] == f"<0,*,{j}>([*,*])"


def test_a_state_that_is_not_as_printed_is_seen_and_refutes_the_claim(tmp_path, monkeypatch):
    printed = pd.read_csv(states.PRINTED, dtype=str)
    assert printed.loc[13].tolist() == ["b", "[1,1]", "<0,*,1>([1,*])", "<1,1,*>([*,1])"]
    printed.loc[13, "thread_0"] = "<0,*,1>([2,*])"
    wrong = tmp_path / "wrong.csv"
    printed.to_csv(wrong, index=False)
    monkeypatch.setattr(states, "PRINTED", wrong)
    found = states.fig4(chosen(), tmp_path)
    assert found.frame.as_printed.sum() == 44
    assert "44 of 45 states are as printed" in found.caption
    tables.write(found, tmp_path / "tables" / "bml_bcube", "fig4")
    (verdict,) = [v for v in claims.evaluate(PAPER, tmp_path / "tables") if v.claim == "fig4-states"]
    assert verdict.verdict == claims.REFUTED


def test_steps_take_6_2_2_6_pieces_of_time_on_different_levels(made):
    frame = table(made, "fig4_steps")
    steps = frame[frame.step.notna()]
    assert steps.t_c.tolist() == [6, 2, 2, 6]
    assert steps.thread_0_level.tolist() == [0, 1, 1, 0]
    assert steps.thread_1_level.tolist() == [1, 0, 0, 1]
    assert frame[frame.stage == "together"].t_c.tolist() == [16]


# Fig. 5 and switches


def test_synchronisation_times_are_the_closed_forms(made):
    frame = table(made, "fig5")
    gst = frame.set_index(["scheme", "topology"]).gst
    for n, k in ((3, 2), (4, 2), (4, 3), (32, 2), (16, 4)):
        servers = n**k
        assert gst["bml", f"bcube:{n},{k}"] == pytest.approx(2 * (servers - 1) / (k * servers), rel=1e-12)
    for servers, ports in ((16, 4), (64, 8), (1024, 16)):
        for scheme in ("ps_p2p", "hierarchical", "ring"):
            assert gst[scheme, f"fat_tree:{ports}"] == pytest.approx(2 * (servers - 1) / servers, rel=1e-12)
    # balanced shortest paths (BM-E09)
    for n, k in ((3, 2), (4, 2), (4, 3), (32, 2)):
        assert gst["ps_p2p", f"bcube:{n},{k}"] == pytest.approx(2 * (n - 1) / n, rel=1e-12)
    over = frame.set_index(["scheme", "topology"]).over_bml
    assert over["ps_p2p", "bcube:4,2"] == pytest.approx(1.6)
    assert over["ps_p2p", "bcube:32,2"] == pytest.approx(1.9375 / 0.9990234375)
    assert set(synchronisation.DRAWN) <= set(frame.nodes)


def test_switches_are_counted_and_every_fat_tree_is_the_smallest_that_holds_the_servers(made):
    frame = table(made, "switches").set_index("topology")
    counts = frame.switches
    assert counts["bcube:3,2"] == 6
    assert (counts["bcube:4,2"], counts["fat_tree:4"]) == (8, 20)
    assert (counts["bcube:32,2"], counts["fat_tree:16"]) == (64, 320)
    assert (counts["bcube:16,4"], frame.nodes["bcube:16,4"]) == (16384, 65536)
    for cube, tree in equipment.PAIRS:
        ports = int(tree.partition(":")[2])
        assert ports**3 // 4 >= frame.nodes[cube] > (ports - 2) ** 3 // 4
    assert frame.port_ratio["bcube:32,2"] == pytest.approx(2 / 5)
    assert frame.switch_ratio["bcube:32,2"] == pytest.approx(1 / 5)


# Fig. 6 and 7


def test_simulated_times_are_those_by_hand(made):
    """One layer is nearly all of the bytes and ready last: computation, then the transfer of it alone."""
    frame = table(made, "fig6")
    simulated = frame[frame.rung == "simulated"].set_index(["scheme", "batch", "assumption"])
    elements = 4 * (COUNTED[0][1] + COUNTED[1][1])
    for share in (1.0, 0.1):
        label = str(testbed.Point(1.0, share, 0.0))
        t_f = elements / (LINK * share)
        for batch in (2, 4):
            computed = batch * 3e-3
            for scheme, gst in (("bml", 8 / 9), ("ps_p2p", 16 / 9), ("tf_ps", 16)):
                seconds = simulated.iteration_seconds[scheme, batch, label]
                assert computed + gst * t_f * 0.998 <= seconds <= computed + gst * t_f * (1 + 1e-9), (scheme, batch)
                assert simulated.jct_seconds[scheme, batch, label] == pytest.approx(1000 * seconds)
            bml, even, whole = (
                simulated.iteration_seconds[scheme, batch, label] for scheme in ("bml", "ps_p2p", "tf_ps")
            )
            assert simulated.reduction_of_ps["bml", batch, label] == pytest.approx(1 - bml / even)
            assert simulated.reduction_of_tf_ps["bml", batch, label] == pytest.approx(1 - bml / whole)


def test_no_simulated_row_lies_below_its_bounds(made):
    for name in ("fig6", "fig7"):
        frame = table(made, name)
        rows = frame[frame.rung == "simulated"]
        assert len(rows)
        assert (rows.iteration_seconds >= rows.hard_bound_seconds * (1 - 1e-9)).all()
        assert (rows.iteration_seconds >= rows.model_bound_seconds * (1 - 1e-9)).all()
        # at the nominal rate of the links, whatever share of it gradients are assumed to get
        by_share = rows.groupby([rows.batch, rows.scheme, rows.assumption.str.split(",").str[0]]).hard_bound_seconds
        assert by_share.nunique().max() == 1


def test_measured_rows_are_those_of_the_launches_and_decide_nothing(made):
    for name, model, batches in (("fig6", "lenet5", {4, 16}), ("fig7", "vgg19_eighth", {2})):
        frame = table(made, name)
        measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
        assert set(measured.model) == {model}
        assert set(measured.batch_here) == batches
        assert measured.batch.isna().all()
        assert measured.jct_seconds.isna().all()
        assert measured.note.str.contains("9 ranks share 2 cores; .*not decidable on this machine").all()
        bml = measured[measured.scheme == "bml"]
        assert bml.reduction_of_ps.tolist() == pytest.approx([1 - 0.4 / 0.5] * len(bml))
        assert bml.reduction_of_tf_ps.tolist() == pytest.approx([1 - 0.4 / 0.8] * len(bml))
        # what falls on both of a pair falls on no ratio
        for column, share in (("reduction_of_ps", 0.2), ("reduction_of_tf_ps", 0.5)):
            for end in ("low", "high"):
                assert bml[f"{column}_{end}"].tolist() == pytest.approx([share] * len(bml))
        assert (measured.iteration_seconds_low < 0.95 * measured.iteration_seconds).all()
        assert measured.repeats.eq(6).all()
        assert (measured.oracle_difference == 1e-16).all()
    verdicts = claims.evaluate(PAPER, made[1] / "tables")
    measured_verdicts = {v.verdict for v in verdicts if v.rung == "measured"}
    assert measured_verdicts == {claims.UNDECIDED}


def test_a_launch_of_the_papers_own_size_is_shown_and_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(LAUNCHES[0], "batch", 128)
    results = write_inputs(tmp_path / "results")
    content = yaml.safe_load(BENCH.read_text())
    bands = {"share_of_link_rate": {"value": [1.0]}, "alpha_seconds": {"value": [0.0]}}
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(content | bands))
    wanted = chosen(training=LAUNCHES[:2], papers={"bml_bcube": {"testbed": str(tmp_path / "bench.yaml")}})
    found = papers.compute("bml_bcube", "fig6", wanted, results)
    shown = found.display[found.display.rung == "measured"]
    assert shown["sub-minibatch"].tolist() == [128, 16]
    tables.write(found, results / "tables" / "bml_bcube", "fig6")
    of_fig6 = [v for v in claims.evaluate(PAPER, results / "tables") if v.table == "fig6" and v.rung == "measured"]
    assert {v.verdict for v in of_fig6} == {claims.UNDECIDED}
    assert all(v.reason == completion.ONE_NETWORK for v in of_fig6)  # 128 is run: not that it is missing


def test_bands_of_the_testbed_are_what_the_claims_go_over(made):
    full = completion.bench(chosen(), "vgg19")
    assert len(full.points()) == 27
    assert full.centre() in full.points()
    assert (full.cube.hosts, isqrt(full.servers), full.switch.rails) == (9, 3, 1)
    assert full.batches == [4, 16, 32, 64]


# Claims


def test_the_share_of_the_link_that_was_fitted_leaves_the_bands_of_its_claims():
    labels = [str(point) for point in completion.bench(chosen(), "vgg19").points()]
    left = {claim.id: sum(claim.leaves_out(label) for label in labels) for claim in load(PAPER).claims}
    fitted = ("fig6-range", "fig6-range-even", "fig7-range", "fig7-range-even")
    assert {name: count for name, count in left.items() if count} == dict.fromkeys(fitted, 9)


def test_claims_on_links_and_pieces_are_decided(made):
    by_id = {v.claim: v for v in claims.evaluate(PAPER, made[1] / "tables") if v.rung in ("derived", "simulated")}
    counted = {name for name, verdict in by_id.items() if verdict.rung == "derived"}
    assert counted == {"switches-formula", "switches-16", "switches-1024", "switches-65536", "ports"}
    wanted = {
        claims.CONFIRMED: [
            *("fig4-states", "fig4-levels", "fig4-steps", "gst-bml", "gst-ps", "gst-ring", "gst-one-kth", "fig5-half"),
            *("fig5-hierarchical", "fig5-ps-bcube-slower", "switches-16", "ports"),
        ],
        claims.REFUTED: ["fig5-ps-bcube-16", "fig5-ps-bcube-1024", "switches-1024", "switches-65536"],
        claims.CONSTRUCTED: ["switches-formula"],
    }
    for verdict, names in wanted.items():
        assert {by_id[name].verdict for name in names} == {verdict}, verdict
    assert by_id["fig5-ps-bcube-16"].margin == pytest.approx(-0.19)


def test_every_claim_can_be_read_and_published_numbers_are_those_of_the_testbed():
    found = load(PAPER)
    assert all(v.verdict == claims.UNDECIDED for v in claims.evaluate(PAPER, Path("nowhere")))
    published = {entry.id: entry.value for entry in found.published}
    assert [published[f"fig4-step{step}"] for step in (1, 2, 3, 4)] == list(states.PUBLISHED_T_C)
    bench = yaml.safe_load(BENCH.read_text())
    assert bench["iterations"]["value"] == published["iterations"]
    # the least share of a link is what the axes leave (BM-E11)
    for figure, parameters, least in (("fig6", "lenet5-parameters", 0.083), ("fig7", "vgg19-parameters", 0.080)):
        line_rate = 2 * (8 / 9) * 4 * published[parameters] * 8 / bench["link_bits_per_second"]["value"]
        slowest = 2 * published[f"{figure}-axis"] / published["iterations"] * published[f"{figure}-smallest"]
        assert line_rate / slowest == pytest.approx(least, abs=5e-4)


def test_the_ledger_of_several_papers_names_them(made):
    verdicts = claims.evaluate(PAPER, made[1] / "tables")
    other = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", made[1] / "tables")
    text = claims.page([*other, *verdicts])
    assert (
        text.index("## bml_bcube")
        < text.index("`gst-bml`")
        < text.index("## Not decided")
        < text.index("`fig9a-order`")
    )
    assert "## mgwfbp" not in text  # of whose tables none is here
    assert text.count("| claim |") == 1
    assert not re.search(r"[-+]0\.0 %", text)


# Figures


def test_figures_are_written_and_say_what_differs(made):
    wanted, results = made
    for name in figures.of("bml_bcube"):
        written = [Path(path) for path in figures.write("bml_bcube", name, wanted, results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        svg = written[0].read_text()
        expected = {
            "fig4": "(b) after aggregation step 1: 6",
            "fig5": "BCube(32,2), Fat-Tree(16)",
            "fig6": "9 ranks share 2 cores, one network for all: undecidable",
            "fig7": "VGG-19 at an eighth of its channels",
            "emulated": "No emulated launch for bml_bcube",
            "training": "lenet5 on 9 ranks (batch4)",
        }[name]
        assert expected in svg
    assert "0 servers differ" not in (results / "figures" / "bml_bcube" / "fig4.svg").read_text()


def test_without_launches_figures_say_so(tmp_path):
    results = write_inputs(tmp_path / "results")
    wanted = chosen(papers={"bml_bcube": {"testbed": small_bench(tmp_path)}})
    tables.write(papers.compute("bml_bcube", "fig6", wanted, results), results / "tables" / "bml_bcube", "fig6")
    svg = Path(figures.write("bml_bcube", "fig6", wanted, results)[0]).read_text()
    assert "Left out: measured: nothing of LeNet-5 in this configuration." in svg
    assert "(right: 95 %)" not in svg  # no panel there
    assert "emulated on this machine" not in svg


# Broken inputs


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"servers": {"value": "nine"}}, r"servers\.value: needs a number"),
        ({"share_of_peak": {"lenet5": 0.3}}, r"share_of_peak\.lenet5: needs a list of numbers"),
        ({"share_of_link_rate": {"value": []}}, r"share_of_link_rate\.value: needs a list of numbers"),
        ({"bcube": {"value": 3}}, r"bcube\.value: needs a text"),
        ({"bcube": {"value": "bcube:2,2"}}, "holds 1 to 4 ranks, not 9"),
    ],
)
def test_a_broken_testbed_is_named(tmp_path, changes, wanted):
    results = write_inputs(tmp_path / "results")
    own = {"testbed": small_bench(tmp_path, **changes)}
    with pytest.raises(InputError, match=wanted) as refused:
        papers.compute("bml_bcube", "fig6", chosen(papers={"bml_bcube": own}), results)
    assert "\n" not in str(refused.value)


def test_missing_inputs_are_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"counted/lenet5/workload\.json: can't be read"):
        papers.compute("bml_bcube", "fig6", chosen(), tmp_path)
    monkeypatch.setattr(states, "PRINTED", tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"nowhere\.csv: can't be read"):
        papers.compute("bml_bcube", "fig4", chosen(), tmp_path)
    with pytest.raises(InputError, match=r"fig6\.csv: can't be read.*make that table first"):
        figures.write("bml_bcube", "fig6", chosen(), tmp_path)


def test_a_launch_of_a_paper_that_is_not_configured_is_refused():
    with pytest.raises(InputError, match=r"training\.0\.paper: 'nosuch' is not one of this configuration: mgwfbp, bml"):
        chosen(training=[{**LAUNCHES[0], "paper": "nosuch"}])


def test_launches_that_only_differ_in_their_name_are_told_apart():
    wanted = chosen(training=LAUNCHES)
    assert [job.job for job in wanted.of("bml_bcube")] == ["lenet5-9-batch4", "lenet5-9-batch16", "vgg19_eighth-9"]
    assert wanted.of("mgwfbp") == []
    with pytest.raises(InputError, match="is there already: one entry each, or a `name`"):
        chosen(training=[LAUNCHES[0], LAUNCHES[0]])
    with pytest.raises(InputError, match=r"profile_iterations"):
        chosen(training=[{**LAUNCHES[0], "profile_iterations": 1}])
