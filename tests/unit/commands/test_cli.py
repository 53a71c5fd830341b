"""The command line: what it prints, what it writes, and how it says no (one line, exit status 1 or 2)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gradsync.cli import main

ROOT = Path(__file__).parents[3]
COMMANDS = [
    "plan",
    "simulate",
    "collective",
    "draw",
    "train",
    "export",
    "measure",
    "external",
    "count",
    "table",
    "figure",
    "claims",
    "track",
    "benchmark",
]
# the smallest net on which Algorithm 1 is not optimal: (name, bytes, backward seconds) in backward order
ERRATUM = [("l3", 12, 5.0), ("l2", 2, 4.0), ("l1", 10, 7.0)]
LINE = "a=8,b=1"
EARLIER = "an earlier file"


class Ended(NamedTuple):
    status: int | str | None
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(argument, ...): exit status and output of the command line, in the project's folder."""
    monkeypatch.chdir(ROOT)
    capfd.readouterr()

    def call(*arguments: object) -> Ended:
        try:
            status: int | str | None = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        return Ended(status, *capfd.readouterr())

    return call


def workload_json(layers: list[tuple[str, int, float]] = ERRATUM, **changes: object) -> str:
    content = {
        "version": 1,
        "name": "erratum",
        "forward_seconds": 0.0,
        "layers": [{"name": name, "bytes": size, "backward_seconds": seconds} for name, size, seconds in layers],
    }
    return json.dumps({**content, **changes})


def points_csv(sizes: list[int]) -> str:
    return "bytes,seconds\n" + "".join(f"{size},{8.0 + size}\n" for size in sizes)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload.json"
    path.write_text(workload_json())
    return path


@pytest.fixture
def plan(tmp_path: Path, workload: Path, run: Run) -> Path:
    path = tmp_path / "wfbp.json"
    assert run("plan", "--workload", workload, "--allreduce", LINE, "--schedule", "wfbp", "--output", path).status == 0
    return path


# What it is for


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    ended = run(command, "--help")
    assert ended.status == 0
    assert f"usage: gradsync {command}" in ended.out
    assert "--json" in ended.out


def test_the_list_of_commands_is_complete(run):
    ended = run("--help")
    assert ended.status == 0
    listed = {line.split()[0] for line in ended.out.splitlines() if line.startswith("    ") and line.strip()}
    assert set(COMMANDS) <= listed


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


def test_plan_takes_schemes_and_options(run, workload, tmp_path):
    named = tmp_path / "schemes.yaml"
    named.write_text("small: {schedule: fixed_buckets, options: {bucket_bytes: 12, first_bucket_bytes: 12}}\n")
    arguments = ("plan", "--workload", workload, "--allreduce", LINE, "--json")
    assert json.loads(run(*arguments, "--schedule", "small", "--schemes", named).out)["messages"] == [
        ["l3"],
        ["l2", "l1"],
    ]
    # an option on the command line wins over the file's
    given = run(*arguments, "--schedule", "small", "--schemes", named, "--option", "first_bucket_bytes=13")
    assert json.loads(given.out)["messages"] == [["l3", "l2"], ["l1"]]


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


def test_a_plan_is_simulated_and_drawn(run, workload, plan, tmp_path):
    trace, chrome = tmp_path / "trace.json", tmp_path / "chrome.json"
    simulated = run(
        *("simulate", "--plan", plan, "--workload", workload, "--allreduce", LINE),
        *("--output", trace, "--chrome", chrome, "--json"),
    )
    assert (simulated.status, simulated.err) == (0, "")
    assert json.loads(simulated.out)["iteration_seconds"] == pytest.approx(53.0, rel=1e-12)
    assert {event["name"] for event in json.loads(chrome.read_text())["traceEvents"]} >= {"forward", "update"}
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for source in (plan, trace):
        for ending, begin in begins.items():
            drawing = tmp_path / f"{source.stem}.{ending}"
            drawn = run("draw", source, "--output", drawing, "--turn", 1, "--json")
            assert (drawn.status, drawn.err) == (0, "")
            assert json.loads(drawn.out)["drawn"] == str(drawing)
            assert drawing.read_bytes().startswith(begin)
    for stem in ("wfbp", "trace"):
        text = (tmp_path / f"{stem}.svg").read_text()
        assert "l3" in text
        assert "simulated" in text


