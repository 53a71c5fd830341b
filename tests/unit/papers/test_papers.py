"""Tables and figures of the MG-WFBP paper on a tiny configuration: closed forms and made-up logs."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gradsync import claims, papers
from gradsync.configuration import settings
from gradsync.drawing import style
from gradsync.errors import InputError
from gradsync.measure import carried
from gradsync.papers import figures, tables
from gradsync.papers.mgwfbp import scaling
from gradsync.papers.table import Table, read
from gradsync.plan.workload import Layer, Workload
from made_up_logs import made_up_logs

ROOT = Path(__file__).parents[3]
REAL = {"LAYERS": carried.LAYERS, "ALLREDUCES": carried.ALLREDUCES}
ALPHA = 45.26e-6  # seconds; config/papers/mgwfbp/testbed.yaml
LINE_RATE = 8 / 1e10  # seconds a byte
FIGURE9 = {"nodes": [4], "gap_nodes": [4, 8], "forward_shares": [0.0, 0.5], "bucket_sweep": 3}
FROM_TABLES = ("fig9a", "fig9b", "gap")
# a net of five layers, weights and biases, in forward order: elements, backward microseconds
LAYERS = [(9408, 15000.0), (110592, 20000.0), (331776, 9000.0), (884736, 8000.0), (1024000, 500.0)]
SLOPE = 2.0e-9  # seconds a byte of the synthetic 8-node log


def tiny(**own: Any) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", "papers": {"mgwfbp": {**FIGURE9, **own}}}, "test")


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def resnet50_profile() -> Workload:
    rng = np.random.default_rng(0)
    layers = tuple(
        Layer(name=f"t{i}", bytes=4 * int(elements), backward_seconds=float(seconds))
        for i, (elements, seconds) in enumerate(
            zip(rng.integers(64, 2_000_000, 20), rng.exponential(0.05, 20), strict=True)
        )
    )
    return Workload(name="resnet50", forward_seconds=0.4, update_seconds=0.1, layers=layers)


@pytest.fixture(scope="module", autouse=True)
def logged(tmp_path_factory):
    layers = [(elements + 64, microseconds, 2.0) for elements, microseconds in LAYERS]
    with made_up_logs(tmp_path_factory.mktemp("logged"), layers, {2: (1e-3, SLOPE), 8: (1e-3, SLOPE)}):
        yield


def write_inputs(results: Path) -> Path:
    (results / "profile" / "resnet50").mkdir(parents=True)
    (results / "profile" / "resnet50" / "workload.json").write_text(resnet50_profile().to_json())
    return results


def make(results: Path, *ids: str) -> dict[str, Table]:
    """The tables of these ids, written as the command line writes them."""
    made = {}
    for name in ids:
        made[name] = papers.compute("mgwfbp", name, tiny(), results)
        tables.write(made[name], results / "tables" / "mgwfbp", name)
    return made


@pytest.fixture(scope="module")
def computed(logged, tmp_path_factory):
    """(results folder, tables)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        results = write_inputs(tmp_path_factory.mktemp("results") / "tiny")
        return results, make(results, "gap", "fig9a", "fig9b")


# Table II


def test_table2_has_the_closed_forms_and_the_rounds_agree():
    both = papers.compute("mgwfbp", "table2", tiny(), Path("nowhere")).frame
    frame, closed = both[both.rung == "simulated"], both[both.rung == "derived"]
    startups = {
        "ring": lambda n: 2 * (n - 1),
        "binary_tree": lambda n: 2 * log2(n),
        "recursive_doubling": log2,
        "halving_doubling": lambda n: 2 * log2(n),
    }
    slopes = {
        "ring": lambda n: 2 * (n - 1) / n,
        "binary_tree": lambda n: 2 * log2(n),
        "recursive_doubling": log2,
        "halving_doubling": lambda n: 2 - 2 / n,
    }
    assert set(frame.algorithm) == set(startups)
    assert (frame.groupby("algorithm").nodes.apply(list) == [[*range(2, 65)]] * 4).all()
    known = frame[frame.seconds_formula.notna()]
    powers = {2, 4, 8, 16, 32, 64}
    assert {(row.algorithm, row.nodes) for row in known.itertuples()} == {
        (name, n) for name in startups for n in range(2, 65) if name == "ring" or n in powers
    }
    assert closed[["algorithm", "nodes"]].to_numpy().tolist() == known[["algorithm", "nodes"]].to_numpy().tolist()
    assert known.a_over_alpha.isna().all()
    for row in closed.itertuples():
        assert row.a_over_alpha == pytest.approx(startups[row.algorithm](row.nodes), rel=1e-12)
        assert row.b_over_beta == pytest.approx(slopes[row.algorithm](row.nodes), rel=1e-12)
    np.testing.assert_allclose(known.seconds_rounds, known.seconds_formula, rtol=1e-9)
    # beyond a power of two: the rest hands its data in and gets the sum back; of a tree one level more each way
    extra = frame[~frame.nodes.isin(powers) & (frame.algorithm != "ring")]
    assert set(extra.extra_rounds) == {2.0}
    assert (frame[frame.nodes.isin(powers) & (frame.algorithm != "ring")].extra_rounds == 0).all()


