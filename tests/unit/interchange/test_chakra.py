"""Plans as Chakra traces, read back and replayed; traces in the form of MLCommons' converter; traces that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import made_up_chakra
import made_up_traces as made_up
import tiny_plans
from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.experiments import export, imported, predict
from gradsync.interchange import chakra_export, chakra_file
from gradsync.interchange.chakra_schema import COLLECTIVES, NODE_TYPES, VERSION, Metadata, Node, attributes
from gradsync.plan.workload import Workload
from tiny_workloads import FREE, workload, workloads

START_UP, PER_BYTE = 1e-3, 1e-9
LINE = f"a={START_UP},b={PER_BYTE}"
LOAD = workload(
    [400_000, 80_000, 2_000_000],
    [0.0011, 0.0007, 0.002000_25],
    forward=0.004,
    update=0.0005,
    forwards=[0.001, 0.0015, 0.0015],
)


def exported(
    folder: Path, schedule: str, ranks: int = 3, turns: int = 3, load: Workload = LOAD
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What planning and exporting a workload say."""
    (folder / "w.json").write_text(load.to_json())
    planned = predict.plan(
        predict.Options(
            workload=str(folder / "w.json"), allreduce=LINE, schedule=schedule, ranks=ranks, output=folder / "p.json"
        )
    )
    told = export.export(
        export.Options(
            plan=folder / "p.json", format="chakra", workload=folder / "w.json", output=str(folder / "out"), turns=turns
        )
    )
    return planned, told


def replayed(trace: chakra_file.Trace) -> dict[str, float]:
    """When each node ends, if it begins once all that it depends on has ended and messages take START_UP, PER_BYTE."""
    ends: dict[int, float] = {}
    for node in trace.nodes:
        told = attributes(node)
        message = node.type == NODE_TYPES.index("COMM_COLL_NODE")
        seconds = START_UP + PER_BYTE * told["comm_size"] if message else told["gradsync_seconds"]
        ends[node.id] = seconds + max((ends[each] for each in (*node.data_deps, *node.ctrl_deps)), default=0.0)
    return {node.name: ends[node.id] for node in trace.nodes}


@pytest.mark.parametrize("schedule", ["wfbp", "mgwfbp", "single", "optimal", "fixed_buckets"])
def test_a_plan_is_read_back_and_takes_as_long(schedule, tmp_path):
    """The workload comes back; what depends on what in the trace makes the iteration that the simulator predicts."""
    planned, told = exported(tmp_path, schedule)
    assert (told["lost"], told["ranks"], told["iterations"]) == ([], 3, 3)
    traces = [chakra_file.read(tmp_path / f"out.{rank}.et") for rank in range(3)]
    assert {trace.metadata.version for trace in traces} == {VERSION}
    ends = replayed(traces[1])
    turn = ends["update@2"] - ends["update@1"]
    assert turn == pytest.approx(planned["iteration_seconds"], rel=1e-9)
    micros = sum(node.duration_micros for node in traces[0].nodes)
    computed = 3 * (LOAD.forward_seconds + LOAD.backward_seconds + LOAD.update_seconds)
    assert abs(micros - 1e6 * computed) <= 1
    assert back(tmp_path, 3) == LOAD


full = st.builds(
    lambda load, norm, statistics, kernels, forwards, source: load.model_copy(
        update={
            "norm_seconds": norm,
            "statistics": statistics,
            "kernels": kernels,
            "provenance": source,
            "layers": tuple(
                layer.model_copy(
                    update={"forward_seconds": forwards[0], "forward_index": number, "elements": layer.bytes // 4}
                )
                for number, layer in enumerate(load.layers)
            )
            if forwards
            else load.layers,
        }
    ),
    workloads(),
    st.floats(0, 1),
    st.integers(0, 10**6),
    st.dictionaries(st.sampled_from(sorted(FREE)), st.floats(0, 1e-6)),
    st.lists(st.floats(0, 1), max_size=1),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5)), max_size=3),
)