def test_a_plan_is_exported_as_buckets_of_ddp(run, tmp_path):
    load, path = tmp_path / "load.json", tmp_path / "plan.json"
    load.write_text(workload_json([("l3", 4, 5.0), ("l2", 3 * 1024 * 1024, 4.0), ("l1", 8, 7.0)]))
    planning = ("--workload", load, "--allreduce", "a=1e-3,b=1e-9", "--output", path)
    assert run("plan", *planning, "--schedule", "wfbp").status == 0
    told = json.loads(run("export", path, "--json").out)
    assert told.pop("use").startswith("DistributedDataParallel(model, bucket_cap_mb_list=")
    assert told == {"plan": "wfbp", "buckets": 3, "bucket_cap_mb_list": [4 / 2**20, 3.0, 8 / 2**20], "lost": []}
    assert "bucket_cap_mb_list: 3.814697265625e-06, 3.0, 7.62939453125e-06" in run("export", path).out
    assert run("plan", *planning, "--schedule", "single").status == 0
    assert json.loads(run("export", path, "--json").out)["bucket_cap_mb_list"] == [3.0 + 12 / 2**20]


def test_equal_drawings_are_equal_files(run, plan, workload, tmp_path):
    drawings = [tmp_path / name for name in ("one.svg", "two.svg")]
    for drawing in drawings:
        assert run("draw", plan, "--workload", workload, "--allreduce", LINE, "--output", drawing).status == 0
    assert drawings[0].read_bytes() == drawings[1].read_bytes()


def test_the_workload_changes_what_is_drawn_of_a_plan(run, plan, workload, tmp_path):
    assert run("draw", plan, "--output", tmp_path / "units.svg").status == 0
    assert run("draw", plan, "--workload", workload, "--allreduce", LINE, "--output", tmp_path / "w.svg").status == 0
    assert (tmp_path / "units.svg").read_bytes() != (tmp_path / "w.svg").read_bytes()


def test_tables_and_figures_go_where_they_are_told(run, tmp_path):
    made = run("table", "mgwfbp", "timelines", "--results", tmp_path, "--json")
    assert (made.status, made.err) == (0, "")
    assert [Path(path).name for path in json.loads(made.out)["written"]] == [
        "timelines.csv",
        "timelines.md",
        "timelines.tex",
    ]
    drawn = run("figure", "mgwfbp", "fig1", "--results", tmp_path, "--json")
    assert (drawn.status, drawn.err) == (0, "")
    for path in json.loads(drawn.out)["written"] + json.loads(made.out)["written"]:
        assert Path(path).is_relative_to(tmp_path)
        assert Path(path).stat().st_size


# Exit status 1: a run or a check failed


def without_first_message(plan: Path) -> str:
    content = json.loads(plan.read_text())
    (role,) = content["roles"]
    body = [operation for operation in role["body"] if operation["name"] != "message0"]
    assert len(body) == len(role["body"]) - 1
    role["body"] = body
    return json.dumps(content)


def test_a_plan_that_fails_its_check_ends_with_status_1(run, workload, plan, tmp_path):
    broken, trace = tmp_path / "broken.json", tmp_path / "trace.json"
    broken.write_text(without_first_message(plan))
    trace.write_text(EARLIER)
    ended = run("simulate", "--plan", broken, "--workload", workload, "--allreduce", LINE, "--output", trace)
    assert ended.status == 1
    assert ended.out == ""
    assert ended.err.startswith("gradsync: plan 'wfbp': missing gradient: 'l3'")
    assert "Traceback" not in ended.err
    assert trace.read_text() == EARLIER


