"""From times of several messages at once to capacity, host cost and gamma; measured on two real ranks too."""

import json

import numpy as np
import pytest

from gradsync.cli import main
from gradsync.costs import Linear, Network
from gradsync.costs.contention_points import Contention, ContentionPoint
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.measure import contention
from gradsync.schedules import Message
from gradsync.updates import ssgd
from queued_device import QueuedProcessor
from tiny_workloads import workload

SIZES = [1024 * 2**i for i in range(12)]
A, B = 4e-4, 2e-9


def measured(link, host, *, lanes=3, noise=0.0, sweeps=7, seed=0, gamma=None):
    """T_k(m) = a + (k-1) h + max(1, k/X) b m, or gamma b m; each sweep disturbed by relative `noise`."""
    random = np.random.default_rng(seed)

    def point(k, m):
        share = gamma if gamma and k > 1 else max(1.0, k / link) if k > 1 else 1.0
        exact = A + (k - 1) * host + share * B * m
        times = exact * (1 + noise * random.standard_normal(sweeps))
        return ContentionPoint(lanes=k, bytes=m, seconds=tuple(times.tolist()))

    return Contention(ranks=4, points=tuple(point(k, m) for k in range(1, lanes + 1) for m in SIZES))


@pytest.mark.parametrize(("link", "host"), [(1.0, 0.0), (1 / 0.75, 1e-4), (1 / 0.6, 3e-5), (2.4, 2e-4), (3.0, 1e-4)])
def test_what_is_exact_is_found(link, host):
    fit = measured(link, host).fit("synthetic")
    assert fit.capacity.value == pytest.approx(link, rel=1e-6)
    assert fit.host_seconds.value == pytest.approx(host, rel=1e-5, abs=1e-10)
    assert fit.mean_residual < 1e-8
    assert fit.alone.seconds(1e6) == pytest.approx(A + B * 1e6)
    for each in fit.gammas:
        extra = (each.lanes - 1) * host / (B * each.bytes)  # so gamma is no constant where the host costs something
        assert each.gamma.value == pytest.approx(max(1.0, each.lanes / link) + extra, rel=1e-6)
    cost = fit.contended(Linear(1, 1))
    assert (cost.capacity, cost.host_seconds) == (max(1.0, fit.capacity.value), fit.host_seconds.value)
    assert fit.contended().seconds(1e6) == pytest.approx(A + B * 1e6)


def test_the_simulator_gives_the_times_that_were_measured():
    measurement = measured(1 / 0.6, 1e-4)
    cost = measurement.fit().contended()
    for k in (1, 2, 3):
        load = workload([SIZES[-1]] * k, [0.0] * k)
        plan = ssgd.plan("at once", load, tuple(Message(i, i, f"network{i}") for i in range(k)), 4)
        trace = simulate(plan, load, Network({"all_reduce": cost}), turns=1)
        (wanted,) = {p.mean for p in measurement.points if (p.lanes, p.bytes) == (k, SIZES[-1])}
        assert [s.end for s in trace.spans if s.verb == "collective"] == pytest.approx([wanted] * k, rel=1e-6)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    link, host, inside = 1 / 0.6, 1e-4, []
    for seed in range(40):
        fit = measured(link, host, noise=0.03, seed=seed, lanes=2).fit()
        for truth, estimate in ((link, fit.capacity), (host, fit.host_seconds)):
            assert estimate.low < estimate.value < estimate.high
            inside.append(estimate.low <= truth <= estimate.high)
        largest = fit.gammas[-1]
        inside.append(largest.gamma.low <= 2 / link + host / (B * SIZES[-1]) <= largest.gamma.high)
    assert np.mean(inside) > 0.85


def test_noise_widens_intervals():
    quiet, loud = (measured(1.5, 1e-4, noise=noise).fit().capacity for noise in (0.01, 0.1))
    assert loud.high - loud.low > 3 * (quiet.high - quiet.low)