@given(load=full, schedule=st.sampled_from(["wfbp", "single", "dear"]), name=st.text(min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_every_field_of_a_workload_comes_back(load, schedule, name, tmp_path_factory):
    """Also those whose times no node has: the plan may repeat an update, shard it, or have no norm."""
    folder = tmp_path_factory.mktemp("exported")
    load = load.model_copy(update={"name": name})
    exported(folder, schedule, 2, 1, load)
    assert back(folder, 2) == load


def back(folder: Path, ranks: int) -> Workload:
    """What the exported traces give."""
    traces = tuple(folder / f"out.{rank}.et" for rank in range(ranks))
    imported.load(imported.Options(traces=traces, output=folder / "back.json"))
    return Workload.load(folder / "back.json")


def test_the_norm_of_a_plan_that_clips_comes_back(tmp_path):
    load = LOAD.model_copy(update={"norm_seconds": 0.0003})
    exported(tmp_path, "wfbp", load=load)
    assert back(tmp_path, 3) == load


def test_an_all_gather_has_the_piece_that_a_rank_puts_in(tmp_path):
    exported(tmp_path, "dear", turns=2)
    kinds = {COLLECTIVES[told["comm_type"]]: told["comm_size"] for told in messages(tmp_path / "out.0.et")}
    whole = LOAD.bytes  # of an all-gather a rank puts in its own piece
    assert kinds.keys() == {"REDUCE_SCATTER", "ALL_GATHER"}
    sizes = dict.fromkeys(kinds, 0)
    for told in messages(tmp_path / "out.0.et", turn=0):
        sizes[COLLECTIVES[told["comm_type"]]] += told["comm_size"]
    assert sizes["REDUCE_SCATTER"] == whole
    assert sizes["ALL_GATHER"] == pytest.approx(whole / 3, abs=len(LOAD.layers))


def messages(path: Path, turn: int | None = None) -> list[dict[str, Any]]:
    nodes = [attributes(node) for node in chakra_file.read(path).nodes]
    return [told for told in nodes if "comm_type" in told and turn in (None, told["gradsync_turn"])]


@pytest.mark.parametrize("name", tiny_plans.every_kind())
def test_ranks_of_a_message_agree_on_it_or_the_plan_is_refused(name, tmp_path):
    """By number, kind and group; point-to-point messages of all ranks are in pairs."""
    plan = tiny_plans.every_kind()[name]
    verbs = {op.verb for role in plan.roles for op in role.flat}
    if verbs & {"recv_any", "reply", "shared_read", "shared_add"}:
        with pytest.raises(InputError, match="can't be exported as Chakra traces"):
            chakra_export.export(plan, LOAD, lambda rank, op: 1e-6, 2)
        return
    files = chakra_export.export(plan, LOAD, lambda rank, op: 1e-6, 2)
    kinds: dict[int, int] = {}
    taking: dict[tuple[int, str], list[int]] = {}
    pairs: dict[tuple[Any, ...], int] = {}
    for rank, content in enumerate(files.files):
        path = tmp_path / f"{rank}.et"
        path.write_bytes(content)
        trace = chakra_file.read(path)
        numbers = [node.id for node in trace.nodes]
        assert len({*numbers}) == len(numbers)
        for node in trace.nodes:
            assert {*node.data_deps, *node.ctrl_deps} <= {*numbers}
            told = attributes(node)
            if "comm_type" in told:
                assert kinds.setdefault(node.id, told["comm_type"]) == told["comm_type"]
                taking.setdefault((node.id, told.get("pg_name", "")), []).append(rank)
            elif "comm_src" in told:
                key = told["comm_src"], told["comm_dst"], told["comm_tag"], told["comm_size"]
                pairs[key] = pairs.get(key, 0) + (1 if node.type == NODE_TYPES.index("COMM_SEND_NODE") else -1)
    assert not any(pairs.values())
    everyone = [*range(plan.ranks)]
    assert all(sorted(files.groups.get(group, everyone)) == ranks for (_, group), ranks in taking.items())


def of_exports(folder: Path) -> dict[str, list[Path]]:
    """Traces that don't belong together, by what must be said of them."""
    other = workload([400_000, 80_000, 2_000_000], [0.002, 0.0007, 0.001], forward=0.004, forwards=[0.001] * 3)
    kinds: dict[str, tuple[str, int, int, Workload]] = {
        "first": ("wfbp", 2, 3, LOAD),
        "of another plan": ("single", 2, 3, LOAD),
        "of another number of ranks": ("wfbp", 3, 3, LOAD),
        "of another number of turns": ("wfbp", 2, 2, LOAD),
        "of another workload": ("wfbp", 2, 3, other),
    }
    folders = {}
    for words, (schedule, ranks, turns, load) in kinds.items():
        folders[words] = folder / words.replace(" ", "-")
        folders[words].mkdir()
        exported(folders[words], schedule, ranks, turns, load)
    first = folders.pop("first")
    wrong = {words: [first / "out.0.et", each / "out.1.et"] for words, each in folders.items()}
    copy = first / "copy.et"
    copy.write_bytes((first / "out.0.et").read_bytes())
    return wrong | {"are both of rank 0": [first / "out.0.et", copy]}


def test_traces_of_several_exports_or_of_one_rank_are_refused_together(tmp_path, capsys):
    cases = of_exports(tmp_path)
    assert len(cases) == 5
    for words, traces in cases.items():
        assert main(["import", *map(str, traces), "--output", str(tmp_path / "back.json")]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert all(str(trace) in error for trace in traces)
        assert error.count("\n") == 1
    assert not (tmp_path / "back.json").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_the_converter_says_what_the_profile_says(packed, tmp_path):
    shapes = ((10,), (10, 20), (20, 5))
    content = made_up_chakra.converted(made_up.profile(shapes))
    trace = tmp_path / ("net.et.gz" if packed else "net.et")
    trace.write_bytes(gzip.compress(content) if packed else content)
    imported.load(imported.Options(traces=(trace,), output=tmp_path / "w.json"))
    again = Workload.load(tmp_path / "w.json")
    each = (made_up.BACKWARD + made_up.PLACED) * 1e-6
    assert [layer.backward_seconds for layer in again.layers] == pytest.approx([each] * 3)
    assert again.forward_seconds == pytest.approx(3 * made_up.FORWARD * 1e-6)
    assert again.update_seconds == pytest.approx(made_up.UPDATE * 1e-6)
    assert [layer.bytes for layer in again.layers] == [40, 800, 400]
    assert [layer.forward_index for layer in again.layers] == [2, 1, 0]


def test_what_is_no_chakra_trace_is_refused(tmp_path, capsys):
    exported(tmp_path, "wfbp", ranks=2)
    whole = (tmp_path / "out.0.et").read_bytes()
    cases = {
        "cut.et": (whole[:-3], "not a Chakra trace, or cut off"),
        "json.et": (json.dumps({"traceEvents": []}).encode(), "not a Chakra trace"),
        "empty.et": (b"", "not a Chakra trace"),
        "gone.et.gz": (gzip.compress(whole)[:-9], "packed with gzip, and cut off"),
        "without.et": (
            chakra_file.to_bytes(Metadata(version=VERSION), [Node(id=1, name="aten::add", duration_micros=3)]),
            "has no gradients",
        ),
    }
    for name, (content, words) in cases.items():
        (tmp_path / name).write_bytes(content)
        assert main(["import", str(tmp_path / name), "--output", str(tmp_path / "back.json")]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    mixed = ["import", str(tmp_path / "out.0.et"), str(tmp_path / "w.json"), "--output", str(tmp_path / "back.json")]
    assert main(mixed) == 2
    assert "give traces of one kind" in capsys.readouterr().err
    words = ["export", str(tmp_path / "p.json"), "--format", "chakra"]
    assert main(words) == 2
    assert "needs --workload" in capsys.readouterr().err
    assert main([*words[:2], "--workload", str(tmp_path / "w.json")]) == 2
    assert "only with --format chakra" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["/", "..", "made/", "made/..", "made/.", "//"])
def test_traces_are_not_written_beside_the_folder_that_is_named(output, tmp_path, capsys, monkeypatch):
    exported(tmp_path, "wfbp", ranks=2)
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path / "made")
    before = sorted(tmp_path.rglob("*"))
    words = ["export", "../p.json", "--format", "chakra", "--workload", "../w.json", "--output", output]
    assert main(words) == 2
    assert f"--output {output}: names a folder" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_overwrites_neither_plan_nor_workload(tmp_path, capsys):
    exported(tmp_path, "wfbp", ranks=2)
    right = {"plan": tmp_path / "p.json", "workload": tmp_path / "w.json"}
    for kind, path in right.items():
        content = path.read_bytes()
        (tmp_path / "other.1.et").write_bytes(content)
        inputs = right | {kind: tmp_path / "other.1.et"}
        words = ["export", inputs["plan"], "--format", "chakra", "--workload", inputs["workload"]]
        assert main([*map(str, words), "--output", str(tmp_path / "other")]) == 2
        assert "other.1.et: would be overwritten" in capsys.readouterr().err
        assert (tmp_path / "other.1.et").read_bytes() == content
        assert not (tmp_path / "other.0.et").exists()
