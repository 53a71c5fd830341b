"""The commonest mistakes on the command line: each ends in one line that says what, where and what to do, status 2."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.experiments.costs import refuse_other
from gradsync.plan import Collective, Plan
from gradsync.plan.workload import Workload

ROOT = Path(__file__).parents[3]
COUNTER = "config/papers/mgwfbp/examples/counterexample.json"
PLAN = ["plan", "--workload", COUNTER, "--allreduce", "a=1,b=1"]
SIMULATE = ["simulate", "--plan", "{plan}", "--allreduce", "a=1,b=1"]
MISTAKES = {
    "a misspelt command": (["simulat"], "did you mean simulate?"),
    "no command": ([], "COMMAND: needed"),
    "a misspelt option": (
        [*PLAN, "--schedule", "wfbp", "--raks", "2"],
        "'--raks': no such option; did you mean --ranks?",
    ),
    "an option left out": (PLAN, "--schedule: needed, and not given"),
    "words for a number": (
        [*PLAN, "--schedule", "wfbp", "--ranks", "two"],
        "--ranks: must be a whole number, or NODESxRANKS as 16x8, not 'two'",
    ),
    "no ranks": ([*PLAN, "--schedule", "wfbp", "--ranks", "0"], "--ranks 0: at least 1"),
    "too many digits": (
        [*PLAN, "--schedule", "wfbp", "--ranks", "9" * 3000],
        "--ranks: a number of more than 20 digits: ",
    ),
    "a misspelt schedule": ([*PLAN, "--schedule", "mgwfpb"], "did you mean mgwfbp?"),
    "a schedule in capitals": ([*PLAN, "--schedule", "WFBP"], "did you mean wfbp?"),
    "a misspelt collective": ([*PLAN, "--schedule", "wfbp", "--collective", "rng"], "did you mean ring?"),
    "a misspelt topology": ([*PLAN, "--schedule", "wfbp", "--topology", "bcub:3,2"], "did you mean bcube?"),
    "a misspelt schedule's option": (
        [*PLAN, "--schedule", "fixed_buckets", "--option", "bucket_byte=3"],
        "did you mean bucket_bytes?",
    ),
    "a base that is not there": (
        ["image", "cpu", "--base", "nosuch.sif", "--output", "{out}.sif"],
        "there is no such image",
    ),
    "a missing file": (["check", "nosuch.json"], "plan nosuch.json: can't be read: No such file"),
    "a file of another kind": (["check", COUNTER], "not a plan"),
    "a misspelt key of a plan": (["check", "{miskeyed}"], "did you mean tensors?"),
    "a workload of another plan": ([*SIMULATE, "--workload", "{other}"], "is not what plan 'wfbp' was made from"),
    "a workload of other sizes": ([*SIMULATE, "--workload", "{resized}"], "bytes there and"),
    "times for a trace": (
        ["draw", "{trace}", "--workload", COUNTER, "--output", "{out}.svg"],
        "is a trace, which has its own times",
    ),
    "a misspelt model": (
        ["train", "--model", "lenet", "--peer", "ddp", "--output", "{out}"],
        "did you mean lenet5 or alexnet?",
    ),
    "misspelt data": (["train", "--data", "digit", "--peer", "ddp", "--output", "{out}"], "did you mean digits?"),
    "a misspelt peer": (["train", "--peer", "dpd", "--output", "{out}"], "did you mean ddp?"),
    "one rank": (
        ["train", "--schedule", "mgwfbp", "--ranks", "1", "--output", "{out}"],
        "--schedule: one rank sends nothing",
    ),
    "nothing to train": (["train", "--output", "{out}"], "nothing to train: give --plan"),
    "schemes of no schedule": (
        ["train", "--schemes", "config/schemes.yaml", "--peer", "ddp", "--output", "{out}"],
        "--schemes: only with --schedule",
    ),
    "a plan that is named as a path": (
        ["train", "--plan", "{escaping}", "--output", "{out}"],
        "begins with a letter or",
    ),
    "a misspelt paper": (["table", "mgwfb", "table2", "--results", "{out}"], "did you mean mgwfbp?"),
    "a misspelt table": (["table", "mgwfbp", "tabel2", "--results", "{out}"], "did you mean table2?"),
    "a misspelt figure": (["figure", "mgwfbp", "figg1", "--results", "{out}"], "did you mean fig1?"),
    "a misspelt launch": (
        ["emulate", "goglenet-8", "--config", "config/emulated.yaml", "--results", "{out}"],
        "did you mean googlenet-8 or",
    ),
    "a misspelt key": (["claims", "--config", "{key}", "--results", "{out}"], "did you mean training?"),
    "a missing key": (["claims", "--config", "{unranked}", "--results", "{out}"], "training.0.ranks: is missing"),
    "a word for a list": (
        ["claims", "--config", "{word}", "--results", "{out}"],
        "must be a list or 'native', not 'wfbp'",
    ),
    "claims of no results": (["claims", "--results", "{out}"], "first, or name another one with --results"),
    "runs of no results": (["track", "--results", "{out}"], "first, or name another one with --results"),
    "a tab in YAML": (["claims", "--config", "{tab}", "--results", "{out}"], "not YAML"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that are right, and such that are nearly so."""
    folder = tmp_path_factory.mktemp("files")
    paths = {key: str(folder / key) for key in ("plan", "other", "resized", "trace", "escaping", "miskeyed", "out")}
    texts = {
        "key": "trainig: []",
        "unranked": "training: [{model: lenet5}]",
        "word": "training: [{model: lenet5, ranks: 2, schemes: wfbp}]",
        "tab": "training:\n\t- model: lenet5",
    }
    for key, text in texts.items():
        paths[key] = str(folder / f"{key}.yaml")
        Path(paths[key]).write_text(f"version: 1\nname: tiny\n{text}\n")
    counter = str(ROOT / COUNTER)
    costs = ["--allreduce", "a=1,b=1"]
    assert main(["plan", "--workload", counter, *costs, "--schedule", "wfbp", "--output", paths["plan"]]) == 0
    timed = ["simulate", "--plan", paths["plan"], "--workload", counter, *costs, "--output", paths["trace"]]
    assert main(timed) == 0
    for key, changes in (("other", {"name": "another"}), ("resized", {"bytes": 4000})):
        content = json.loads(Path(counter).read_text())
        content["layers"][0] = {**content["layers"][0], **changes}
        content["layers"][0].pop("elements", None)
        Path(paths[key]).write_text(json.dumps(content))
    Path(paths["escaping"]).write_text(json.dumps({**json.loads(Path(paths["plan"]).read_text()), "name": "../../x"}))
    Path(paths["miskeyed"]).write_text(Path(paths["plan"]).read_text().replace('"tensors"', '"tensor"', 1))
    return paths


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_common_mistake_ends_in_one_line_that_says_what_to_do(mistake, files, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    capsys.readouterr()
    words, message = MISTAKES[mistake]
    assert main([word.format(**files) for word in words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gradsync: ")
    assert output.err.count("\n") == 1
    assert message in output.err
    for code in ("Traceback", "Input should", "[type=", "pydantic"):
        assert code not in output.err


def test_a_plan_that_computes_nothing_has_no_times_of_a_workload(files):
    plan = Plan.from_json(Path(files["plan"]).read_text())
    sums = tuple(op for op in plan.roles[0].body if isinstance(op, Collective))
    idle = dataclasses.replace(plan, roles=(dataclasses.replace(plan.roles[0], body=sums),))
    with pytest.raises(InputError, match="trains nothing"):
        refuse_other(idle, Workload.load(ROOT / COUNTER))


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        (["--schedule", "wfbp", "--collective", "ring"], "collective ring is lost"),
        (["--schedule", "wfbp", "--option", "lanes=2"], "2 lanes are lost"),
        (["--schedule", "wfbp", "--accumulate", "2"], "2 micro-batches a step are lost"),
        (["--schedule", "wfbp", "--clip-norm", "1"], "clipping is lost"),
    ],
)
def test_an_export_says_what_stock_ddp_does_not_do(options, lost, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    plan = str(tmp_path / "plan.json")
    content = json.loads(Path(COUNTER).read_text()) | {"norm_seconds": 0.0}
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps(content))
    made = ["plan", "--workload", str(workload), "--allreduce", "a=1,b=1", *options, "--output", plan]
    assert main(made) == 0
    assert main(["export", plan]) == 0
    assert lost in capsys.readouterr().err
