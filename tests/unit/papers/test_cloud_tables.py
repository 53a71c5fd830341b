"""Tables of the public-cloud top-k paper: columns as its file has them, and values that were computed by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from gradsync import claims, papers
from gradsync.claims.published import load
from gradsync.drawing import style
from gradsync.errors import InputError
from gradsync.files.results import TIMED
from gradsync.papers import coverage, figures
from gradsync.papers.cloud_topk.models import balanced, in_order
from gradsync.papers.cloud_topk.pto import WORKERS
from gradsync.papers.table import file, read
from made_up_cloud import BENCH, PAPER, configured, write_inputs

COLUMNS = {  # as the comments of published.yaml have them
    "algorithm1": "scheme vector density k selected above_first above_second recall",
    "fig6": "scheme elements device seconds",
    "fig9": "loader model device io_seconds exposed_io_seconds iteration_seconds throughput",
    "fig10": "data model scheme mean_accuracy",
    "fig10_epochs": "data model scheme epoch accuracy",
    "published": "number table model scheme over unit nodes value",
    "models": "model parameters tensors",
    "complexity": "step nodes gpus_per_node density rounds_seconds formula_seconds",
    "pto_split": "model split workers layers_reduction elements_reduction",
    "pto": "model optimizer workers serial_seconds pto_seconds",
    "table1": "cloud memory_gib network_gbit_per_second",
    "table5": "entry seconds link_gbit_per_second accuracy",
    "fig1": "model scheme nodes computation_seconds compression_seconds exposed_communication_seconds lars_seconds "
    "iteration_seconds",
    "fig7": "scheme elements nodes gpus_per_node density seconds",
    "fig8": "model step density nodes gpus_per_node seconds",
    "table2": "data model scheme accuracy bleu",
    "table3": "model scheme nodes iteration_seconds exposed_communication_seconds throughput speedup efficiency",
    "table4": "model scheme nodes iteration_seconds exposed_communication_seconds throughput speedup efficiency",
    "emulated": "model scheme nodes iteration_seconds",
}


def frame_of(tables: tuple, name: str) -> pd.DataFrame:
    return read(file(tables[1], "cloud_topk", name), ["rung"])


def test_every_table_has_the_columns_that_claims_look_up(cloud_tables):
    assert set(COLUMNS) == set(papers.declared("cloud_topk").tables)
    for name, columns in COLUMNS.items():
        assert {*columns.split(), "rung"} <= set(frame_of(cloud_tables, name).columns), name


def test_every_published_number_is_a_row_under_our_names(cloud_tables):
    frame, paper = frame_of(cloud_tables, "published").set_index("number"), load(PAPER)
    assert list(frame.index) == [entry.id for entry in paper.published]
    assert frame.value.tolist() == [entry.value for entry in paper.published]
    row = frame.loc["improvement-least"]
    assert (row.scheme, row.over) == (paper.schemes["mstopk_sgd"], paper.schemes["2dtar_sgd"])


def test_steps_take_what_their_transfers_take(cloud_tables):
    frame = frame_of(cloud_tables, "complexity").set_index(["step", "density"])
    between, inside = 25e9 / 8, 150e9  # bytes per second
    for density in (0.001, 0.01):
        k = density * 25e6
        # a ring of 128 crosses each link of a node once each way
        assert frame.rounds_seconds["naive_values", density] == pytest.approx(127 * 4 * k / between)
        assert frame.rounds_seconds["reduce_scatter", density] == pytest.approx(7 * 4 * 25e6 / 8 / inside)
        # eight streams of a node on its one link, values and indices
        assert frame.rounds_seconds["inter_all_gather", density] == pytest.approx(15 * 8 * 8 * k / 8 / between)
        assert frame.rounds_seconds["intra_all_gather", density] == pytest.approx(7 * 4 * 25e6 / 8 / inside)
        assert frame.formula_seconds["inter_all_gather", density] == pytest.approx(4 * 15 * k / 8 / between)
        assert frame.formula_seconds["intra_all_gather", density] == pytest.approx(4 * 7 * k * 16 / 8 / inside)


def test_layers_are_dealt(cloud_tables):
    assert in_order([10, 20, 70, 100, 800], 4, 2) == [(2, 30), (2, 170), (1, 800)]
    assert in_order([1] * 9, 2, 2) == [(5, 5), (4, 4)]  # none is left over
    assert sorted(balanced([10, 20, 70, 100, 800], 4)) == [(1, 70), (1, 100), (1, 800), (2, 30)]
    assert sorted(balanced([4, 3, 3, 2, 2, 2], 2)) == [(3, 8), (3, 8)]
    frame = frame_of(cloud_tables, "pto_split").set_index(["model", "split"])
    assert frame.layers_reduction["resnet50", "printed"] == 5 / 2
    assert frame.elements_reduction["resnet50", "balanced"] == 1000 / 800
    assert frame.layers_reduction["vgg19", "balanced"] == 129 / 2  # one more than there are GPUs
    assert frame.used["vgg19", "printed"] == 65


def test_lars_by_pto_takes_the_part_of_the_gpu_with_most_and_the_gather(cloud_tables):
    """ResNet-50 of 10, 20, 70, 100 and 800 elements, 11 ms. Of two GPUs one has 100 and 800; as planned 10 and 800."""
    frame = frame_of(cloud_tables, "pto")
    published = frame[frame.rung == "published"].set_index("model")
    assert published.pto_seconds["resnet50"] == 0.007
    frame = frame[frame.rung == "simulated"].set_index(["model", "optimizer", "workers", "assumption"])
    good, poor = "network good, all gather recursive_doubling", "network poor, all gather ring"
    row = frame.loc["resnet50", "lars", 2, f"{good}, inside fast, time by elements"]
    assert row.serial_seconds == pytest.approx(0.011)
    assert row.pto_seconds == pytest.approx(0.011 * 0.9 + 5e-6)
    assert row.balanced_seconds == pytest.approx(0.011 * 0.81 + 5e-6, rel=5e-3)  # and the ratios that it writes
    row = frame.loc["resnet50", "lars", 128, f"{poor}, inside fast, time by layers"]
    assert row.pto_seconds == pytest.approx(0.011 * 2 / 5 + 127 * 1e-4)
    assert row.balanced_seconds == pytest.approx(0.011 * 1 / 5 + 127 * 1e-4, rel=5e-3)
    row = frame.loc["resnet50", "lamb", 128, f"{good}, inside slow, time by layers"]
    assert row.serial_seconds == pytest.approx(0.022, rel=1e-2)  # twice the operands
    assert row.gather_seconds == pytest.approx(3 * 2e-5 + 4 * 2e-5)
    assert set(frame.xs("resnet50").index.get_level_values("workers")) == set(WORKERS)


def test_claims_on_published_numbers_are_decided(cloud_tables):
    verdicts = claims.evaluate(PAPER, cloud_tables[1] / "tables")
    by_id = {v.claim: v for v in verdicts if v.rung in ("derived", "simulated")}
    expected = {
        claims.UNCONTRADICTED: ["fig2-close"],
        claims.CONFIRMED: ["eq3", "published-run", "published-tables-2dtar", "published-pto-transformer"],
        claims.REFUTED: [
            "eq9",
            "eq10",
            "pto-lars-resnet50",
            "published-tables-mstopk",
            "published-pto-resnet50",
            "published-intro",
            "algorithm1-always-k",
            "fig2-any-density",
        ],
        claims.CONSTRUCTED: [
            "eq7",
            "table1-networks",
            "table5-record",
            "fig2-between",
            "algorithm1-always-k-corrected",
        ],
        claims.UNDECIDED: ["table5-slower-links"],
    }
    for verdict, names in expected.items():
        assert {by_id[name].verdict for name in names} == {verdict}, verdict
    open_ones = {v.claim: v.reason for v in by_id.values() if v.verdict == claims.UNDECIDED and v.table == "published"}
    assert open_ones == {}  # every cell that they look up is one row


def test_nothing_timed_is_decided_and_no_configuration_is_said_to_do_it(cloud_tables):
    for verdict in claims.evaluate(PAPER, cloud_tables[1] / "tables"):
        if verdict.rung in TIMED:
            assert verdict.verdict == claims.UNDECIDED
            made = not verdict.reason.endswith("has not been made")
            # of table2, fig6, fig9, fig10 and pto a row is missing: no GPU, no training
            if verdict.rung == "measured":
                never = coverage.never("cloud_topk", verdict.table, verdict.rung)
                assert made == bool(never or verdict.table in ("table2", "fig6", "fig9", "fig10", "pto")), verdict
            elif made:
                assert "no such emulated launch in this configuration" in verdict.reason, verdict


@pytest.mark.usefixtures("as_svg_alone")
def test_figures_are_written_and_say_what_differs(cloud_tables):
    config, results = cloud_tables
    for name in figures.of("cloud_topk"):
        written = [Path(path) for path in figures.write("cloud_topk", name, config, results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        expected = {
            "complexity": ("x 16", "x 6.25"),
            "table5": ("562 s, no link stated",),
            "pto": ("network poor, time by layers: faster than serial up to 64", "PTO, published"),
            "fig6": ("(a) small", "(b) large", "MSTopK"),
            "fig9": ("15.0 x", "30.0 x", "waiting for samples"),
            "fig10": ("No training of this paper",),
        }.get(name, ())
        assert all(text in written[0].read_text() for text in expected), name


# Broken inputs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training_density": {}}, r"training_density\.value: needs a list of numbers"),
        ({"gpu": {"value": {"nvlink_bytes_per_second": 0}}}, r"nvlink_bytes_per_second: needs a number above 0"),
    ],
)
def test_a_broken_testbed_is_named(tmp_path, changes, message):
    broken = tmp_path / "bench.yaml"
    broken.write_text(yaml.safe_dump(yaml.safe_load(BENCH.read_text()) | changes))
    config = configured(papers={"cloud_topk": {"testbed": str(broken)}})
    with pytest.raises(InputError, match=message):
        papers.compute("cloud_topk", "complexity", config, write_inputs(tmp_path / "results"))


def test_a_scheme_without_our_name_is_named(tmp_path):
    broken = tmp_path / "published.yaml"
    broken.write_text("schemes: {}\npublished: [{id: a, value: 1, scheme: b}]")
    with pytest.raises(InputError, match="schemes: b: needs our name"):
        papers.compute(
            "cloud_topk", "published", configured(papers={"cloud_topk": {"published": str(broken)}}), tmp_path
        )