@pytest.mark.parametrize("command", ["draw", "train", "export"])
def test_nothing_is_made_of_a_plan_that_fails_its_check(run, plan, tmp_path, command):
    broken, output = tmp_path / "broken.json", tmp_path / "output.svg"
    broken.write_text(without_first_message(plan))
    given = {"draw": [broken, "--output", output], "train": ["--plan", broken, "--output", output], "export": [broken]}
    ended = run(command, *given[command])
    assert ended.status == 1
    assert ended.err.startswith("gradsync: plan 'wfbp': missing gradient: 'l3'")
    assert not output.exists()


@pytest.mark.parametrize("command", ["draw", "export"])
def test_a_plan_without_roles_is_refused(run, plan, tmp_path, command):
    empty = tmp_path / "no-roles.json"
    empty.write_text(json.dumps({**json.loads(plan.read_text()), "roles": []}))
    ended = run(command, empty, *(["--output", tmp_path / "x.svg"] if command == "draw" else []))
    assert ended.status == 1
    assert ended.err.startswith("gradsync: plan 'wfbp': ")
    assert len(ended.err.splitlines()) == 1


def test_a_missed_benchmark_ends_with_status_1_and_leaves_its_numbers(run, tmp_path, monkeypatch):
    found = {"rows": [{"task": "slow", "ratio": 1.5, "met": False}], "met": False}
    monkeypatch.setattr("gradsync.benchmarks.planning_speed.measure", lambda: found)
    ended = run("benchmark", "planning", "--results", tmp_path)
    assert ended.status == 1
    row, said = ended.err.splitlines()
    assert json.loads(row) == found["rows"][0]
    assert said.startswith("gradsync: benchmark: missed its target: slow: 1.500")
    assert json.loads((tmp_path / "benchmarks" / "planning.json").read_text()) == found


def test_a_closed_pipe_ends_without_a_traceback(workload):
    arguments = ["plan", "--workload", str(workload), "--allreduce", LINE, "--schedule", "wfbp", "--json"]
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.stdin.read(); from gradsync.cli import main; sys.exit(main({arguments}))",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # nobody reads
        child.stdin.close()  # begin
        assert child.stderr.read() == b""
        assert child.wait() == 1


# Exit status 2: bad input

QUICK = "version: 1\nname: tiny\n"
BAD_FILES = {
    "good.json": workload_json(),
    "corrupt.json": '{"version": 1, "name": "half',
    "binary.json": "\x00\ud800\udfff",
    "unknown-key.json": workload_json(layer_count=3),
    "negative.json": workload_json([("l1", 12, -5.0)]),
    "nan.json": workload_json([("l1", 12, float("nan"))]),
    "twice.json": workload_json([("l1", 12, 5.0), ("l1", 12, 5.0)]),
    "empty.json": workload_json([]),
    "newer.json": workload_json(version=2),
    "other.json": workload_json([("another", 12, 5.0)]),
    "bad-line.csv": "bytes,seconds\n4,1.0\n8,fast\n",
    "short-line.csv": "bytes,seconds\n4,1.0\n8\n",
    "no-header.csv": "4,1.0\n8,2.0\n",
    "one-size.csv": "bytes,seconds\n4,1.0\n4,2.0\n",
    "negative.csv": "bytes,seconds\n4,1.0\n8,-2.0\n",
    "schemes.yaml": "odd: {schedule: nosuch}\n",
    "peers.yaml": "wfbp: {hook: fp16}\n",
    "bad-peers.yaml": "odd: {hook: fp8}\n",
    "not-yaml.yaml": "version: 1\nname: [\n",
    "empty.yaml": "",
    "key.yaml": QUICK + "sede: 1\n",
    "scheme.yaml": QUICK + "training: [{model: lenet5, ranks: 2, schemes: [nosuch]}]\n",
    "rank.yaml": QUICK + "training: [{model: lenet5, ranks: 0}]\n",
    "version.yaml": "version: 7\nname: tiny\n",
    "paper.yaml": QUICK + "papers: {mgwfbp: {published: nosuch.yaml}}\n",
    "folder.yaml": QUICK + "external_data: nosuch-folder\n",
    "trace.json": '{"name": "t", "rung": "simulated", "turns": 2, "spans": [[0, 0, "forward"]], "version": 3}',
    "no-spans.json": '{"name": "t", "rung": "simulated", "turns": 2, "spans": [], "version": 3}',
    "list.json": "[1, 2, 3]",
}

