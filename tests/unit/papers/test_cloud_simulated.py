"""What is simulated of the public-cloud top-k paper, over its band: against sums worked out by hand, and bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from gradsync import claims, collectives, topologies
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.table import file, read
from gradsync.rounds import flow_level
from gradsync.rounds.pipelined import Pipelined
from gradsync.topologies import Speeds
from made_up_cloud import PAPER, configured

LINK = 25e9 / 8  # bytes per second
GOOD, FAST = "network good, 10 Gbit/s a connection, inside fast", 130e9


def frame_of(tables: tuple, name: str) -> pd.DataFrame:
    return read(file(tables[1], "cloud_topk", name), ["rung"])


def at(frame: pd.DataFrame, **keys: object) -> pd.Series:
    for key, value in keys.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1, keys
    return frame.iloc[0]


def test_the_band_has_every_combination_of_what_all_models_share_and_the_first_is_drawn():
    testbed = bench(configured())
    shared = 2 * 3 * 2 * 2 * 2 * 2 * 2
    assert len(testbed.without_own()) == shared
    assert len(testbed.points) == len({str(point) for point in testbed.points}) == 4 * shared
    assert len(testbed.of_links()) == 12
    label = str(testbed.points[0])
    assert label.startswith(f"{GOOD}, 16-bit values, density 0.001, horovod_buckets, update inside")
    assert "Transformer batch 12" in label
    assert any("single" in str(point).split(", ") for point in testbed.points)  # a part of its own, which claims name


def test_aggregations_take_what_their_rounds_take(cloud_tables):
    frame = frame_of(cloud_tables, "fig7")
    drawn = frame[frame.assumption == GOOD]
    d, rate = 64_000_000, 0.95 * LINK
    bytes_all = 2 * d
    # 2DTAR: 7 of 8 parts inside twice, 15 of 16 of all slices between twice, start-ups of each round
    inside, between = 2 * (7 * 5e-6 + 7 / 8 * bytes_all / FAST), 2 * (15 * 2e-5 + 15 / 16 * bytes_all / rate)
    assert at(drawn, scheme="torus2d", elements=d).seconds == pytest.approx(inside + between)
    # HiTopKComm: recursive doubling of values and indices, 16 nodes, all streams of a node on its link
    gathers = 2 * 4 * 2e-5 + 15 * 0.01 * d * (2 + 4) / rate
    passes, memory = 34, 0.8 * 900e9
    kernels = (passes * d / 8 * 2 + d / 8 * 2 + 16 * 0.01 * d / 8 * (3 * 2 + 4)) / memory
    assert at(drawn, scheme="hitopk", elements=d).seconds == pytest.approx(inside + gathers + kernels, rel=1e-6)
    # NaiveAG: a ring over 128, whose one connection from node to node gets 10 of 25 Gbit/s
    naive = 2 * 127 * 2e-5 + 127 * 0.01 * d * (2 + 4) / 1.25e9
    assert at(drawn, scheme="allgather_sparse", elements=d).seconds == pytest.approx(naive, rel=1e-6)
    # TreeAR: a node's link carries the message up and down, by two connections of 10 Gbit/s, and fills a pipeline
    tree = at(drawn, scheme="tree", elements=d).seconds
    assert 2 * bytes_all / 2.5e9 < tree < 1.2 * 2 * bytes_all / 2.5e9
    for _, rows in frame[frame.rung == "simulated"].groupby(["scheme", "assumption"]):
        assert all(less < more for less, more in pairwise(rows.sort_values("elements").seconds))


def test_steps_of_hitopkcomm_add_up_and_only_gathers_between_nodes_grow_with_the_density(cloud_tables):
    frame = frame_of(cloud_tables, "fig8")
    drawn = frame[(frame.assumption == GOOD) & (frame.model == "resnet50")].set_index(["step", "density"]).seconds
    assert drawn["reduce_scatter", 0.01] == pytest.approx(7 * 5e-6 + 7 / 8 * 100e6 / FAST)
    assert drawn["inter_all_gather", 0.01] == pytest.approx(2 * 4 * 2e-5 + 15 * 0.01 * 25e6 * 8 / (0.95 * LINK))
    assert drawn["reduce_scatter", 0.05] == drawn["reduce_scatter", 0.001]
    assert drawn["inter_all_gather", 0.05] > 10 * drawn["inter_all_gather", 0.001]
    slow = frame[(frame.assumption == GOOD.replace("fast", "slow")) & (frame.step == "mstopk")]
    masked = (34 * 4 + 30) * 25e6 / 8 / (0.2 * 900e9) + 34 * 1e-5
    assert at(slow, model="resnet50", density=0.01).seconds == pytest.approx(masked)


def test_iterations_are_computation_exposed_parts_and_update(cloud_tables):
    """In a single message nothing is hidden: the parts of Fig. 1 are all of it."""
    frame = frame_of(cloud_tables, "fig1")
    single = frame[frame.assumption.str.contains("single")]
    parts = single.computation_seconds + single.exposed_compression_seconds + single.exposed_communication_seconds
    assert np.allclose(single.iteration_seconds, parts + single.lars_seconds, rtol=1e-9)
    topk = single[single.scheme == "topk_sgd"]
    assert np.allclose(topk.compression_seconds, 0.239)
    assert set(frame[frame.model == "resnet50_224"].computation_seconds) == {0.204}
    assert set(frame[frame.scheme == "mstopk_sgd"].lars_seconds) == {0.007}
    assert (frame.iteration_seconds >= frame.hard_bound_seconds * (1 - 1e-9)).all()


def test_efficiency_is_over_the_published_gpu(cloud_tables):
    frame = frame_of(cloud_tables, "table3")
    simulated = frame[frame.rung == "simulated"]
    rates = {"resnet50_224": 1150, "resnet50_96": 4400, "vgg19": 560, "transformer": 32}
    rate = simulated.model.map(rates)
    assert np.allclose(simulated.throughput, 128 * simulated.batch / simulated.iteration_seconds)
    assert np.allclose(simulated.efficiency, simulated.throughput / 128 / rate)
    inside = simulated.assumption.str.contains("update inside")
    alone = (simulated.batch / rate - simulated.computation_seconds)[(simulated.scheme == "dense_sgd")]
    assert np.allclose(alone[inside], simulated.update_seconds[alone.index][inside])
    assert np.allclose(alone[~inside], 0)
    published = frame[frame.rung == "published"]
    assert len(published) == 12
    assert at(published, model="vgg19", scheme="torus2d_sgd").efficiency == 0.664


def test_the_run_takes_the_images_of_each_size_at_its_throughput(cloud_tables):
    table4, table5 = frame_of(cloud_tables, "table4"), frame_of(cloud_tables, "table5")
    label = str(bench(configured()).points[0])
    drawn = table4[table4.assumption == label].set_index(["model", "scheme"]).throughput
    epochs = {"resnet50_96": 13, "resnet50_128": 11, "resnet50_224": 3, "resnet50_288": 1}
    schemes = {"resnet50_96": "mstopk_sgd"}
    seconds = sum(1281167 * n / drawn[size, schemes.get(size, "torus2d_sgd")] for size, n in epochs.items())
    ours = table5[(table5.rung == "simulated") & (table5.assumption == label)]
    assert ours.seconds.tolist() == [pytest.approx(seconds)]


def test_every_simulated_claim_of_these_tables_has_all_its_cells(cloud_tables):
    made = ("fig1", "fig7", "fig8", "table3", "table4", "table5")
    verdicts = claims.evaluate(PAPER, cloud_tables[1] / "tables")
    simulated = [verdict for verdict in verdicts if verdict.rung == "simulated" and verdict.table in made]
    assert len(simulated) > 30
    assert {verdict.claim for verdict in simulated if not verdict.points} == set()
    assert claims.BROKEN not in {verdict.verdict for verdict in simulated}


# Costs


def test_a_pipeline_in_chunks_of_a_size_takes_what_its_rounds_take():
    """Beyond a full pipeline the number of rounds is not counted one by one."""
    topology = topologies.parse("dense_gpu:3,2")
    speeds = Speeds(1e-6, {"inside": 1e10, "between": 1e9}, {"inside": 1e-6, "between": 5e-6})
    cost = Pipelined("tree", topology, speeds, 1000.0, {"between": 3e8})
    for size in (1.0, 2000.0, 2001.0, 9000.0, 50_000.0, 400_000.0):
        chunks = collectives.get("tree").chunks_of(size, 1000.0)
        direct = flow_level.cost("tree", topology, speeds, chunks=chunks, flows={"between": 3e8}).line
        assert cost.seconds(size) == pytest.approx(direct.seconds(size))
        assert cost.startup_seconds(size) == pytest.approx(direct.a)
        assert cost.least_transfer_seconds(size) <= cost.seconds(size)
    sizes = np.array([[100.0], [5000.0]])
    assert cost.seconds(sizes).shape == sizes.shape


@pytest.mark.parametrize(("share", "factor"), [(1.0, 1.0), (0.5, 1.0), (0.25, 2.0), (0.1, 5.0)])
def test_connections_that_do_not_fill_a_link_share_it_until_it_is_full(share, factor):
    """Of 2DTAR two connections of a node are under way at once, one for each of its ranks."""
    topology, link = topologies.parse("dense_gpu:4,2"), 1e9
    speeds = Speeds(bandwidth={"inside": 1e15, "between": link})
    full, capped = (
        flow_level.cost("torus2d", topology, speeds, flows=flows).line for flows in (None, {"between": share * link})
    )
    assert capped.b == pytest.approx(factor * full.b, rel=1e-4)
