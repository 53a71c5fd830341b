"""Tables of the EASGD and KNL paper: columns as its file has them, and values that were computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import yaml

from gradsync import papers
from gradsync.errors import InputError
from gradsync.papers.easgd_knl import networks, partition, scaling
from gradsync.papers.easgd_knl.testbed import EASGD, bench, label
from gradsync.papers.table import file, read
from made_up_easgd import BENCH, BYTES, configured, write_inputs

COLUMNS = {  # as the comments of published.yaml have them
    "table1": "dataset images_train images_test height width channels classes sample_bytes train_megabytes",
    "models": "model layers convolutional fully_connected parameters weights_megabytes weights_over_batch",
    "table2": "network model alpha_seconds beta_seconds_per_byte packed_seconds layered_seconds startup_share",
    "fig10": "scheme model nodes iteration_seconds exchange_seconds update_seconds messages largest_difference",
    "fig12": "parts data accuracy iterations iteration_seconds seconds",
    "copies": "parts bytes fits published_seconds",
    "table4": "scheme model nodes cores iterations seconds iteration_seconds efficiency",
    "table3": "scheme nodes data accuracy iterations seconds iteration_seconds gpu_gpu_para_share cpu_gpu_data_share "
    "cpu_gpu_para_share for_backward_share gpu_update_share cpu_update_share comm_share io_share "
    "initialisation_share for_backward_seconds",
    "exchanges": "scheme nodes transfers_in_a_row served_at_once exchange_seconds",
    "curves": "scheme nodes seed iterations seconds error",
    "fig6": "scheme nodes point data iterations seconds error",
    "time_to_error": "scheme nodes level data error seconds seconds_least",
    "stability": "scheme nodes data spread",
    "determinism": "scheme nodes runs distinct_results difference",
    "fig13": "nodes share data loss seconds",
    "batch": "batch data samples_per_second epochs seconds seconds_kept",
    "constants": "scheme seconds iterations iteration_seconds parts_sum comm_share comm_sum for_backward_seconds "
    "gpu_gpu_para_seconds cpu_gpu_para_seconds",
    "constants_scaling": "model nodes cores seconds efficiency_printed efficiency intel_caffe",
    "emulated": "model scheme nodes iteration_seconds",
}


def frame_of(tables: tuple, name: str) -> pd.DataFrame:
    return read(file(tables[1], "easgd_knl", name), ["rung"])


def test_every_table_has_the_columns_that_claims_look_up(easgd_tables):
    assert set(COLUMNS) == set(papers.declared("easgd_knl").tables)
    for name, columns in COLUMNS.items():
        frame = frame_of(easgd_tables, name)
        assert {*columns.split(), "rung"} <= set(frame.columns), name
        if "assumption" in frame.columns:  # every simulated row has the full name of its point
            assert (frame.assumption[frame.rung == "simulated"] != "").all(), name


def test_a_message_a_layer_has_one_start_up_more_for_each_layer_more(easgd_tables):
    frame = frame_of(easgd_tables, "table2")
    middle = frame[(frame.network == "10gbe") & (frame.assumption == "alpha_seconds first, share_of_link_rate 0.8")]
    row = middle.iloc[0]
    # 8 us, 0.8 of 10 Gbit/s, weight and bias of a layer together
    assert (row.alpha_seconds, row.beta_seconds_per_byte) == (8e-6, 1e-9)
    assert row.packed_seconds == pytest.approx(8e-6 + BYTES * 1e-9)
    assert row.layered_seconds == pytest.approx(2 * 8e-6 + BYTES * 1e-9)
    assert row.startup_share == pytest.approx(16e-6 / (16e-6 + BYTES * 1e-9))
    assert len(frame) == 3 * 2 * 5  # networks, models, points


def test_an_exchange_takes_a_tree_of_four(easgd_tables):
    frame = frame_of(easgd_tables, "fig10")
    point = "networks fdr56, alpha_seconds third, share_of_link_rate 0.8"
    rows = frame[(frame.model == "alexnet") & (frame.assumption == point)].set_index("scheme")
    # two rounds up, two down: alpha 2 us, 5.6 GB/s
    assert rows.exchange_seconds["single"] == pytest.approx(4 * (2e-6 + BYTES / 5.6e9))
    assert rows.exchange_seconds["naive"] == pytest.approx(4 * (4 * 2e-6 + BYTES / 5.6e9))
    assert rows.messages.to_dict() == {"single": 1, "naive": 4}
    # 64 samples of 3e9 operations at 6e12 a second, then the exchange
    assert rows.computation_seconds["naive"] == pytest.approx(64 * 3e9 / 6e12)
    for scheme in rows.index:
        expected = rows.computation_seconds[scheme] + rows.exchange_seconds[scheme]
        assert rows.iteration_seconds[scheme] == pytest.approx(expected)


def test_weak_scaling_is_that_of_trees(easgd_tables):
    frame = frame_of(easgd_tables, "table4")
    assert len(scaling.band(bench(configured()))) == 10
    for nodes in (1, 2, 4, 8, 16, 32, 64):
        # 575 MB at 1 GB/s: transfers down and up, and the addition behind each one up
        iteration = 1318 / 80 + 3 * math.log2(nodes) * 575e6 / 1e9
        at = frame[(frame.model == "vgg19") & (frame.nodes == nodes) & (frame.rung == "simulated")]
        core = at[at.assumption == "rate core, exchange exposed, googlenet_parameters 1.3e+07"].iloc[0]
        assert core.iteration_seconds == pytest.approx(iteration)
        assert core.seconds == pytest.approx(80 * iteration)
        assert core.efficiency == pytest.approx(1318 / 80 / iteration)
        assert core.cores == 68 * nodes
        assert (at.efficiency[at.assumption.str.contains("hidden")] == 1).all()


def test_the_fitted_rate_gives_the_published_time_of_two_nodes(easgd_tables):
    frame = frame_of(easgd_tables, "table4")
    fitted = frame[(frame.nodes == 2) & frame.assumption.str.contains("rate fitted")]
    assert len(fitted) == 4
    for row in fitted.itertuples():
        assert row.seconds == pytest.approx({"googlenet": 1590, "vgg19": 1440}[row.model])


def test_parts_of_a_chip_follow_amdahl(easgd_tables):
    frame = frame_of(easgd_tables, "fig12")

    def seconds(parts: int, **point: str) -> float:
        rows = frame[(frame.parts == parts) & (frame.assumption == label(**point))]
        assert len(rows) == 1
        return float(rows.seconds.iloc[0])

    samples = {"progress": "samples", "batch_of_a_part": "whole"}
    assert seconds(16, serial="0", **samples) == pytest.approx(1605)
    # s + (1 - s) / c of 68 and of 17 cores, and a quarter of the iterations
    assert seconds(4, serial="0.01", **samples) == pytest.approx(1605 / 4 * (0.01 + 0.99 / 17) / (0.01 + 0.99 / 68))
    assert seconds(16, serial="fitted", **samples) == pytest.approx(490, rel=2e-3)
    iterations = {"progress": "iterations", "batch_of_a_part": "whole"}
    assert seconds(4, serial="0", **iterations) == pytest.approx(4 * 1605)
    divided = {"progress": "samples", "batch_of_a_part": "divided"}
    assert seconds(8, serial="0.01", **divided) == pytest.approx(seconds(8, serial="0.01", **samples))
    assert set(partition.PARTS) == set(frame.parts)


def test_seventeen_copies_fit_as_well(easgd_tables):
    frame = frame_of(easgd_tables, "copies").set_index("parts")
    assert frame.bytes[17] == 17 * (249e6 + 687e6)
    assert frame.fits.to_dict() == dict.fromkeys((1, 4, 8, 16, 17), 1)
    assert np.isnan(frame.published_seconds[17])


def test_constants_are_those_of_the_printed_shares(easgd_tables):
    frame = frame_of(easgd_tables, "constants").set_index("scheme")
    assert list(frame.index) == list(EASGD)
    assert frame.iteration_seconds["original_easgd"] == pytest.approx(41 / 5000)
    assert frame.cpu_gpu_para_seconds["original_easgd"] == pytest.approx(0.86 * 41 / 5000)
    assert frame.comm_sum["sync_easgd3"] == pytest.approx(0.14)
    of_nodes = frame_of(easgd_tables, "constants_scaling").set_index(["model", "nodes"])
    assert of_nodes.efficiency["vgg19", 64] == pytest.approx(1318 / 1642)
    assert of_nodes.efficiency_printed["vgg19", 64] == 0.802
    assert of_nodes.intel_caffe.count() == 2


def test_models_are_counted_on_their_definitions(easgd_tables):
    frame = frame_of(easgd_tables, "models")
    kinds = frame.drop_duplicates("model").set_index("model")[["layers", "convolutional", "fully_connected"]]
    assert kinds.T.to_dict("list") == {
        "lenet5": [4, 2, 2],
        "alexnet": [8, 5, 3],
        "googlenet": [22, 59, 5],  # with both auxiliary heads
        "vgg19": [19, 16, 3],
    }
    ratio = frame.set_index(["model", "assumption"]).weights_over_batch
    assert ratio["alexnet", ""] == pytest.approx(BYTES / (64 * 3 * 32 * 32 * 4))
    assert ratio["lenet5", "batch 16"] == pytest.approx(BYTES / (16 * 28 * 28 * 4))
    assert ratio[["googlenet", "vgg19"]].isna().all()


# Data sets


def test_images_are_not_known_without_the_data(easgd_tables):
    frame = frame_of(easgd_tables, "table1").set_index("dataset")
    assert frame[["images_train", "images_test", "classes"]].isna().all(axis=None)
    assert (frame.note != "").all()
    assert frame.sample_bytes["cifar10"] == 12288
    assert frame.train_megabytes["cifar10"] == pytest.approx(614.4)


@pytest.mark.parametrize("kind", ["training", "elastic"])
def test_images_are_counted_on_the_data_that_a_launch_is_given(tmp_path, kind):
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 30), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 7
        head = [count.to_bytes(4, "big"), (28).to_bytes(4, "big"), (28).to_bytes(4, "big")]
        (raw / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + b"".join(head) + bytes(count * 784))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + head[0] + labels.tobytes())
    launch = {"model": "lenet5", "paper": "easgd_knl", "data": "mnist", "data_folder": str(tmp_path / "data")}
    own = {"training": {"ranks": 2}, "elastic": {"workers": 2, "methods": ["sync_easgd3"]}}[kind]
    config = configured(**{kind: [launch | own]})
    row = papers.compute("easgd_knl", "table1", config, tmp_path / "results").frame.set_index("dataset").loc["mnist"]
    assert (row.images_train, row.images_test, row.classes) == (30, 20, 7)
    assert row.train_megabytes == pytest.approx(30 * 28 * 28 * 4 / 1e6)


# Broken inputs


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("table4", {"rate": {"value": "core"}}, r"rate\.value: needs a list of words and numbers"),
        ("table4", {"weights_bytes": {"value": {"vgg19": 0}}}, r"weights_bytes\.value\.vgg19: needs a number above 0"),
        ("table2", {"networks": {}}, r"networks\.share_of_link_rate: needs a list of numbers"),
        ("copies", {"knl": {}}, r"knl\.mcdram_bytes\.value: needs a number"),
    ],
)
def test_a_broken_testbed_is_named(tmp_path, table, changes, message):
    results = write_inputs(tmp_path / "results")
    broken = tmp_path / "bench.yaml"
    broken.write_text(yaml.safe_dump(yaml.safe_load(BENCH.read_text()) | changes))
    config = configured(papers={"easgd_knl": {"testbed": str(broken)}})
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("easgd_knl", table, config, results)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("published: {}", "published: needs a list of entries"),
        ("published: [{id: a, value: 1}]", "published: table3-star-communication: needs a value that is a number"),
    ],
)
def test_published_numbers_that_are_missing_are_named(tmp_path, text, message):
    broken = tmp_path / "published.yaml"
    broken.write_text(text)
    with pytest.raises(InputError, match=message):
        papers.compute("easgd_knl", "constants", configured(papers={"easgd_knl": {"published": str(broken)}}), tmp_path)


def test_the_band_of_networks_has_each_other_value_alone():
    points = [str(point) for point in networks.band(bench(configured()))]
    assert len(points) == len(set(points)) == 5
    assert points[0] == "alpha_seconds first, share_of_link_rate 0.8"
