"""Traces with one odd value, a missing key or a cut end are read or refused in a line, and never raise."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_up_chakra
import made_up_traces as made_up
from fuzz.values import values
from gradsync import cli
from gradsync.experiments import export, predict
from gradsync.interchange import chakra_file
from gradsync.interchange.chakra_schema import Attribute, attributes
from hostile import at, changed, positions
from tiny_workloads import workload

SHAPES = ((10,), (10, 20))
NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]
odd = st.one_of(values, st.sampled_from([10**400, -(10**400), NESTED, "NaN", "1e999", [1], {"name": 5}]))
bounded = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def one_parser(monkeypatch):
    """Making the parser of all commands takes four times as long as an import."""
    monkeypatch.setattr(cli, "_parser", functools.cache(cli._parser))


def tried(arguments: list[Any]) -> str:
    """What a command says that ends with 0 or 2; in a line, if it refuses."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        status = cli.main([*map(str, arguments)])
    assert status in (0, 2), told.getvalue()
    if status:
        assert told.getvalue().count("\n") == 1, told.getvalue()
        assert told.getvalue().startswith("gradsync: ")
    return told.getvalue()


@st.composite
def texts(draw: st.DrawFn, contents: tuple[Any, ...]) -> bytes:
    """The JSON of one of them, with a value replaced or left out, its text cut off, or packed and cut off."""
    content = draw(st.sampled_from(contents))
    place = draw(st.sampled_from([*positions(content)]))
    how = draw(st.sampled_from(["value", "value", "value", "missing", "again", "cut", "packed"]))
    if how == "value":
        content = changed(content, place, draw(odd))
    elif how == "missing":
        content = changed(content, place, None)
        del at(content, place[:-1])[place[-1]]
    elif how == "again" and isinstance(at(content, place[:-1]), list):
        content = changed(content, place, at(content, place))
        at(content, place[:-1]).insert(place[-1], at(content, place))
    written = json.dumps(content).encode()
    if how == "packed":
        written = gzip.compress(written)
    return written[: draw(st.integers(0, len(written)))] if how in ("cut", "packed") else written


def execution_trace() -> dict[str, Any]:
    inputs = {"values": [], "shapes": [[10]], "types": ["Tensor(float)"]}
    name = "torch::autograd::AccumulateGrad"
    told = [{"name": "rf_id", "type": "uint64", "value": 7}]
    new = {"id": 3, "name": name, "ctrl_deps": 2, "inputs": inputs, "attrs": told}
    old = {"id": 4, "name": name, "input_shapes": [[10, 20]], "input_types": ["Tensor(float)"], "rf_id": 8}
    return {"schema": "1.0.1", "pid": 1, "nodes": [{"id": 1, "name": "[pytorch|profiler]", "attrs": []}, new, old]}


CPU, GPU = made_up.profile(SHAPES, steps=3, rank=0), made_up.profile(SHAPES, steps=3, rank=0, device=True)
UNSIZED = made_up.profile(SHAPES, steps=3)
for each in UNSIZED["traceEvents"]:
    shapes = each["args"].pop("Input Dims", None)
    each["args"]["Record function id"] = {"[[10]]": 7, "[[10, 20]]": 8}.get(str(shapes), 0)


@given(text=texts((CPU, GPU)))
@bounded
def test_an_odd_profile(text, tmp_path):
    (tmp_path / "trace.json").write_bytes(text)
    tried(["import", tmp_path / "trace.json", "--output", tmp_path / "w.json"])
    (tmp_path / "other.json").write_text(json.dumps(made_up.profile(SHAPES, steps=3, rank=1)))
    both = [tmp_path / "trace.json", tmp_path / "other.json"]
    tried(["import", *both, "--output", tmp_path / "w.json", "--points", tmp_path / "points.csv"])