def test_what_no_link_does_is_kept_and_said():
    fit = measured(0.8, 0.0).fit()
    assert fit.capacity.value == pytest.approx(0.8)
    assert any("capacity 0.8 (0.8 to 0.8) is below 1" in note for note in fit.notes)
    assert any("gamma below 1 or above" in note for note in fit.notes)
    assert all(each.outside and each.gamma.value > each.lanes for each in fit.gammas)
    assert fit.contended().capacity == 1  # a plan needs a link
    fit = measured(1.0, 0.0, lanes=2, gamma=0.7).fit()
    assert all(each.outside and each.gamma.value == pytest.approx(0.7) for each in fit.gammas)
    fit = measured(9.0, 0.0).fit()
    assert fit.capacity.value == pytest.approx(3)
    assert any("capacity is 3 or more" in note for note in fit.notes)
    assert measured(1.5, 0.0).fit().notes == ()


@pytest.mark.parametrize("sweeps", [1, 5])
def test_few_sweeps_have_no_interval_and_what_is_not_known_is_not_outside(sweeps):
    fit = measured(1.5, 0.0, sweeps=sweeps).fit()
    assert (fit.capacity.low, fit.capacity.high) == (None, None)
    assert fit.capacity.value == pytest.approx(1.5)
    slow = measured(0.8, 0.0, sweeps=sweeps).fit()
    assert all(each.gamma.value > each.lanes and not each.outside for each in slow.gammas)
    assert all(each.outside for each in measured(0.8, 0.0, sweeps=6).fit().gammas)


def test_start_ups_alone_have_no_gamma():
    flat = Contention(
        ranks=2, points=tuple(ContentionPoint(lanes=k, bytes=m, seconds=(1.0, 1.0)) for k in (1, 2) for m in SIZES)
    )
    assert {each.gamma for each in flat.fit().gammas} == {None}


def test_a_constant_gamma_is_found_where_there_is_one():
    gammas = [each.gamma.value for each in measured(1.0, 0.0, lanes=2, gamma=1.5, noise=1e-4).fit().gammas[4:]]
    assert gammas == pytest.approx([1.5] * len(gammas), rel=0.05)


def test_a_file_survives(tmp_path):
    measurement = measured(1.5, 1e-4, noise=0.1)
    path = tmp_path / "contention.json"
    path.write_text(measurement.to_json())
    assert Contention.load(path, 4) == measurement
    with pytest.raises(InputError, match="measured between 4 ranks, the plan is for 8"):
        Contention.load(path, 8)
    with pytest.raises(InputError, match="can't be read"):
        Contention.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda c: c | {"version": 2}, "contention version 2; this gradsync reads version 1"),
        (lambda c: c | {"points": c["points"][:-1]}, "no point of 3 lane"),
        (lambda c: c | {"points": c["points"][: len(SIZES)]}, r"1 lane\(s\), 12 size\(s\): at least two"),
        (lambda c: c | {"points": [*c["points"], c["points"][0]]}, "two points have the same lanes"),
        (lambda c: c | {"points": [c["points"][0] | {"seconds": [1.0]}, *c["points"][1:]]}, "number of sweeps"),
        (lambda c: c | {"points": [c["points"][0] | {"seconds": [0.0]}, *c["points"][1:]]}, "must be 1e-12 to 1e[+]09"),
        (lambda c: c | {"gamma": 1.5}, "gamma"),
    ],
)
def test_what_is_no_contention_is_named(change, wanted, tmp_path):
    path = tmp_path / "contention.json"
    path.write_text(json.dumps(change(json.loads(measured(1.5, 0.0).to_json()))))
    with pytest.raises(InputError, match=rf"contention .*contention.json: not a contention: .*{wanted}"):
        Contention.load(path)


def test_queues_all_wait_for_one_mark(alone, monkeypatch):
    monkeypatch.setattr(contention, "REPEATS", (2, 2))
    monkeypatch.setattr(contention, "SWEEPS", 2)
    device = QueuedProcessor()
    measurement = contention.measure(64, 4096, 3, device)
    assert measurement.lanes == 3
    assert {len(point.seconds) for point in measurement.points} == {2}
    assert len(device.known) == 1 + 3  # the first one, and one for each lane


