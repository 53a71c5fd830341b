"""Whole launches of `gradsync elastic`: what they record, killed and resumed, diverging, refused."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_training import SIZES, children, gone

from gradsync.cli import main
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.engine import breakdown
from gradsync.errors import RunError
from gradsync.files.results import Result
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime.launch import VARIABLES
from waiting import HANGS_SECONDS

ENDS_SECONDS = 30
WORKERS, ITERATIONS, SEGMENT = 2, 6, 3
BIT_BY_BIT = ("sync_easgd3", "original_easgd", "post_local_sgd")  # their order of messages is fixed


def plan_file(folder: Path, method: str, lr: float = 0.05, ranks: int = 0, **options: Any) -> str:
    """A plan of a method for LeNet-5."""
    layers = tuple(Layer(name=key, bytes=4 * size, backward_seconds=1e-3) for key, size in SIZES.items())
    workload = Workload(name="lenet5", forward_seconds=1e-3, layers=layers)
    scheme = schemes.Scheme(name=method, update_options=options)
    ranks = ranks or scheme.ranks(WORKERS)
    path = folder / f"{method}.json"
    path.write_text(schemes.plan(scheme, workload, Linear(1e-3, 1e-9), ranks, lr=lr).to_json())
    return str(path)


def in_phases(folder: Path) -> tuple[str, list[str]]:
    """The plan of post-local SGD with a period of a segment, and how a training begins before it."""
    plan = plan_file(folder, "post_local_sgd", period=SEGMENT)
    return plan, ["--before", plan_file(folder, "single"), "--switch", str(SEGMENT)]


def start(folder: Path, plan: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gradsync", "elastic", "--plan", plan, "--output", str(folder), "--batch", "8"]
    command += ["--iterations", str(ITERATIONS), "--segment", str(SEGMENT), "--conformance", "1", *arguments]
    kept = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return subprocess.Popen(command, env=kept, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def trained(folder: Path, plan: str, *arguments: str) -> str:
    """Run to the end; gives the messages."""
    process = start(folder, plan, *arguments)
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 0, messages
    return messages


def result(folder: Path, method: str) -> dict[str, Any]:
    return json.loads((folder / method / "result.json").read_text())


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def test_a_master_that_takes_what_comes_is_replayed_and_its_staleness_is_recorded(tmp_path):
    # its worker waits for the answer to a gradient, so that no part of its time can wholly hide another
    messages = trained(tmp_path, plan_file(tmp_path, "async_sgd"), "--target-error", "0", "0.99")
    assert f"iteration {ITERATIONS}/{ITERATIONS}" in messages
    found = result(tmp_path, "async_sgd")
    assert found["conformance"]["oracle_steps"] == 1
    assert found["conformance"]["oracle_difference"] < 1e-9
    assert (found["settings"]["workers"], found["settings"]["masters"]) == (WORKERS, [0])
    arrivals = rows(tmp_path / "async_sgd" / "arrivals.csv")
    assert sorted(row["source"] for row in arrivals) == sorted(["1", "2"] * ITERATIONS)
    curve = rows(tmp_path / "async_sgd" / "metrics.csv")
    assert [row["step"] for row in curve] == [str(SEGMENT), str(2 * SEGMENT)]
    summary = found["summary"]
    assert summary["seconds"] == float(curve[-1]["seconds"])
    assert summary["seconds_to_0.99"] == float(curve[0]["seconds"])
    assert "seconds_to_0" not in summary  # nobody gets there
    assert summary["seconds_least_to_0"] == summary["seconds"]
    assert sum(summary[f"{part}_share"] for part in breakdown.PARTS) == pytest.approx(1)
    assert summary["worker_worker_parameters_share"] == 0
    assert min(summary[f"{part}_share"] for part in ("for_backward", "master_update", "host_worker_parameters")) > 0


def test_a_seed_that_has_reached_its_target_ends_and_computation_takes_as_long_as_told(tmp_path):
    plan, computing = plan_file(tmp_path, "sync_easgd3"), 0.2
    waits = ["--compute-seconds", str(computing)]
    trained(tmp_path, plan, "--target-error", "0.99", "--stop-at-target", "--seed", "0", "1", *waits)
    curve = rows(tmp_path / "sync_easgd3" / "metrics.csv")
    assert [(row["seed"], row["step"]) for row in curve] == [("0", str(SEGMENT)), ("1", str(SEGMENT))]
    summary = result(tmp_path, "sync_easgd3")["summary"]
    assert summary["iterations"] == SEGMENT
    assert summary["seconds"] == summary["seconds_to_0.99"]
    assert (
        summary["slowest_for_backward_seconds"] >= summary["for_backward_seconds"] > 0.98 * computing
    )  # less the copy of the last gradient
    assert summary["seconds"] > SEGMENT * computing


def test_gradients_of_single_layers_have_no_time_that_they_are_told(tmp_path, capsys):
    plan = plan_file(tmp_path, "wfbp")
    assert main(["elastic", "--plan", plan, "--compute-seconds", "1", "--output", str(tmp_path / "out")]) == 2
    assert "waits for single layers or sends their gradients" in capsys.readouterr().err


def test_between_hosts_nothing_is_in_shared_memory(tmp_path, capsys):
    plan = plan_file(tmp_path, "hogwild_sgd")
    assert main(["elastic", "--plan", plan, "--testbed", "switch", "--output", str(tmp_path / "out")]) == 2
    assert f"--testbed switch: plan {plan} has memory that all ranks share" in capsys.readouterr().err


def test_a_training_in_two_phases_is_held_against_the_oracle_in_both(tmp_path):
    plan, phase = in_phases(tmp_path)
    messages = trained(tmp_path, plan, *phase)
    assert "iteration 3: from plan 'single' to 'post_local_sgd'" in messages
    found = result(tmp_path, "post_local_sgd")
    assert (found["conformance"]["before_oracle_steps"], found["conformance"]["oracle_steps"]) == (1, 1)  # a period
    assert max(found["conformance"][key] for key in ("before_oracle_difference", "oracle_difference")) < 1e-9
    assert (found["settings"]["before_name"], found["settings"]["period"]) == ("single", SEGMENT)
    assert [row["step"] for row in rows(tmp_path / "post_local_sgd" / "metrics.csv")] == ["3", "6"]
    trace = json.loads((tmp_path / "post_local_sgd" / "trace.json").read_text())
    assert (trace["turns"], trace["iterations"]) == (2, SEGMENT)
    assert {span["turn"] if isinstance(span, dict) else span[1] for span in trace["spans"]} == {1}  # of the second one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "is that of a second phase, and begins with iterations of ssgd: give --before"),
        (["--before", "single", "--switch", "4"], "a period of --plan has 3 iterations: give a multiple"),
        (["--before", "single"], "--switch 0: the training has 6 iterations"),
        (["--before", "single", "--switch", "6"], "--switch 6: the training has 6 iterations"),
        (["--before", "async_sgd", "--switch", "3"], "is for other ranks or another model"),
        (["--before", "hogwild_sgd", "--switch", "3"], "plan 'hogwild_sgd' has a master or shared memory"),
        (["--before", "nosuch.json", "--switch", "3"], "nosuch.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_phases_that_do_not_go_together_are_refused(tmp_path, capsys, arguments, message):
    plan, _ = in_phases(tmp_path)
    known = [
        plan_file(tmp_path, each) if each in ("single", "async_sgd", "hogwild_sgd") else each for each in arguments
    ]
    words = ["elastic", "--plan", plan, "--output", str(tmp_path / "out"), "--iterations", "6", *known]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_switch_from_nothing_is_refused(tmp_path, capsys):
    plan = plan_file(tmp_path, "local_sgd", period=SEGMENT)
    assert main(["elastic", "--plan", plan, "--output", str(tmp_path / "out"), "--switch", "3"]) == 2
    assert "--switch 3: from which plan?" in capsys.readouterr().err


@pytest.mark.parametrize("period", [1, SEGMENT])
def test_a_plan_of_local_steps_is_no_contender(tmp_path, capsys, period):
    plan = plan_file(tmp_path, "local_sgd", period=period)
    assert main(["train", "--plan", plan, "--output", str(tmp_path / "out")]) == 2
    assert f"gradsync elastic --plan {plan}" in capsys.readouterr().err


def test_plans_are_launched_in_turn_and_a_command_goes_on_after_those_that_are_done(tmp_path, monkeypatch):
    names = ["async_sgd", "sync_easgd3"]
    plans = [f"--plan={plan_file(tmp_path, name)}" for name in names]
    out, launched = tmp_path / "out", []

    def launch(arguments: list[str], ranks: int, network: object, *, gpus: bool) -> None:
        assert not gpus
        (plan,) = (Path(word.removeprefix("--plan=")).stem for word in arguments if word.startswith("--plan="))
        launched.append((plan, ranks))
        if len(launched) == 2:
            raise RunError("rank 1 was killed")
        Result(rung="measured", scheme=plan, model="lenet5", ranks=ranks, summary={"seconds": 1.0}).save(out / plan)

    monkeypatch.setattr("gradsync.runtime.launch.launch", launch)
    command = ["elastic", *plans, "--output", str(out), "--batch", "8", "--iterations", "2"]
    assert main(command) == 1
    assert not (out / "schemes.json").exists()
    assert main(command) == 0
    both = [("async_sgd", WORKERS + 1), ("sync_easgd3", WORKERS)]
    assert launched == [*both, both[1]]
    assert list(json.loads((out / "schemes.json").read_text())) == names
    assert main(command) == 0  # what has ended is trained again
    assert launched[3:] == both
    assert main([*command, plans[0]]) == 2


def test_one_worker_trains_and_a_seed_again_gives_the_same(tmp_path):
    plan = plan_file(tmp_path, "knl_easgd", ranks=1)
    trained(tmp_path, plan, "--again", "1", "--iterations", "2", "--segment", "2")
    found = result(tmp_path, "knl_easgd")
    assert (found["summary"]["runs"], found["summary"]["distinct_results"]) == (2, 1)
    assert found["settings"]["turns_an_epoch"] == 1438 // 8
    assert len(rows(tmp_path / "knl_easgd" / "metrics.csv")) == 1  # of the first training alone
    assert len(found["samples"]["for_backward_share"]) == 1


@pytest.mark.deep
def test_unlocked_additions_are_accounted_for(tmp_path):
    trained(tmp_path, plan_file(tmp_path, "hogwild_sgd"))
    assert 0 <= result(tmp_path, "hogwild_sgd")["summary"]["lost_share"] < 0.5
    trained(tmp_path, plan_file(tmp_path, "hogwild_sgd", locked=True))
    assert "lost_share" not in result(tmp_path, "hogwild_sgd")["summary"]


@pytest.mark.deep
@pytest.mark.parametrize("method", BIT_BY_BIT)
def test_a_killed_run_names_the_rank_and_goes_on_to_the_same_parameters(tmp_path, method):
    plan, phase = (plan_file(tmp_path, method), []) if method != "post_local_sgd" else in_phases(tmp_path)
    seeds = ["3", "4"] if method == BIT_BY_BIT[0] else ["3"]
    # slow enough that the checkpoint is seen while something is left to do
    arguments = ["--seed", *seeds, "--checkpoint-seconds", "0", "--compute-seconds", "0.3", *phase]
    trained(tmp_path / "whole", plan, *arguments)
    killed = tmp_path / "killed"
    process = start(killed, plan, *arguments)
    while not (killed / "checkpoint" / "latest.json").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    ranks = children(process)
    os.kill(ranks[1], signal.SIGKILL)
    since = time.monotonic()
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert time.monotonic() - since < ENDS_SECONDS
    assert process.returncode == 1
    assert "rank 1 was killed by SIGKILL; the other ranks were ended" in messages
    assert all(gone(pid) for pid in ranks)
    assert rows(killed / method / "metrics.csv")  # what was known is kept
    assert not (killed / "schemes.json").exists()

    assert "going on from the checkpoint at iteration" in trained(killed, plan, *arguments)
    first, second = result(tmp_path / "whole", method), result(killed, method)
    assert first["conformance"] == second["conformance"]
    losses = [[row["loss"] for row in rows(each / method / "metrics.csv")] for each in (tmp_path / "whole", killed)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == len(seeds) * ITERATIONS // SEGMENT


@pytest.mark.deep
@pytest.mark.parametrize("victim", [0, 1], ids=["master", "worker"])
def test_a_killed_master_or_worker_ends_the_others(tmp_path, victim):
    process = start(tmp_path, plan_file(tmp_path, "async_sgd"), "--iterations", "4000", "--epochs", "1000")
    while not (tmp_path / "async_sgd" / "metrics.csv").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    ranks = children(process)
    os.kill(ranks[victim], signal.SIGKILL)
    since = time.monotonic()
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert time.monotonic() - since < ENDS_SECONDS
    assert f"rank {victim} was killed by SIGKILL" in messages
    assert all(gone(pid) for pid in ranks)
    assert rows(tmp_path / "async_sgd" / "metrics.csv")


@pytest.mark.deep
def test_a_loss_that_is_not_finite_is_named_with_step_and_rank(tmp_path):
    process = start(tmp_path, plan_file(tmp_path, "async_sgd", lr=1e9), "--conformance", "0")
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 1
    assert re.search(r"rank \d, 'async_sgd': the loss is \S+ at iteration \d", messages), messages
    assert "Traceback" not in messages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "replay:w.json"], "learns nothing"),
        (["--data", "synthetic", "--target-error", "0.1"], "has no test samples"),
        (["--target-error", "1.5"], "a share of test samples"),
        (["--stop-at-target"], "needs a --target-error"),
        (["--stop-at-target", "--target-error", "0.5", "--again", "1"], "not with --again"),
        (["--seed", "1", "1"], "a seed is given twice"),
        (["--compute-seconds", "0"], "--compute-seconds 0.0: more than 0"),
        (["--segment", "0"], "--segment"),
        (["--batch", "100000"], "more than the"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_before_anything_starts(tmp_path, capsys, arguments, message):
    plan = plan_file(tmp_path, "async_sgd")
    assert main(["elastic", "--plan", plan, "--output", str(tmp_path / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_plan_with_a_master_is_no_contender(tmp_path, capsys):
    plan = plan_file(tmp_path, "async_sgd")
    assert main(["train", "--plan", plan, "--ranks", "3", "--output", str(tmp_path / "out")]) == 2
    assert f"gradsync elastic --plan {plan}" in capsys.readouterr().err
