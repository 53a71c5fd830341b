"""What is made of plans and of configurations: simulated traces, drawings, buckets of DDP, tables, figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_lines import LINE, workload_json


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
    buckets = json.loads(run("export", path, "--json").out)
    assert buckets.pop("use").startswith("DistributedDataParallel(model, bucket_cap_mb_list=")
    assert buckets == {"plan": "wfbp", "buckets": 3, "bucket_cap_mb_list": [4 / 2**20, 3.0, 8 / 2**20], "lost": []}
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