# Fig. 1 to 4


def test_timelines_are_those_of_the_equations():
    frame = papers.compute("mgwfbp", "timelines", tiny(), Path("nowhere")).frame
    seconds = {(row.case, row.scheme): row.iteration_seconds for row in frame.itertuples()}
    rows = {(row.case, row.scheme): row for row in frame.itertuples()}
    naive = rows["case3", "naive"]  # Eq. 3
    assert naive.iteration_seconds == pytest.approx(naive.t_f + naive.t_b + naive.t_c_sum, rel=1e-12)
    hidden = rows["case1", "wfbp"]  # only the last message is not hidden
    assert hidden.iteration_seconds == pytest.approx(hidden.t_f + hidden.t_b + hidden.t_c_first, rel=1e-12)
    assert seconds["case3", "mgwfbp"] < seconds["case3", "wfbp"] < seconds["case3", "naive"]
    assert seconds["counterexample", "mgwfbp"] == pytest.approx(48.0, rel=1e-12)
    assert seconds["counterexample", "optimal"] == pytest.approx(45.0, rel=1e-12)
    for row in frame.itertuples():
        exposed = row.iteration_seconds - row.t_f - row.t_b
        assert row.exposed_communication_seconds == pytest.approx(exposed, rel=1e-9, abs=1e-12)


# Fig. 9 and the gap


def test_optimal_is_never_slower_than_any_scheme(computed):
    _, made = computed
    frame = made["gap"].frame
    known = frame[frame.iteration_seconds.notna()]
    assert not known.empty
    assert (known.over_optimal >= 1 - 1e-12).all()
    best = known.groupby(["model", "nodes", "assumption"]).iteration_seconds.min()
    optimal = known[known.scheme == "optimal"].set_index(["model", "nodes", "assumption"]).iteration_seconds
    np.testing.assert_allclose(optimal.sort_index(), best.sort_index(), rtol=1e-12)


def test_no_simulated_row_lies_below_its_bounds(computed):
    _, made = computed
    drawn = papers.compute("mgwfbp", "timelines", tiny(), Path("nowhere"))
    for table in (*made.values(), drawn):
        known = table.frame[table.frame.iteration_seconds.notna()]
        assert len(known)
        assert (known.iteration_seconds >= known.hard_bound_seconds * (1 - 1e-9)).all()
        assert (known.iteration_seconds >= known.model_bound_seconds * (1 - 1e-9)).all()
    gap = made["gap"].frame
    # b as fitted has an interval, so that the bound of the model is one of its lower end; at line rate both are alike
    at_rate = gap[gap.assumption.str.contains("line rate")]
    assert at_rate.model_bound_seconds.to_numpy() == pytest.approx(at_rate.hard_bound_seconds.to_numpy())


def test_every_scheme_is_there_at_every_point(computed):
    _, made = computed
    frame = made["gap"].frame
    schemes = {"naive", "wfbp", "single", "mgwfbp", "mgwfbp_as_printed", "optimal", "horovod_buckets", "fixed_buckets"}
    assert schemes | {scaling.BEST_BUCKET} <= set(frame.scheme)
    points = frame.groupby(["model", "nodes", "scheme"]).size().unstack("scheme")
    # 2 forward times x 2 slopes, for ResNet-50 x 2 units
    assert (points.loc["resnet50"] == 8).all(axis=None)
    assert (points.loc["googlenet"] == 4).all(axis=None)
    assert set(frame.nodes) == {4, 8}
    assert (frame.rung == "simulated").all()


def test_closed_forms_of_what_is_not_merged_or_all_merged(computed):
    _, made = computed
    frame = made["gap"].frame
    sizes = np.array([4 * (elements + 64) for elements, _ in LAYERS[::-1]], float)
    backward = np.array([1e-6 * microseconds for _, microseconds in LAYERS[::-1]])
    slopes = {
        "b=line rate": lambda n: 2 * (n - 1) / n * LINE_RATE,
        "b=measured": lambda n: SLOPE * (n - 1) / n / (7 / 8),
    }
    checked = 0
    for row in frame[frame.model == "googlenet"].itertuples():
        share, slope = row.assumption.split(", ")
        t_f = float(share.removeprefix("t_f=").removesuffix(" t_b")) * backward.sum()
        a, b = 2 * (row.nodes - 1) * ALPHA, slopes[slope](row.nodes)
        alone = t_f + backward.sum()
        wfbp = 0.0
        for ready, size in zip(t_f + backward.cumsum(), sizes, strict=True):  # Eq. 7
            wfbp = max(wfbp, ready) + a + b * size
        expected = {
            "naive": alone + (a + b * sizes).sum(),
            "single": alone + a + b * sizes.sum(),
            "wfbp": wfbp,
        }
        assert row.efficiency == pytest.approx(alone / row.iteration_seconds, rel=1e-9)
        assert row.speedup == pytest.approx(row.nodes * row.efficiency, rel=1e-12)
        assert row.exposed_communication_seconds == pytest.approx(row.iteration_seconds - alone, rel=1e-6)
        if row.scheme in expected:
            assert row.iteration_seconds == pytest.approx(expected[row.scheme], rel=1e-7), row
            checked += 1
    assert checked == 3 * 2 * 4


