"""Exit status 2: bad input is refused in one line, and no output is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_lines import EARLIER, LINE, ROOT, workload_json

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
    "measure an unknown kind": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "2", "--kind", "all_gather", "nosuch"],
        "--kind nosuch: does not exist; there are: all_reduce, reduce_scatter, ",
    ),
    "measure a kind over an axis that is not there": (
        ["measure", "launch", "--model", "lenet5", "--output", "{out}", "--ranks", "2", "--kind", "all_gather@node"],
        "--kind all_gather@node: no axis 'node'; there are: world: give --axes",
    ),
    "measure a kind of another collective": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "2", "--kind", "reduce", "--collective", "ring"],
        "--collective: reduce is measured of native: name it too",
    ),
    "measure no axes": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "4", "--axes", "node=2"],
        "--axes node=2: give NAME:PLACES",
    ),
    "measure other axes": (
        ["measure", "allreduce", "--output", "{out}", "--ranks", "4", "--axes", "node:2", "local:3"],
        "--axes node:2 local:3: mesh: 2 (node) x 3 (local) places for 4 ranks: they must be as many",
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
        f"{command[0]} with {what}": ([*command, "--results", "{folder}", "--config", file], message)
        for command in (
            ["external"],
            ["table", "mgwfbp", "table2"],
            ["figure", "mgwfbp", "fig1"],
            ["claims"],
            ["track"],
        )
        for what, file, message in (
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


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_one_line(run, bad_files, tmp_path, arguments, message):
    outputs = tmp_path / "out"
    before = sorted(path.relative_to(outputs) for path in outputs.rglob("*"))
    ended = run(*(argument.format(**bad_files) for argument in arguments))
    assert ended.status == 2
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("gradsync: ")
    assert message in lines[0]
    assert sorted(path.relative_to(outputs) for path in outputs.rglob("*")) == before  # and nothing half written
    for path in outputs.rglob("*"):
        assert path.is_dir() or path.read_text() == EARLIER
