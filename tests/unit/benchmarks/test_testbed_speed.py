"""The benchmark of emulated testbeds: what it takes for a result, on numbers that were made up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradsync.benchmarks import bml_speed, emulated_runs, testbed_speed
from gradsync.benchmarks.bml_speed import BML, SERVER, Contender
from gradsync.cli import main
from gradsync.errors import InputError, RunError
from gradsync.files.results import Result
from gradsync.plan.workload import Workload
from gradsync.runtime.transfers import Transfers

LARGE, SMALL = 4_000_000, 65536


# Links


@pytest.mark.parametrize(
    ("shares", "enough", "repeatable"),
    [
        ([0.956, 0.955, 0.956], True, True),
        ([0.956, 0.929, 0.956], False, False),  # one link is enough to miss
        ([0.931, 0.952, 0.952], True, False),
        ([0.912, 0.912, 0.912], False, True),
    ],
)
def test_links_are_held_against_their_rate_and_one_another(shares, enough, repeatable):
    rate, spread = testbed_speed.link_rows(2e8, shares)
    assert (rate["met"], spread["met"]) == (enough, repeatable)
    assert (rate["ratio"], spread["ratio"]) == pytest.approx((min(shares), max(shares) / min(shares)))


def test_testbeds_of_all_rates_take_turns(monkeypatch):
    asked = []

    def check(rate):
        asked.append(rate)
        return {"possible": True, "links": [{"share_of_rate": 0.95}, {"share_of_rate": 0.95 + len(asked) / 1000}]}

    monkeypatch.setattr(testbed_speed, "check", check)
    rows = testbed_speed.links()
    assert asked == [2e8, 4e8] * 3
    assert [row["ratio"] for row in rows] == pytest.approx([0.95, 0.955 / 0.95, 0.95, 0.956 / 0.95])


def test_where_no_testbed_can_be_made_one_message_says_why(monkeypatch, tmp_path, capsys):
    def refuse():
        raise InputError("the command 'tc' is missing: install iproute2")

    monkeypatch.setattr(testbed_speed.privileges, "enter", refuse)
    assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "gradsync: the command 'tc' is missing: install iproute2\n"
    assert not list(tmp_path.iterdir())

    monkeypatch.setattr(testbed_speed.privileges, "enter", lambda: None)
    monkeypatch.setattr(testbed_speed, "check", lambda rate: {"possible": False, "reason": "a link carries nothing"})
    assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("\ngradsync: benchmark testbed: a link carries nothing\n")


# BML beside a parameter server


def times(bml: float, server: float, size: int = LARGE, messages: int = 10) -> dict[Contender, list]:
    """Two launches each, the second of which is slower by a thousandth."""
    return {
        which: [{size: [seconds] * messages}, {size: [1.001 * seconds] * messages}]
        for which, seconds in ((BML, bml), (SERVER, server))
    }


@pytest.mark.parametrize(("server", "met"), [(1.91, True), (1.89, False)])
def test_from_4_mb_up_bml_must_be_nearly_twice_as_fast(server, met):
    (row,) = bml_speed.comparison(times(1.0, server))
    assert row["ratio"] == pytest.approx(server)
    assert row["met"] is met
    (small,) = bml_speed.comparison(times(1.0, server, SMALL))
    assert (small["target_ratio"], small["met"]) == (None, True)


def test_a_row_tells_both_with_their_intervals_and_launches():
    (row,) = bml_speed.comparison(times(0.2, 0.4))
    assert (row["bml_seconds_low"], row["bml_seconds_high"]) == pytest.approx((0.2, 0.2002))
    assert row["ps_p2p_launch_seconds"] == pytest.approx([0.4, 0.4004])
    assert (row["bml_messages"], row["ps_p2p_messages"]) == (20, 20)
    (heading, line) = bml_speed.table([row]).splitlines()
    assert len(heading) == len(line)
    # bytes, BML (from .. to), its links alone, PS
    assert [line.split()[i] for i in (0, 1, 2, 5, 6)] == ["4000000", "200.1", "(200.0", "142.2", "400.2"]


@pytest.mark.parametrize("size", [16384, 13_098_536])
def test_the_links_alone_take_what_the_paper_says(size):
    server, bml = (bml_speed.line_rate_seconds(which, size) for which in (SERVER, BML))
    assert server == pytest.approx(2 * 8 / 9 * size * 8 / 2e8)
    assert bml == pytest.approx(server / 2)


def test_the_interval_of_a_ratio_covers_the_true_one():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        low, ratio, high = bml_speed.ratio_interval(2 * rng.lognormal(0, 0.1, 20), rng.lognormal(0, 0.1, 20))
        assert low <= ratio <= high
        covered += low <= 2 <= high
    assert covered >= 0.95 * 300


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.5, 0.5, 1.5, 2.0], np.sqrt(20_000 * 40_000)),  # half of the way, in the logarithm
        ([1.2, 0.9, 1.0, 2.0], 40_000),  # from there on for good
        ([0.5, 0.8, 0.9, 1.1], np.sqrt(40_000 * 80_000)),
        ([1.1, 1.5, 1.6, 2.0], None),
        ([0.5, 0.6, 0.7, 0.9], None),
    ],
)
def test_the_crossing_lies_between_the_sizes_around_it(ratios, expected):
    rows = [{"bytes": 10_000 * 2**i, "ratio": ratio} for i, ratio in enumerate(ratios)]
    row = bml_speed.crossing(rows)
    assert row["met"]
    assert row["bytes"] == (expected if expected is None else pytest.approx(expected, abs=1))
    if expected is None:
        assert ("not the faster one up to 80000 B" in row["task"]) is (ratios[-1] < 1)


def test_they_take_turns(monkeypatch, tmp_path):
    order = []

    def launched(contender, folder, config, sizes):
        order.append(contender)
        return {size: [len(order)] for size in sizes}

    monkeypatch.setattr(bml_speed, "launched", launched)
    by_contender = bml_speed.in_turn(tmp_path, "some.yaml", (SMALL,))
    assert order == [BML, SERVER, SERVER, BML]
    assert by_contender == {BML: [{SMALL: [1]}, {SMALL: [4]}], SERVER: [{SMALL: [2]}, {SMALL: [3]}]}


def test_one_row_that_misses_is_a_miss(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(testbed_speed.privileges, "enter", lambda: None)
    monkeypatch.setattr(testbed_speed, "links", lambda: testbed_speed.link_rows(2e8, [0.956, 0.956]))
    for server, status in ((2.0, 0), (1.5, 1)):
        monkeypatch.setattr(bml_speed, "in_turn", lambda *_, server=server: times(1.0, server))
        assert main(["benchmark", "testbed", "--results", str(tmp_path)]) == status
        printed = capsys.readouterr().err
        assert "run config/emulated.yaml first" in printed
        answer = json.loads((tmp_path / "benchmarks" / "testbed.json").read_text())
        assert answer["met"] is (status == 0)
        assert len(answer["rows"]) == 4
        assert answer["machine"]["cores"] > 0
    assert "missed its target: ps_p2p on switch:9 / bml on bcube:3,2, 4000000 B: 1.500" in printed


def test_a_wrong_sum_is_no_result(alone, monkeypatch):
    by_size = bml_speed.message_seconds("ring", (1,), (64, 4096), 0, 1)
    assert list(by_size) == [64, 4096]
    assert all(len(seconds) == bml_speed.MOST * 5 for seconds in by_size.values())  # five of a block of six

    class Wrong(Transfers):
        def __init__(self, op, rank, ranks, buffer, *groups, **options):
            super().__init__(op, rank, ranks, buffer, *groups, **options)
            self.buffer = buffer

        def run(self):
            self.buffer[-1] += len(self.buffer) == 16  # one element, of one size

    monkeypatch.setattr(bml_speed, "Transfers", Wrong)
    with pytest.raises(RunError, match="rank 0: benchmark: ring gave a wrong sum of 64 B"):
        bml_speed.message_seconds("ring", (1,), (64, 4096), 0, 1)


# Emulated runs


class Runs:
    """Writes what emulated launches leave behind."""

    def __init__(self, results):
        self.results = results

    def write(self, job, seconds, predicted=None, model="replay:workload.json", flow=None):
        """`seconds`: of each block, by contender; `predicted`: by those that have a prediction."""
        testbed = {"topology": "switch", "bits_per_second": 6e8, "dilation": 16.0}
        testbed |= {} if flow is None else {"flow_bits_per_second": flow}
        for name, blocks in seconds.items():
            folder = self.results / "runs" / "emulated" / job / name
            Result(
                rung="emulated",
                scheme=name,
                model=job.partition("-")[0],
                ranks=8,
                settings={"model": model, "testbed": testbed},
                summary={"iteration_seconds": float(np.median(blocks))},
                conformance={"oracle_difference": 1e-16},
            ).save(folder)
            lines = ["seed,step,epoch,block,loss,iteration_seconds,accuracy"]
            for block, each in enumerate(blocks):
                lines += [f"0,0,0,{block},1.0,,", *(f"0,0,0,{block},1.0,{turn}," for turn in (each, each, 9 * each))]
            (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
        for name, each in (predicted or {}).items():
            path = self.results / "plans" / "emulated" / job / f"{name}.prediction.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"iteration_seconds": each, "model_bound_seconds": 0.5}))

    def rows(self):
        rows, notes = emulated_runs.rows(self.results)
        assert json.loads(json.dumps(rows)) == rows
        return {row["task"]: row for row in rows}, notes


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


MEAN = "mean error of {} predictions, replayed computation"
SLOW = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 1.0])  # a slow moment falls on all of a launch


def test_predictions_are_held_against_what_was_emulated(runs):
    runs.write("vgg19-8", {"wfbp": [2.0], "single": [4.0], "ddp": [3.0]}, {"wfbp": 1.9, "single": 4.36})
    rows, _ = runs.rows()
    wfbp = rows["vgg19-8, wfbp: predicted / emulated"]
    assert (wfbp["ratio"], wfbp["error"], wfbp["met"]) == pytest.approx((0.95, 0.05, True))
    assert (wfbp["model_bound_seconds"], wfbp["dilation"], wfbp["oracle_difference"]) == (0.5, 16, 1e-16)
    assert rows["vgg19-8, single: predicted / emulated"]["met"]
    mean = rows[MEAN.format(2)]
    assert (mean["ratio"], mean["worst"], mean["met"]) == (pytest.approx(0.07), pytest.approx(0.09), False)


@pytest.mark.parametrize(("predicted", "met"), [(0.91, True), (1.09, True), (0.89, False), (1.11, False)])
def test_one_prediction_that_is_far_off_is_told(runs, predicted, met):
    names = [f"scheme{i}" for i in range(9)]
    runs.write("vgg19-8", {name: [1.0] for name in ["far", *names]}, {"far": predicted, **dict.fromkeys(names, 1.0)})
    rows, _ = runs.rows()
    assert {task for task, row in rows.items() if not row["met"]} == (
        set() if met else {"vgg19-8, far: predicted / emulated"}
    )


@pytest.mark.parametrize("name", ["mgwfbp", "optimal"])
@pytest.mark.parametrize(
    ("job", "ratio", "to_stock", "missed"),
    [
        ("googlenet-8", 1.019, 0.799, []),
        ("googlenet-8", 1.021, 0.799, ["ddp_best"]),
        ("googlenet-8", 1.0, 0.801, ["ddp"]),
        ("vgg19-8", 1.021, 0.99, ["ddp_best"]),
        ("vgg19-8", 1.0, 0.99, []),  # that of DDP as it comes is GoogLeNet's alone
    ],
)
def test_plans_are_held_against_stock_ddp(runs, name, job, ratio, to_stock, missed):
    seconds = {name: SLOW, "ddp_best": SLOW / ratio, "ddp": SLOW / to_stock}
    runs.write(job, seconds, {name: 1.0})
    rows, notes = runs.rows()
    assert [task for task, row in rows.items() if not row["met"]] == [f"{job}, {name} / {stock}" for stock in missed]
    row = rows[f"{job}, {name} / ddp_best"]
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx((ratio,) * 3)
    assert (row["pairs"], row["target_ratio"]) == (6, 1.02)
    assert not notes


def test_a_target_that_is_held_without_an_interval_says_so(runs):
    runs.write("vgg19-8", {"mgwfbp": SLOW[:5], "ddp_best": SLOW[:5]}, {"mgwfbp": 1.0})
    rows, notes = runs.rows()
    row = rows["vgg19-8, mgwfbp / ddp_best"]
    assert (row["ratio"], row["ratio_low"], row["ratio_high"], row["met"]) == (1.0, None, None, True)
    note = "vgg19-8, mgwfbp / ddp_best: 5 pair(s) have no interval, 6 would: held by the median alone"
    assert notes == [note]


def test_beside_a_ratio_stands_that_without_the_forward_pass(runs):
    runs.write("googlenet-8", {"mgwfbp": [3.0], "ddp": [4.0]}, {"mgwfbp": 3.0})
    layer = {"name": "only", "bytes": 4, "backward_seconds": 0.5}
    folder = runs.results / "emulated" / "googlenet-8"
    folder.mkdir(parents=True)
    load = Workload.model_validate({"name": "googlenet", "forward_seconds": 2.0, "layers": [layer]})
    (folder / "replay.json").write_text(load.to_json())
    rows, _ = runs.rows()
    row = rows["googlenet-8, mgwfbp / ddp"]
    assert (row["ratio"], row["ratio_without_forward"], row["met"]) == (0.75, 0.5, True)


@pytest.mark.parametrize(
    ("share", "ratio", "met"),
    [
        (1.0, 1.01, True),
        (1.0, 1.03, False),
        (0.75, 0.84, True),
        (0.75, 0.9, False),
        (0.6, 0.76, False),
        (0.5, 2.0, True),
    ],
)
def test_messages_at_once_are_held_against_the_better_of_one_at_a_time(runs, share, ratio, met):
    seconds = {"optimal": 1.2 * SLOW, "ddp_best": SLOW, "searched": ratio * SLOW, "kway": 3 * SLOW}
    runs.write("bert_base-4", seconds, {"searched": ratio}, flow=6e8 * share)
    rows, _ = runs.rows()
    row = rows["bert_base-4, searched / better of optimal and ddp_best"]
    assert (row["ratio"], row["better"], row["share_of_link"]) == (
        pytest.approx(ratio),
        "ddp_best",
        pytest.approx(share),
    )
    assert row["met"] is met
    assert rows["bert_base-4, kway / better of optimal and ddp_best"]["met"]  # shown, not bound


def test_beside_such_a_plan_stands_its_part_of_the_largest_speed_up(runs):
    """8 ranks, forward 2 s, backward 0.5: 3e8 bytes on 6e8 bit/s take 7 s, of which 6.5 follow; 12 s are 3/4 of it."""
    runs.write("bert_base-8", {"optimal": [12.0], "ddp_best": [12.0], "striped": [12.0]}, {"striped": 12.0})
    folder = runs.results / "emulated" / "bert_base-8"
    folder.mkdir(parents=True)
    layer = {"name": "only", "bytes": 300_000_000, "backward_seconds": 0.5}
    load = Workload.model_validate({"name": "bert_base", "forward_seconds": 2.0, "layers": [layer]})
    (folder / "replay.json").write_text(load.to_json())
    rows, _ = runs.rows()
    assert rows["bert_base-8, striped / better of optimal and ddp_best"]["of_largest_speedup"] == pytest.approx(0.75)


def test_real_computation_on_shared_cores_is_shown_and_not_bound(runs):
    runs.write("lenet5-9", {"mgwfbp": [2.0], "ddp_best": [1.0]}, {"mgwfbp": 1.0}, model="lenet5")
    rows, notes = runs.rows()
    assert rows["lenet5-9, mgwfbp / ddp_best"]["ratio"] == pytest.approx(2)
    assert rows["lenet5-9, mgwfbp: predicted / emulated"]["computation"] == "real"
    assert all(row["met"] for row in rows.values())
    assert notes == ["no emulated run of a plan with replayed computation: no mean error"]


def test_what_is_missing_is_told(runs, tmp_path):
    (_, (none,)) = runs.rows()
    assert none.startswith(f"no emulated runs in {tmp_path}/runs/emulated")
    runs.write("resnet50-8", {"mgwfbp": [1.0], "optimal": [1.0]}, {"mgwfbp": 1.0})
    failed = tmp_path / "runs" / "emulated" / "vgg19-8" / "status.json"
    failed.parent.mkdir()
    failed.write_text(json.dumps({"possible": False, "reason": "no log"}))
    rows, notes = runs.rows()
    assert list(rows) == ["resnet50-8, mgwfbp: predicted / emulated", MEAN.format(1)]
    assert notes == [
        "vgg19-8: not emulated: no log",
        "resnet50-8: no ddp_best beside mgwfbp, optimal: not compared with stock DDP",
    ]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("runs/emulated/vgg19-8/mgwfbp/metrics.csv", "loss\n1\n", "no blocks can be read"),
        ("runs/emulated/vgg19-8/mgwfbp/result.json", "{", "not a result"),
        ("plans/emulated/vgg19-8/mgwfbp.prediction.json", "[1]", "can't be read"),
        ("plans/emulated/vgg19-8/mgwfbp.prediction.json", "{}", "no iteration_seconds"),
    ],
)
def test_a_file_that_is_broken_is_named(runs, tmp_path, file, text, message):
    runs.write("vgg19-8", {"mgwfbp": [1.0], "ddp_best": [1.0]}, {"mgwfbp": 1.0})
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        runs.rows()
    assert file in str(raised.value)