def test_resnet50_takes_the_published_time_of_one_k80(computed):
    _, made = computed
    frame = made["gap"].frame
    frame = frame[frame.model == "resnet50"]
    alone = frame.efficiency * frame.iteration_seconds
    one = frame.assumption.str.endswith("one GPU")
    np.testing.assert_allclose(alone[one], 32 / 49.5, rtol=1e-9)
    np.testing.assert_allclose(alone[~one], 32 / 95.4, rtol=1e-9)
    assert set(frame.assumption[~one].str.split(", ").str[-1]) == {"2 GPUs"}


def test_fig9_is_the_part_of_the_gap_that_the_paper_shows(computed):
    _, made = computed
    gap = made["gap"].frame
    for name, model in (("fig9a", "googlenet"), ("fig9b", "resnet50")):
        expected = gap[(gap.model == model) & (gap.nodes == 4)].drop(columns="over_optimal").reset_index(drop=True)
        pd.testing.assert_frame_equal(made[name].frame.reset_index(drop=True)[expected.columns], expected)
        assert list(made[name].display.columns) == ["scheme", "N=4"]
        assert list(made[name].display.scheme) == list(dict.fromkeys(expected.scheme))


def test_a_finer_sweep_of_buckets_is_no_worse(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    best = []
    for sweep in (2, 3, 9):  # each holds the sizes of the one before
        chosen = tiny(gap_nodes=[4], bucket_sweep=sweep)
        frame = papers.compute("mgwfbp", "gap", chosen, results).frame
        found = frame[(frame.scheme == scaling.BEST_BUCKET) & (frame.model == "resnet50")]
        best.append(found.iteration_seconds.to_numpy())
    for coarse, fine in pairwise(best):
        assert (fine <= coarse * (1 + 1e-12)).all()


def test_tables_are_written_for_programs_and_for_people(computed):
    results, made = computed
    for name, table in made.items():
        folder = results / "tables" / "mgwfbp"
        frame = table.frame.reset_index(drop=True)
        pd.testing.assert_frame_equal(read(folder / f"{name}.csv"), frame, check_dtype=False)
        markdown = (folder / f"{name}.md").read_text()
        assert markdown.startswith(table.caption)
        assert "mgwfbp_as_printed" in markdown
        latex = (folder / f"{name}.tex").read_text()
        assert r"mgwfbp\_as\_printed" in latex
        assert r"\caption" in latex


def test_claims_are_decided_or_say_what_is_missing(computed):
    results, _ = computed
    verdicts = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", results / "tables")
    theorem = {verdict.claim: verdict for verdict in verdicts if verdict.claim.startswith("theorem1-google")}
    (verdict,) = theorem.values()
    assert verdict.verdict == claims.UNDECIDED  # not all the nodes are there
    assert verdict.reason


def test_what_is_carried_over_gives_a_band_for_googlenet(tmp_path, monkeypatch):
    results = write_inputs(tmp_path / "tiny")
    for name, file in REAL.items():
        monkeypatch.setattr(carried, name, file)
    frame = papers.compute("mgwfbp", "gap", tiny(), results).frame
    frame = frame[frame.model == "googlenet"]
    assert frame.iteration_seconds.notna().all()
    assert (frame.over_optimal >= 1 - 1e-12).all()
    assert set(frame.assumption) == {f"t_f={t_f} t_b, b={b}" for t_f in ("0", "0.5") for b in ("line rate", "measured")}
    assert (frame.iteration_seconds >= 0.2053).all()  # the backward pass alone


# Broken inputs


@pytest.mark.parametrize(
    ("file", "content", "wanted"),
    [
        ("profile/resnet50/workload.json", None, r"workload\.json: can't be read"),
        ("profile/resnet50/workload.json", "{}", r"workload\.json: not a workload"),
    ],
)
def test_a_broken_input_of_the_gap_is_named(tmp_path, file, content, wanted):
    results = write_inputs(tmp_path / "tiny")
    if content is None:
        (results / file).unlink()
    else:
        (results / file).write_text(content)
    with pytest.raises(InputError, match=wanted) as refused:
        papers.compute("mgwfbp", "gap", tiny(), results)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("table", [carried.LAYERS, carried.ALLREDUCES], ids=lambda path: path.stem)
def test_a_torn_row_of_what_is_carried_over_is_named_by_the_table_made_of_it(tmp_path, monkeypatch, table):
    torn = tmp_path / table.name
    torn.write_text((ROOT / table).read_text().rstrip()[:-12] + "x\n")
    monkeypatch.setattr(carried, next(name for name, file in REAL.items() if file == table), torn)
    line = len(torn.read_text().splitlines())
    with pytest.raises(InputError, match=rf"{table.name}, line {line}: not a row .*: restore the file"):
        papers.compute("mgwfbp", "gap", tiny(), write_inputs(tmp_path / "tiny"))


def test_what_the_authors_logged_is_read_without_a_network(tmp_path, monkeypatch):
    monkeypatch.delenv("GRADSYNC_EXTERNAL_DATA", raising=False)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a table asked the network"))
    results = write_inputs(tmp_path / "tiny")
    frame = papers.compute("mgwfbp", "gap", tiny(), results).frame
    assert set(frame.model) == {"googlenet", "resnet50"}
    assert frame.iteration_seconds.notna().all()


@pytest.mark.parametrize(
    "content",
    [None, "", "garbage\n1\n", "a,b\n1,2,3,4\n", "\x00\x01"],
    ids=["missing", "empty", "other", "torn", "nul"],
)
def test_a_broken_gap_is_named_by_what_reads_it(tmp_path, content):
    path = tmp_path / "tables" / "mgwfbp" / "gap.csv"
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_text(content)
    for compute in (
        lambda: papers.compute("mgwfbp", "fig9a", tiny(), tmp_path),
        lambda: figures.write("mgwfbp", "gap", tiny(), tmp_path),
    ):
        with pytest.raises(InputError, match=r"gap\.csv: ") as refused:
            compute()
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: 3\n", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: {value: fast}\n", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: {value: 1.0e-5}\n", r"link_bits_per_second\.value: needs a number"),
        ("a: [", "testbed .*parsing"),
    ],
)
def test_a_broken_cluster_is_named(tmp_path, content, wanted):
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=wanted) as refused:
        papers.compute("mgwfbp", "table2", tiny(testbed=str(path)), tmp_path)
    assert str(path) in str(refused.value)