PLANNING = ["plan", "--output", "{out}", "--prediction", "{out2}", "--schedule", "wfbp"]
ON_A_LINE = ["--workload", "good.json", "--allreduce", LINE]
SIMULATING = ["simulate", "--output", "{out}", "--chrome", "{out2}"]
DRAWING = ["draw", "--output", "{svg}"]
PEERS = str(ROOT / "config" / "peers.yaml")
TRAINING = ["train", "--output", "{folder}"]

BAD = {
    # plan
    "missing workload": ([*PLANNING, "--workload", "nosuch.json", "--allreduce", LINE], "nosuch.json: can't be read"),
    "folder as workload": ([*PLANNING, "--workload", ".", "--allreduce", LINE], "can't be read"),
    "corrupt workload": (
        [*PLANNING, "--workload", "corrupt.json", "--allreduce", LINE],
        "corrupt.json: not a workload",
    ),
    "binary workload": ([*PLANNING, "--workload", "binary.json", "--allreduce", LINE], "binary.json"),
    "unknown key": ([*PLANNING, "--workload", "unknown-key.json", "--allreduce", LINE], "layer_count"),
    "negative time": ([*PLANNING, "--workload", "negative.json", "--allreduce", LINE], "layers.0.backward_seconds"),
    "NaN time": ([*PLANNING, "--workload", "nan.json", "--allreduce", LINE], "layers.0.backward_seconds"),
    "layer twice": ([*PLANNING, "--workload", "twice.json", "--allreduce", LINE], "layer 'l1' appears 2 times"),
    "no layers": ([*PLANNING, "--workload", "empty.json", "--allreduce", LINE], "layers"),
    "newer workload": ([*PLANNING, "--workload", "newer.json", "--allreduce", LINE], "version 2"),
    "unknown schedule": ([*PLANNING, *ON_A_LINE, "--schedule", "nosuch"], "schedule 'nosuch' does not exist"),
    "unknown scheme": (
        [*PLANNING, *ON_A_LINE, "--schemes", "{root}/config/schemes.yaml", "--schedule", "nosuch"],
        "scheme 'nosuch' does not exist",
    ),
    "scheme of an unknown schedule": (
        [*PLANNING, *ON_A_LINE, "--schemes", "schemes.yaml", "--schedule", "odd"],
        "scheme 'odd': schedule 'nosuch' does not exist",
    ),
    "unknown option": ([*PLANNING, *ON_A_LINE, "--option", "size=3"], "has no option 'size'"),
    "option without a value": ([*PLANNING, *ON_A_LINE, "--option", "size"], "give KEY=VALUE"),
    "option of a wrong type": (
        [*PLANNING, *ON_A_LINE, "--schedule", "fixed_buckets", "--option", "bucket_bytes=big"],
        "'big' is not a int",
    ),
    "option out of range": (
        [*PLANNING, *ON_A_LINE, "--schedule", "fixed_buckets", "--option", "bucket_bytes=0"],
        "at least 1",
    ),
    "cost: text": ([*PLANNING, "--workload", "good.json", "--allreduce", "fast"], "fast: can't be read"),
    "cost: a word": ([*PLANNING, "--workload", "good.json", "--allreduce", "a=quick,b=1"], "must be numbers"),
    "cost: b missing": ([*PLANNING, "--workload", "good.json", "--allreduce", "a=1"], "give a=SECONDS,b="),
    "cost: one too many": ([*PLANNING, "--workload", "good.json", "--allreduce", "a=1,b=1,c=1"], "give a=SECONDS,b="),
    "cost: negative": ([*PLANNING, "--workload", "good.json", "--allreduce", "a=-8,b=1"], "not negative"),
    "cost: NaN": ([*PLANNING, "--workload", "good.json", "--allreduce", "a=nan,b=1"], "must be finite"),
    "points: missing": (
        [*PLANNING, "--workload", "good.json", "--allreduce", "nosuch.csv"],
        "nosuch.csv: can't be read",
    ),
    "points: bad line": (
        [*PLANNING, "--workload", "good.json", "--allreduce", "bad-line.csv"],
        "bad-line.csv, line 3: not two numbers",
    ),
    "points: short line": (
        [*PLANNING, "--workload", "good.json", "--allreduce", "short-line.csv"],
        "short-line.csv, line 3: not two numbers",
    ),
    "points: no header": ([*PLANNING, "--workload", "good.json", "--allreduce", "no-header.csv"], "bytes,seconds"),
    "points: one size": ([*PLANNING, "--workload", "good.json", "--allreduce", "one-size.csv"], "at least two"),
    "points: negative": ([*PLANNING, "--workload", "good.json", "--allreduce", "negative.csv"], "positive"),
    "no ranks": ([*PLANNING, *ON_A_LINE, "--ranks", "0"], "--ranks 0: at least 1"),
    "rate NaN": ([*PLANNING, *ON_A_LINE, "--lr", "nan"], "--lr nan"),
    # export
    "export of a missing plan": (["export", "nosuch.json"], "plan nosuch.json: can't be read"),
    "export of a workload": (["export", "good.json"], "good.json: not a plan"),
    # simulate
    "missing plan": ([*SIMULATING, *ON_A_LINE, "--plan", "nosuch.json"], "plan nosuch.json: can't be read"),
    "corrupt plan": ([*SIMULATING, *ON_A_LINE, "--plan", "corrupt.json"], "corrupt.json: not a plan"),
    "workload as plan": ([*SIMULATING, *ON_A_LINE, "--plan", "good.json"], "good.json: not a plan"),
    "plan of another workload": (
        [*SIMULATING, "--plan", "plan.json", "--workload", "other.json", "--allreduce", LINE],
        "it has no layer 'l3'",
    ),
    "one turn": ([*SIMULATING, *ON_A_LINE, "--plan", "plan.json", "--turns", "1"], "--turns 1"),
    "point to point: text": (
        [*SIMULATING, *ON_A_LINE, "--plan", "plan.json", "--point-to-point", "a=x,b=y"],
        "--point-to-point a=x,b=y",
    ),
    # draw
    "missing drawing": ([*DRAWING, "nosuch.json"], "input nosuch.json: can't be read"),
    "corrupt drawing": ([*DRAWING, "corrupt.json"], "corrupt.json: neither a plan nor a trace"),
    "corrupt trace": ([*DRAWING, "trace.json"], "trace.json: not a trace"),
    "empty trace": ([*DRAWING, "no-spans.json"], "nothing chosen"),
    "list as trace": ([*DRAWING, "list.json"], "list.json: not a plan"),
    "unknown rank": ([*DRAWING, "plan.json", "--rank", "9"], "nothing chosen"),
    "bad ending": (["draw", "plan.json", "--output", "{out}"], "the ending must be one of svg, pdf, png"),
    "drawing under a file": (["draw", "plan.json", "--output", "{out}/x.svg"], "can't be written"),
    # train
    "train no ranks": ([*TRAINING, "--ranks", "0", "--schedule", "wfbp"], "--ranks 0: at least 1"),
    "train too many ranks": ([*TRAINING, "--ranks", "9999", "--schedule", "wfbp"], "more than this machine can hold"),
    "train nothing": (TRAINING, "nothing to train: give --plan"),
    "train plan and schedule": ([*TRAINING, "--plan", "plan.json", "--schedule", "wfbp"], "give either --plan"),
    "train missing plan": ([*TRAINING, "--plan", "nosuch.json"], "plan nosuch.json: can't be read"),
    "train corrupt plan": ([*TRAINING, "--plan", "corrupt.json"], "corrupt.json: not a plan"),
    "train plan for other ranks": ([*TRAINING, "--plan", "plan.json", "--ranks", "3"], "is for 2 ranks, --ranks is 3"),
    "train fixed size": ([*TRAINING, "--plan", "plan.json", "--size", "64"], "its size is fixed"),
    "train too small": ([*TRAINING, "--plan", "plan.json", "--model", "vgg19", "--size", "16"], "32"),
    "train without the folder": ([*TRAINING, "--plan", "plan.json", "--data", "mnist"], "--data-folder"),
    "train missing folder": (
        [*TRAINING, "--plan", "plan.json", "--data", "mnist", "--data-folder", "nosuch"],
        "folder nosuch does not exist",
    ),
    "train unknown peer": ([*TRAINING, "--peers", PEERS, "--peer", "nosuch"], "peer 'nosuch' does not exist"),
    "train bad peers": (
        [*TRAINING, "--peers", "bad-peers.yaml", "--peer", "odd"],
        "bad-peers.yaml, peer 'odd': hook: ",
    ),
    "train peer named like a plan": (
        [*TRAINING, "--plan", "plan.json", "--peers", "peers.yaml", "--peer", "wfbp"],
        "--peer wfbp: a plan has that name too",
    ),
    "train peer without its plan": (
        [*TRAINING, "--peers", PEERS, "--peer", "ddp_mgwfbp"],
        "needs the plan 'mgwfbp', which is not among those given",
    ),
    "train one iteration": ([*TRAINING, "--plan", "plan.json", "--iterations", "1"], "--iterations 1: at least 2"),
    "train two plans of a name": (
        [*TRAINING, "--plan", "plan.json", "--plan", "plan.json"],
        "another plan is named",
    ),
    "export no plan": (["export", "corrupt.json"], "corrupt.json: not a plan"),
    "train batch larger than the data": (
        [*TRAINING, "--plan", "plan.json", "--batch", "5000"],
        "1438",
    ),
    "train unknown model": ([*TRAINING, "--plan", "plan.json", "--model", "nosuch"], "model 'nosuch' does not exist"),
    "train unknown data": ([*TRAINING, "--plan", "plan.json", "--data", "nosuch"], "data 'nosuch' does not exist"),
    "train unknown schedule": ([*TRAINING, "--schedule", "nosuch"], "scheme 'nosuch' does not exist"),
    "train empty batch": ([*TRAINING, "--plan", "plan.json", "--batch", "0"], "--batch 0: at least 1"),
    "train short block": ([*TRAINING, "--plan", "plan.json", "--block", "1"], "--block 1: at least 2"),
    # measure
    "measure no ranks": (["measure", "layers", "--output", "{out}", "--ranks", "0"], "--ranks 0: at least 1"),
    "measure too many ranks": (
        ["measure", "layers", "--output", "{out}", "--ranks", "9999"],
        "more than this machine",
    ),
    "measure unknown model": (["measure", "layers", "--output", "{out}", "--model", "nosuch"], "model 'nosuch'"),
    "measure alone": (["measure", "allreduce", "--output", "{out}"], "--ranks must be at least 2"),
    "measure nothing": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "2", "--smallest", "0"],
        "--smallest 0: at least 4",
    ),
    "measure missing workload": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "2", "--workload", "nosuch.json"],
        "nosuch.json: can't be read",
    ),
    # outputs
    "output under a file": (
        ["plan", *ON_A_LINE, "--schedule", "wfbp", "--output", "{out}/plan.json"],
        "can't be written",
    ),
    "output is a folder": (["plan", *ON_A_LINE, "--schedule", "wfbp", "--output", "{folder}"], "can't be written"),
    # the configuration
    **{
        f"{command[0]} with {what}": ([*command, "--results", "{folder}", "--config", file], wanted)
        for command in (
            ["external"],
            ["table", "mgwfbp", "table2"],
            ["figure", "mgwfbp", "fig1"],
            ["claims"],
            ["track"],
        )
        for what, file, wanted in (
            ("missing configuration", "nosuch.yaml", "configuration nosuch.yaml: can't be read"),
            ("configuration that is not YAML", "not-yaml.yaml", "not-yaml.yaml: not YAML"),
            ("empty configuration", "empty.yaml", "configuration empty.yaml"),
            ("unknown key", "key.yaml", "configuration key.yaml: sede"),
            ("unknown scheme", "scheme.yaml", "training.0.schemes: scheme 'nosuch' does not exist"),
            ("no ranks", "rank.yaml", "training.0.ranks"),
            ("newer configuration", "version.yaml", "version 7"),
            ("missing paper", "paper.yaml", "nosuch.yaml does not exist"),
            ("missing logs", "folder.yaml", "folder nosuch-folder does not exist"),
        )
    },
    "unknown table": (["table", "mgwfbp", "nosuch", "--results", "{folder}"], "has no table 'nosuch'"),
    "unknown paper of a table": (
        ["table", "nosuch", "table2", "--results", "{folder}"],
        "paper 'nosuch' does not exist",
    ),
    "unknown figure": (
        ["figure", "mgwfbp", "nosuch", "--results", "{folder}"],
        "paper 'mgwfbp' has no figure 'nosuch'",
    ),
    "unknown paper of a figure": (
        ["figure", "nosuch", "fig1", "--results", "{folder}"],
        "paper 'nosuch' does not exist",
    ),
    "table before its input": (["table", "mgwfbp", "fig9a", "--results", "{folder}"], "make that table first"),
    "figure before its table": (["figure", "mgwfbp", "gap", "--results", "{folder}"], "make that table first"),
}