@given(text=texts((execution_trace(),)))
@bounded
def test_an_odd_execution_trace(text, tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(UNSIZED))
    (tmp_path / "execution.json").write_bytes(text)
    words = ["import", tmp_path / "trace.json", "--execution-trace", tmp_path / "execution.json"]
    tried([*words, "--output", tmp_path / "w.json"])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> chakra_file.Trace:
    """A trace that gradsync exported."""
    folder: Path = tmp_path_factory.mktemp("planned")
    (folder / "w.json").write_text(workload([40, 80], [0.1, 0.2], forward=0.1).to_json())
    line = predict.Options(
        workload=str(folder / "w.json"), allreduce="a=1,b=1", schedule="wfbp", ranks=2, output=folder / "p.json"
    )
    predict.plan(line)
    export.export(
        export.Options(
            plan=folder / "p.json", format="chakra", workload=folder / "w.json", output=str(folder / "out"), turns=2
        )
    )
    return chakra_file.read(folder / "out.0.et")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> chakra_file.Trace:
    """A trace of the converter's, with a message and its kernel."""
    path: Path = tmp_path_factory.mktemp("converted") / "net.et"
    path.write_bytes(made_up_chakra.converted(GPU))
    return chakra_file.read(path)


VALUES: list[dict[str, Any]] = [
    *({"string_val": text} for text in ("", "x" * 70000, "[" * 900, "[{[]: 1}]", "-" * 60000 + "1", '{"name": 5}')),
    *({"int64_val": number} for number in (-1, 0, 7, (1 << 63) - 1, -(1 << 63))),
    *({"double_val": number} for number in (float("nan"), float("inf"), -1.0, 1e308)),
    {"uint64_val": (1 << 64) - 1},
    {"bool_val": True},
    {"int64_list": {"values": [1, 2]}},
    {"string_list": {"values": ["a"]}},
    {"bytes_val": b"\xff"},
]


@st.composite
def nodes_changed(draw: st.DrawFn, trace: chakra_file.Trace) -> bytes:
    """The bytes of the trace with one attribute or field changed, or bytes replaced or cut off."""
    messages = [type(each).FromString(each.SerializeToString()) for each in (trace.metadata, *trace.nodes)]
    how = draw(st.sampled_from(["attribute", "attribute", "field", "bytes", "cut"]))
    message = draw(st.sampled_from(messages))
    value = draw(st.sampled_from(VALUES))
    if how == "attribute" and message.attr:
        name = draw(st.sampled_from(sorted({*attributes(message), "tid", "stream", "rf_id"})))
        kept = [each for each in message.attr if each.name != name]
        del message.attr[:]
        message.attr.extend([*kept, Attribute(name=name, **value)])
    elif how == "field" and message is not messages[0]:
        number = draw(st.sampled_from([0, 1, 2, 1 << 40, (1 << 64) - 1]))
        field = draw(st.sampled_from(["id", "duration_micros", "ctrl_deps", "type", "shapes", "types", "name"]))
        if field == "ctrl_deps":
            message.ctrl_deps.append(number)
        elif field in ("shapes", "types"):
            setattr(message.inputs, field, value.get("string_val", "[[1]]"))
        elif field == "name":
            message.name = value.get("string_val", "torch::autograd::AccumulateGrad")
        else:
            setattr(message, field, number % 8 if field == "type" else number)
    content = bytearray(chakra_file.to_bytes(messages[0], messages[1:]))
    if how == "bytes":
        place = draw(st.integers(0, len(content) - 1))
        content[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(content[: draw(st.integers(0, len(content)))] if how == "cut" else content)


@given(data=st.data(), kind=st.sampled_from(["planned", "converted"]))
@bounded
def test_an_odd_chakra_trace(data, kind, planned, converted, tmp_path):
    trace = {"planned": planned, "converted": converted}[kind]
    (tmp_path / "odd.et").write_bytes(data.draw(nodes_changed(trace)))
    tried(["import", tmp_path / "odd.et", "--output", tmp_path / "w.json"])


def test_all_of_them_are_read_before_they_are_changed(planned, converted, tmp_path):
    words = ["--output", tmp_path / "w.json"]
    for trace in (planned, converted):
        (tmp_path / "right.et").write_bytes(chakra_file.to_bytes(trace.metadata, trace.nodes))
        assert not tried(["import", tmp_path / "right.et", *words])
    for content in (CPU, GPU):
        (tmp_path / "right.json").write_text(json.dumps(content))
        assert not tried(["import", tmp_path / "right.json", *words])
    (tmp_path / "right.json").write_text(json.dumps(UNSIZED))
    (tmp_path / "execution.json").write_text(json.dumps(execution_trace()))
    assert not tried(["import", tmp_path / "right.json", "--execution-trace", tmp_path / "execution.json", *words])