def test_a_lane_that_fails_ends_the_others(alone, monkeypatch):
    import torch.distributed as dist

    groups = [dist.new_group([0]) for _ in range(2)]
    side = contention._Threads(contention.PROCESSOR, groups, 64, [])

    def fails(buffer, group):
        if group is groups[1]:
            raise RuntimeError("connection lost")

    monkeypatch.setattr(dist, "all_reduce", fails)
    with pytest.raises(RuntimeError, match="connection lost"):
        side.seconds(2, 64, 3)


@pytest.mark.deep
def test_two_ranks_are_measured_and_planned_with(tmp_path, capfd):
    path, load = tmp_path / "contention.json", tmp_path / "workload.json"
    arguments = ["--ranks", "2", "--lanes", "2", "--smallest", "64", "--largest", "65536"]
    assert main(["measure", "contention", *arguments, "--output", str(path)]) == 0
    captured = capfd.readouterr()
    measurement = Contention.load(path, 2)
    assert (measurement.lanes, measurement.sizes[0], measurement.sizes[-1]) == (2, 64, 65536)
    assert {len(point.seconds) for point in measurement.points} == {contention.SWEEPS}
    assert "1 to 2 messages at once" in captured.err
    assert f"sweep {contention.SWEEPS} of {contention.SWEEPS}" in captured.err  # rank 0 says how far it is
    lines = captured.out.splitlines()
    assert lines[0].split()[:3] == ["size", "at", "once"]
    assert len([line for line in lines if line.split()[0].isdigit()]) == 2 * len(measurement.sizes)
    load.write_text(workload([4096, 65536], [1e-3, 1e-3], forward=1e-3).to_json())
    plan = ["plan", "--workload", str(load), "--schedule", "wfbp", "--option", "lanes=2", "--json"]
    plan += ["--allreduce", "a=1e-4,b=1e-7"]
    assert main([*plan, "--contention", str(path)]) == 0
    assert "such messages at full speed" in json.loads(capfd.readouterr().out)["allreduce"]
    assert main([*plan, "--ranks", "4", "--contention", str(path)]) == 2
    assert "measured between 2 ranks, the plan is for 4" in capfd.readouterr().err


def test_a_capacity_is_planned_and_simulated_with(tmp_path, capsys):
    load, plan, prediction = (tmp_path / name for name in ("workload.json", "plan.json", "prediction.json"))
    load.write_text(workload([80_000, 80_000], [0.0, 0.0]).to_json())
    cost = ["--workload", str(load), "--allreduce", "a=0.5,b=1e-4"]
    arguments = ["--schedule", "wfbp", "--option", "lanes=2", "--json"]
    arguments += ["--output", str(plan), "--prediction", str(prediction)]
    for capacity, seconds in (("1", 16.5), ("1.6", 10.5), ("2", 8.5)):
        assert main(["plan", *cost, *arguments, "--capacity", capacity]) == 0
        assert json.loads(prediction.read_text())["iteration_seconds"] == pytest.approx(seconds)
        capsys.readouterr()
        assert main(["simulate", "--plan", str(plan), *cost, "--capacity", capacity, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["iteration_seconds"] == pytest.approx(seconds)
    assert main(["plan", *cost, *arguments, "--capacity", "0.5"]) == 2
    assert "capacity 0.5: must be finite and at least 1" in capsys.readouterr().err
    assert main(["plan", *cost, *arguments, "--contention", "none.json"]) == 2
    assert "none.json: can't be read" in capsys.readouterr().err
    ring = ["--collective", "ring", "--contention", "none.json"]
    assert main(["plan", *cost, *arguments, *ring]) == 2
    assert "give --capacity" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--ranks", "1"], "measure contention: --ranks must be at least 2"),
        (["--ranks", "2", "4"], "--ranks takes one number"),
        (["--ranks", "2", "--lanes", "1"], "--lanes 1: at least 2"),
        (["--ranks", "2", "--smallest", "64", "--largest", "64"], "must be less than --largest"),
    ],
)
def test_what_can_t_be_measured_is_refused(arguments, wanted, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gradsync.runtime.launch.launch", lambda *_, **__: pytest.fail("started something"))
    assert main(["measure", "contention", *arguments, "--output", str(tmp_path / "out")]) == 2
    assert wanted in capsys.readouterr().err