@pytest.fixture
def bad_files(tmp_path: Path, plan: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files of BAD_FILES in a folder of their own with the project's configuration; earlier outputs; placeholders."""
    place, outputs = tmp_path / "in", tmp_path / "out"
    place.mkdir()
    for name, content in BAD_FILES.items():
        (place / name).write_text(content, errors="surrogatepass")
    (place / "plan.json").write_text(plan.read_text())
    (place / "config").symlink_to(ROOT / "config")
    (outputs / "folder" / "tables" / "mgwfbp").mkdir(parents=True)
    for name in ("out", "out2", "out.svg", "folder/schemes.json", "folder/tables/mgwfbp/table2.csv"):
        (outputs / name).write_text(EARLIER)
    monkeypatch.chdir(place)
    monkeypatch.delenv("GRADSYNC_EXTERNAL_DATA", raising=False)
    paths = {"out": "out", "out2": "out2", "svg": "out.svg", "folder": "folder"}
    return {"root": str(ROOT), **{key: str(outputs / name) for key, name in paths.items()}}


@pytest.mark.parametrize(("arguments", "wanted"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_one_line(run, bad_files, tmp_path, arguments, wanted):
    outputs = tmp_path / "out"
    before = sorted(path.relative_to(outputs) for path in outputs.rglob("*"))
    ended = run(*(argument.format(**bad_files) for argument in arguments))
    assert ended.status == 2
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("gradsync: ")
    assert wanted in lines[0]
    assert sorted(path.relative_to(outputs) for path in outputs.rglob("*")) == before  # and nothing half written
    for path in outputs.rglob("*"):
        assert path.is_dir() or path.read_text() == EARLIER


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        [],
        ["plan", "--workload", "good.json"],
        ["plan", *ON_A_LINE, "--schedule", "wfbp", "--nosuch", "1"],
        ["plan", *ON_A_LINE, "--schedule", "wfbp", "--ranks", "two"],
        ["measure", "weather", "--output", "x"],
        ["table", "mgwfbp"],
    ],
    ids=str,
)
def test_a_wrong_command_line_gets_one_line_that_names_the_help(run, arguments):
    ended = run(*arguments)
    assert ended.status == 2
    assert ended.err.startswith("gradsync: ")
    assert ended.err.count("\n") == 1
    assert "--help shows all)" in ended.err
    assert "Traceback" not in ended.err