# Figures


def test_figures_are_written_in_every_format_even_where_data_is_missing(computed):
    results, _ = computed
    begins = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "csv": None}
    for name in FROM_TABLES:
        written = [Path(path) for path in figures.write("mgwfbp", name, tiny(), results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        for path in written:
            begin = begins[path.suffix.lstrip(".")]
            assert path.stem == name
            assert path.read_bytes().startswith(begin or b"rung,model,nodes,scheme,assumption,iteration_seconds")
        svg = written[0].read_text()
        assert ("fixed buckets (PyTorch DDP)" in svg) is (name == "gap")
        if name != "gap":
            assert "exact optimum" in svg
    assert [path.name for path in (results / "figures" / "mgwfbp").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3", "fig4", "counterexample"])
def test_drawn_examples_need_no_results(tmp_path, name):
    written = [Path(path) for path in figures.write("mgwfbp", name, tiny(), tmp_path)]
    frame = pd.read_csv(written[-1])
    assert {"panel", "operation", "start", "end"} <= set(frame.columns)
    svg = written[0].read_text()
    for panel in frame.panel.unique():
        assert panel in svg
    # the same input gives the same bytes
    first = [path.read_bytes() for path in written]
    assert [Path(path).read_bytes() for path in figures.write("mgwfbp", name, tiny(), tmp_path)] == first


def test_an_earlier_figure_survives_one_that_fails(tmp_path, monkeypatch):
    written = [Path(path) for path in figures.write("mgwfbp", "fig1", tiny(), tmp_path)]
    before = {path: path.read_bytes() for path in written}

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"can't be written: no space left"):
        figures.write("mgwfbp", "fig1", tiny(), tmp_path)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in (tmp_path / "figures" / "mgwfbp").iterdir()} == before


def test_unknown_names_list_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"there are: .*mgwfbp"):
        papers.compute("nosuch", "gap", tiny(), tmp_path)
    with pytest.raises(InputError, match="it has: table2, timelines"):
        papers.compute("mgwfbp", "nosuch", tiny(), tmp_path)
    with pytest.raises(InputError, match="it has: fig1, fig2"):
        figures.write("mgwfbp", "nosuch", tiny(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_packages_find_the_style_sheet_of_the_project():
    assert style.SHEET.is_file()
