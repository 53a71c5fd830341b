"""Every file that is read, with one odd position, and the command that reads it."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

import made_up_traces
import tiny_plans
from fuzz.values import values
from gradsync import cli
from gradsync.clusters import parts
from gradsync.costs.contention_points import Contention, ContentionPoint
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.files.results import Result
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.workload import Layer, Workload
from hostile import changed, positions
from made_up_cluster import four, timed
from tiny_workloads import FREE

ROOT = Path(__file__).parents[2]
CHANGED = "changed"  # the folder of changed files
DAMAGE = (
    "\0",
    "[" * 5000,
    "{" * 40,
    "&a [*a]",
    "<<: *b",
    "\t",
    "2021-13-45",
    "? ",
    "- ",
    "9" * 5000,
    ",",
    '"',
    "\ufeff",
)
# models whose operations are counted, for tables that are made of a testbed: in place of what is measured, or assumed
COUNTED = {"counted": ("resnet152", "densenet201", "inceptionv4", "bert_base", "lenet5"), "profile": ("resnet50",)}
CONFIGURATIONS = (
    "quick",
    "measured",
    "full",
    "emulated",
    "bcube",
    "modern",
    "overlap",
    "simultaneous",
    "elastic",
    "sparse",
    "sparse_training",
)


class Kind(NamedTuple):
    """A kind of file: its right content, how it is written, the command that reads it, and positions to change."""

    content: Any
    write: Callable[[Any], str]
    read: tuple[str, ...]
    places: tuple[tuple[Any, ...], ...]


def _csv(rows: Any) -> str:
    """Rows as CSV; anything but a list of lists is written as its text."""
    written = io.StringIO()
    for row in rows if isinstance(rows, list) else [[rows]]:
        csv.writer(written).writerow(row if isinstance(row, list) else [row])
    return written.getvalue()


def prepare(folder: Path) -> None:
    """Write the files that base commands name into `folder`, the current one."""
    for name in ("config", "reports", "containers", "envs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / CHANGED).mkdir()
    (folder / "results").mkdir()
    (folder / "run").mkdir()
    Result(rung="measured", scheme="wfbp", model="lenet5", ranks=2, samples={"speedup": [1.0, 2.0]}).save(
        folder / "run"
    )
    (folder / "workload.json").write_text((ROOT / "config/papers/mgwfbp/examples/counterexample.json").read_text())
    points = [(size, 1e-3 + size * 1e-9) for size in (2, 4, 8, 16, 64, 1 << 12, 1 << 20)]
    (folder / "points.csv").write_text(_csv([["bytes", "seconds", "ranks"], *([*each, 2] for each in points)]))
    sweeps = [ContentionPoint(lanes=k, bytes=m, seconds=(1 + k * m, 1.1 + k * m)) for k in (1, 2) for m in (2, 8, 64)]
    (folder / "contention.json").write_text(Contention(ranks=2, points=tuple(sweeps)).to_json())
    slow = InterferencePoint(bytes=8, computation=1.5, communication=1.2, computation_interval=(1.1, 1.7))
    (folder / "interference.json").write_text(Interference(points=(slow,), handover_seconds=0.1).model_dump_json())
    (folder / "testbed.json").write_text('{"version": 1, "topology": "switch", "bits_per_second": 4e8, "lanes": 2}')
    for part in four():
        parts.write(part, folder / f"{getattr(part, 'part', 'x')}.json")
    parts.assemble("four", four(), folder / "cluster.yaml")
    (folder / CHANGED / "cluster").symlink_to(folder / "cluster")
    (folder / "layers.json").write_text(timed(0.01, 4).to_json())
    one, two = (
        {
            "parts": parts,
            "cores": 2 // parts,
            "compute_seconds": [0.1, 0.2],
            "update_seconds": [0.1],
            "sum_seconds": sums,
        }
        for parts, sums in ((1, []), (2, [0.1]))
    )
    times = {"version": 1, "model": "net", "batch": 2, "weights_bytes": 100, "timed": [one, two], "provenance": {}}
    (folder / "times.json").write_text(json.dumps(times))
    shutil.copy(ROOT / "config/chips/knl7250.yaml", folder / "chip.yaml")
    (folder / "snakemake.log").write_text("Error in rule train:\n    jobid: 3\n    log: x.log (check log file(s))\n")
    whole = yaml.safe_load((ROOT / "config/quick.yaml").read_text())
    lenet = [each for each in whole["training"] if each["model"] == "lenet5"][:1]
    launch = {"model": "googlenet", "ranks": 2, "dilation": 40, "schemes": ["wfbp"]}
    small = whole | {"training": lenet, "elastic": [], "emulated": [launch]}
    for paper in SIMULATED:
        held = yaml.safe_load((ROOT / f"config/papers/{paper}/testbed.yaml").read_text())
        (folder / f"few-{paper}-testbed.yaml").write_text(
            yaml.safe_dump(held | {key: _few(held[key]) for key in BANDS & held.keys()})
        )
    (folder / "config.yaml").write_text(yaml.safe_dump(small))
    few = {"nodes": [4], "gap_nodes": [4], "forward_shares": [0.5], "bucket_sweep": 2}
    papers = {paper: few if paper == "mgwfbp" else {} for paper in SIMULATED}
    for key in NAMED:
        other = small | {"papers": papers, key: f"{CHANGED}/{key}.yaml"}
        (folder / f"with-{key}.yaml").write_text(yaml.safe_dump(other))
    for paper, key in itertools.product(SIMULATED, ("published", "testbed")):
        changed = papers | {paper: papers[paper] | {key: f"{CHANGED}/{paper}-{key}.yaml"}}
        (folder / f"with-{paper}-{key}.yaml").write_text(yaml.safe_dump(small | {"papers": changed}))
    line, links = (["--workload", "workload.json", "--allreduce", each] for each in ("a=1,b=1", "alpha=1,bandwidth=9"))
    with contextlib.redirect_stdout(io.StringIO()):
        for command in (
            ["plan", *line, "--schedule", "wfbp", "--output", "plan.json"],
            ["plan", *line, "--schedule", "kway", "--option", "lanes=2", "--output", "lanes.json"],
            ["plan", *links, "--schedule", "ring", "--ranks", "4", "--accumulate", "2", "--output", "ring.json"],
            ["simulate", "--plan", "plan.json", *line, "--turns", "3", "--output", "trace.json"],
            ["export", "plan.json", "--format", "chakra", "--workload", "workload.json", "--output", "plan"],
            *(
                ["measure", "operations", "--model", model, "--output", f"results/quick/{of}/{model}/workload.json"]
                for of, models in COUNTED.items()
                for model in models
            ),
        ):
            if status := cli.main(command):
                raise AssertionError(f"{command} ended with status {status}")
    (folder / "recorded.json").write_text(json.dumps(made_up_traces.profile()))
    for rank in (0, 1):
        (folder / f"rank{rank}.json").write_text(json.dumps(made_up_traces.profile(rank=rank, late=10.0 * rank)))
    for name, plan in tiny_plans.every_kind().items():
        (folder / f"plan-{name}.json").write_text(plan.to_json())
        width = DTYPE_BYTES[plan.buffer[plan.holding("gradient") or plan.buffers[0].name].dtype]
        layers = tuple(
            Layer(name=each.name, bytes=width * (each.stop - each.start), forward_seconds=0.5, backward_seconds=1.0)
            for each in plan.tensors
        )
        free = Workload(name="tiny", forward_seconds=1.0, layers=layers, kernels=FREE)
        (folder / f"workload-{name}.json").write_text(free.to_json())


NAMED = ("schemes", "peers")  # keys of a configuration: files that it names, which `estimate` reads
SIMULATED = {"mgwfbp": "gap", "bml_bcube": "fig6", "ascwfbp": "constants"}  # by paper: a table that reads its testbed
BANDS = {"share_of_peak", "share_of_link_rate", "alpha_seconds", "sub_minibatches"}  # every combination is simulated


def _few(held: Any) -> Any:
    """The same with one number per list."""
    if isinstance(held, dict):
        return {key: _few(value) for key, value in held.items()}
    return held[:1] if isinstance(held, list) else held


def kinds(folder: Path) -> dict[str, Kind]:
    """Every kind of file, by its name below CHANGED; `prepare` has made what they start from."""
    by_name = {}

    def add(name: str, of: Path, *read: str) -> None:
        text = of.read_text()
        if name.endswith(".csv"):
            content, write = list(csv.reader(io.StringIO(text))), _csv
        else:
            content, write = (
                (yaml.safe_load(text), yaml.safe_dump) if name.endswith(".yaml") else (json.loads(text), json.dumps)
            )
        by_name[name] = Kind(
            content, write, tuple(word.format(f"{CHANGED}/{name}") for word in read), tuple(positions(content))
        )

    line = ("--workload", "workload.json", "--allreduce", "a=1,b=1")
    for name in CONFIGURATIONS:
        add(f"{name}.yaml", ROOT / f"config/{name}.yaml", "estimate", "--config", "{}", "--json")
    for key in NAMED:
        add(f"{key}.yaml", ROOT / f"config/{key}.yaml", "estimate", "--config", f"with-{key}.yaml", "--json")
    for paper in SIMULATED:
        name, of = f"{paper}-published.yaml", ROOT / f"config/papers/{paper}/published.yaml"
        add(name, of, "claims", "--config", f"with-{name}", "--json")
    add(
        "table.yaml",
        folder / "config.yaml",
        "table",
        "mgwfbp",
        "table2",
        "--config",
        "{}",
        "--results",
        "results",
        "--json",
    )
    for paper, table in SIMULATED.items():
        name = f"{paper}-testbed.yaml"
        add(name, folder / f"few-{name}", "table", paper, table, "--config", f"with-{name}", "--json")
    add(
        "cluster.yaml",
        folder / "cluster.yaml",
        *("plan", "--workload", "net", "--cluster", "{}", "--schedule", "single"),
        *("--ranks", "4", "--json"),
    )
    add(
        "nodes.json",
        folder / "nodes.json",
        *("cluster", "assemble", "put", "--part", "{}", "--workload", "layers.json"),
        *("--output", "put.yaml", "--json"),
    )
    add(
        "allreduce.json",
        folder / "allreduce.json",
        *("cluster", "assemble", "put", "--part", "nodes.json", "{}"),
        *("--output", "put.yaml", "--json"),
    )
    add(
        "layers.json",
        folder / "layers.json",
        *("cluster", "assemble", "put", "--part", "nodes.json", "--workload", "{}"),
        *("--output", "put.yaml", "--json"),
    )
    for name in ("plan", "lanes", "ring"):
        add(f"{name}.json", folder / f"{name}.json", "simulate", "--plan", "{}", *line, "--json")
    for name in tiny_plans.every_kind():
        costs = ("--workload", f"workload-{name}.json", "--allreduce", "a=1,b=1")
        add(f"plan-{name}.json", folder / f"plan-{name}.json", "simulate", "--plan", "{}", *costs, "--json")
    add("recorded.json", folder / "recorded.json", "import", "{}", "--output", "made.json", "--json")
    add("trace.json", folder / "trace.json", "draw", "{}", "--output", "drawn.svg")
    planned = ("--schedule", "mgwfbp", "--output", "made.json", "--json")
    add("workload.json", folder / "workload.json", "plan", "--workload", "{}", *line[2:], *planned)
    add("points.csv", folder / "points.csv", "plan", *line[:2], "--allreduce", "{}", *planned)
    for key in ("contention", "interference"):
        add(f"{key}.json", folder / f"{key}.json", "plan", *line, f"--{key}", "{}", *planned)
    add("times.json", folder / "times.json", "parts", "--times", "{}", "--json")
    add("chip.yaml", folder / "chip.yaml", "parts", "--times", "times.json", "--chip", "{}", "--json")
    add(
        "testbed.json",
        folder / "testbed.json",
        *("measure", "allreduce", "--ranks", "2", "--testbed", "{}"),
        *("--output", "measured.csv"),
    )
    add(
        "replay.json",
        folder / "layers.json",
        *("measure", "replay", "--ranks", "2", "--workload", "{}"),
        *("--output", "measured.json"),
    )
    return by_name


@st.composite
def texts(draw: Any, files: dict[str, Kind]) -> tuple[str, str]:
    """(file's name, its text): one position odd, missing or there twice, or its text damaged."""
    name = draw(st.sampled_from(sorted(files)))
    kind = files[name]
    place = draw(st.sampled_from(kind.places))
    how = draw(st.sampled_from(["value"] * 7 + ["missing", "again", "damage"]))
    content = kind.content
    if how == "value":
        content = changed(content, place, draw(values))
    elif how in ("missing", "again"):
        content = changed(content, place, None)
        parent = content
        for key in place[:-1]:
            parent = parent[key]
        if how == "missing":
            del parent[place[-1]]
        elif isinstance(parent, list):
            parent[place[-1]] = _at(kind.content, place)
            parent.insert(place[-1], _at(kind.content, place))
        else:
            parent[place[-1]] = _at(kind.content, place)
            parent[draw(st.text(max_size=9))] = _at(kind.content, place)
    try:
        text = kind.write(content)
    except ValueError:  # a number of more digits than Python writes
        text = repr(content)
    if how == "damage":
        where = draw(st.integers(0, len(text)))
        text = text[:where] + draw(st.sampled_from(DAMAGE)) + text[where:]
    return name, text


def _at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content
