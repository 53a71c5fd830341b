"""`gradsync plan`: what it predicts, from which schemes, options and costs, and what it loads for that."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from command_lines import LINE, points_csv


@pytest.mark.parametrize(
    ("schedule", "seconds", "messages"),
    [
        ("mgwfbp", 48.0, [["l3", "l2", "l1"]]),
        ("optimal", 45.0, [["l3"], ["l2", "l1"]]),
        ("wfbp", 53.0, [["l3"], ["l2"], ["l1"]]),
        ("single", 48.0, [["l3", "l2", "l1"]]),
    ],
)
def test_plan_predicts_an_iteration(run, workload, schedule, seconds, messages):
    arguments = ("plan", "--workload", workload, "--allreduce", LINE, "--schedule", schedule)
    ended = run(*arguments, "--json")
    assert (ended.status, ended.err) == (0, "")
    answer = json.loads(ended.out)
    assert answer["iteration_seconds"] == pytest.approx(seconds, rel=1e-12)
    assert answer["exposed_communication_seconds"] == pytest.approx(seconds - 16.0, rel=1e-12)  # t_f + t_b = 16
    assert answer["messages"] == messages
    assert answer["hard_bound_seconds"] <= answer["model_bound_seconds"] <= answer["iteration_seconds"]
    assert answer["warnings"] == []
    text = run(*arguments)
    assert text.status == 0
    assert f"iteration_seconds: {seconds:g}\n" in text.out
    assert f"messages: {len(messages)}\n" in text.out


def of_elements(workload):
    """The workload, with gradients of 100 elements each."""
    content = json.loads(workload.read_text())
    for layer in content["layers"]:
        layer["bytes"], layer["elements"] = 400, 100
    workload.write_text(json.dumps(content))


def test_a_plan_of_codes_takes_the_options_of_its_compressor(run, workload, tmp_path):
    of_elements(workload)
    plan = tmp_path / "plan.json"
    arguments = ("plan", "--workload", workload, "--allreduce", LINE, "--schedule", "single", "--unpredicted")
    coded = (*arguments, "--compressor", "qsgd", "--compressor-option", "levels=7")
    assert run(*coded, "--output", plan).status == 0
    (encode,) = [op for op in json.loads(plan.read_text())["roles"][0]["body"] if op.get("kernel") == "encode_qsgd"]
    assert encode["arguments"] == {"levels": 7.0, "bucket": 512.0, "seed": 0.0, "first": 0.0}
    refused = run(*arguments, "--compressor", "qsgd", "--compressor-option", "level=7")
    assert (refused.status, "has no option 'level'; did you mean levels?" in refused.err) == (2, True)
    assert "key density" in run(*coded, "--density", "0.1").err


def test_a_plan_without_a_prediction_needs_no_times_of_kernels(run, workload, tmp_path):
    of_elements(workload)
    plan = tmp_path / "plan.json"
    sparse = ("plan", "--workload", workload, "--allreduce", LINE, "--schedule", "exact_topk", "--output", plan)
    assert "doesn't say what a byte takes" in run(*sparse).err
    assert not plan.exists()
    ended = run(*sparse, "--unpredicted", "--json")
    assert ended.status == 0
    assert json.loads(ended.out)["messages"] == [["l3"], ["l2"], ["l1"]]
    assert "iteration_seconds" not in json.loads(ended.out)
    assert json.loads(plan.read_text())["name"] == "exact_topk"
    refused = run(*sparse, "--unpredicted", "--prediction", tmp_path / "none.json")
    assert refused.status == 2
    assert "--prediction: nothing is predicted with --unpredicted" in refused.err


def test_plan_takes_schemes_and_options(run, workload, tmp_path):
    named = tmp_path / "schemes.yaml"
    named.write_text("small: {schedule: fixed_buckets, options: {bucket_bytes: 12, first_bucket_bytes: 12}}\n")
    arguments = ("plan", "--workload", workload, "--allreduce", LINE, "--json")
    assert json.loads(run(*arguments, "--schedule", "small", "--schemes", named).out)["messages"] == [
        ["l3"],
        ["l2", "l1"],
    ]
    # an option on the command line wins over the file's
    changed = run(*arguments, "--schedule", "small", "--schemes", named, "--option", "first_bucket_bytes=13")
    assert json.loads(changed.out)["messages"] == [["l3", "l2"], ["l1"]]


def test_plan_fits_measured_points_and_says_where_it_extrapolates(run, workload, tmp_path):
    points, prediction = tmp_path / "points.csv", tmp_path / "prediction.json"
    points.write_text(points_csv([2, 4, 8, 12, 16]))
    arguments = ("plan", "--workload", workload, "--allreduce", points, "--prediction", prediction, "--schedule")
    ended = run(*arguments, "single", "--json")
    assert ended.status == 0
    answer = json.loads(ended.out)
    assert answer == json.loads(prediction.read_text())
    assert answer["iteration_seconds"] == pytest.approx(48.0, rel=1e-9)
    assert answer["allreduce_residual"] == pytest.approx(0.0, abs=1e-9)
    assert "5 points, 2 to 16 B, mean relative residual" in answer["allreduce"]
    assert answer["extrapolated_bytes"] == [24]
    assert len(answer["warnings"]) == 1
    assert ended.err == f"gradsync: warning: {answer['warnings'][0]}\n"
    assert "up to 24 bytes" in ended.err
    # a message a layer: all of them were measured
    inside = run(*arguments, "wfbp", "--json")
    assert (json.loads(inside.out)["extrapolated_bytes"], inside.err) == ([], "")


def test_the_residual_is_that_of_the_points(run, workload, tmp_path):
    points = tmp_path / "points.csv"
    points.write_text("# measured twice\nbytes,seconds\n2,9\n2,11\n12,19\n12,21\n")
    answer = json.loads(run("plan", "--workload", workload, "--allreduce", points, "--schedule", "wfbp", "--json").out)
    # relative least squares: (1/9 + 1/11) / (1/81 + 1/121) at 2 B, and so on; each point is off by about its noise
    low = (1 / 9 + 1 / 11) / (1 / 81 + 1 / 121)
    high = (1 / 19 + 1 / 21) / (1 / 19**2 + 1 / 21**2)
    expected = (abs(low / 9 - 1) + abs(low / 11 - 1) + abs(high / 19 - 1) + abs(high / 21 - 1)) / 4
    assert answer["allreduce_residual"] == pytest.approx(expected, rel=1e-9)


def test_plan_needs_neither_torch_nor_what_draws_or_records(workload):
    program = (
        "import sys; from gradsync.cli import main; assert main(sys.argv[1:]) == 0; "
        "print([name for name in ('torch', 'mlflow', 'matplotlib', 'sklearn') if name in sys.modules])"
    )
    arguments = ["plan", "--workload", str(workload), "--allreduce", LINE, "--schedule", "mgwfbp"]
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
