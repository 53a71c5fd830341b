"""Two runs and two folders of results, made up: what is told to differ, and what no timing explains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gradsync import cli
from gradsync.claims import CONFIRMED, REFUTED, Verdict, ledger_json
from gradsync.comparison import compare_results, compare_runs
from gradsync.errors import InputError
from gradsync.files.results import Result

BLOCKS = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]
TABLE = """rung,scheme,nodes,iteration_seconds
published,wfbp,4,0.5
derived,wfbp,4,0.25
simulated,wfbp,4,2.0
measured,wfbp,4,0.1
"""


def run(folder: Path, scheme: str = "wfbp", factor: float = 1.0, **changes: object) -> Path:
    blocks = [block * factor for block in BLOCKS]
    fields = {
        "rung": "measured",
        "scheme": scheme,
        "model": "lenet5",
        "ranks": 2,
        "settings": {"batch": 8, "lr": 0.1, "plan": "p1"},
        "summary": {"accuracy": 0.9, "iteration_seconds": 0.125 * factor},
        "samples": {"iteration_seconds": blocks},
        "conformance": {"parameters_sha256": "w1"},
        **changes,
    }
    return Result.model_validate(fields).save(folder).parent


def results(folder: Path, table: str = TABLE, kind: str = CONFIRMED, **changes: object) -> Path:
    run(folder / "runs" / "train" / "lenet5-2" / "wfbp", **changes)
    (folder / "tables" / "toy").mkdir(parents=True)
    (folder / "tables" / "toy" / "fig1.csv").write_text(table)
    verdict = Verdict("toy", "fast", "Fig. 1", "it is fast", "fig1", "measured", kind, "", True)
    (folder / "claims.json").write_text(ledger_json([verdict]))
    return folder


def test_runs_of_one_launch_are_compared_pair_by_pair(tmp_path):
    told = compare_runs(run(tmp_path / "launch" / "wfbp"), run(tmp_path / "launch" / "optimal", "optimal", 0.8))
    assert (told["settings"], told["planned"], told["parameters"]) == ({}, "same", "same")
    assert told["final"] == {"accuracy": [0.9, 0.9]}
    (ratio,) = told["timed"]
    assert (ratio["ratio"], ratio["low"], ratio["high"]) == pytest.approx((0.8, 0.8, 0.8))


def test_runs_of_two_launches_have_no_pairs(tmp_path):
    (ratio,) = compare_runs(run(tmp_path / "one" / "wfbp"), run(tmp_path / "two" / "wfbp", factor=0.8))["timed"]
    assert ratio["ratio"] == pytest.approx(0.8)
    assert ratio["low"] < 0.7 < 0.9 < ratio["high"]


def test_settings_plans_and_parameters_that_differ_are_told(tmp_path):
    changed = {"settings": {"batch": 16, "plan": "p2", "size": 32}, "conformance": {}, "samples": {}}
    told = compare_runs(run(tmp_path / "wfbp"), run(tmp_path / "other", **changed))
    assert told["settings"] == {"batch": "8 -> 16", "lr": "0.1 -> -", "size": "- -> 32"}
    assert (told["planned"], told["parameters"], told["timed"]) == ("different", "unknown", [])


def test_results_that_differ_in_times_alone_are_alike(tmp_path):
    first = results(tmp_path / "first")
    table = TABLE.replace("measured,wfbp,4,0.1", "measured,wfbp,4,0.3").replace("wfbp,4,2.0", "wfbp,4,1.0")
    told = compare_results(first, results(tmp_path / "second", table, REFUTED, factor=3.0))
    assert told == {
        "verdicts": [{"claim": "toy: fast", "rung": "measured", "first": CONFIRMED, "second": REFUTED}],
        "runs": 1,
        "planned_otherwise": [],
        "tables": 1,
        "simulated_otherwise": {"tables/toy/fig1.csv": 0.5},
        "unexplained": [],
    }
    assert cli.main(["compare", str(first), str(tmp_path / "second")]) == 0


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"conformance": {"parameters_sha256": "w2"}}, "runs/train/lenet5-2/wfbp: other parameters"),
        ({"settings": {"batch": 8, "lr": 0.2, "plan": "p1"}}, "runs/train/lenet5-2/wfbp: settings: lr 0.1 -> 0.2"),
        ({"table": TABLE.replace("0.25", "0.26")}, "tables/toy/fig1.csv: row 2, iteration_seconds: 0.25 and 0.26"),
        ({"table": TABLE.replace("derived", "simulated")}, "tables/toy/fig1.csv: row 2, rung: derived and simulated"),
        ({"table": TABLE.replace("derived,wfbp,4,0.25\n", "")}, "row 2"),
        ({"table": TABLE.replace("simulated,wfbp,4,2.0\n", "")}, "tables/toy/fig1.csv: 3 and 2 rows"),
        ({"table": TABLE.replace("simulated,wfbp,4", "simulated,wfbp,8")}, "row 3, nodes: 4 and 8"),
        (
            {"table": TABLE.replace("measured,wfbp", "measured,single")},
            "1 and 0 rows of rung measured, scheme wfbp, nodes 4",
        ),
        ({"table": TABLE + "measured,wfbp,4,0.1\n"}, "1 and 2 rows of rung measured, scheme wfbp, nodes 4"),
    ],
)
def test_what_no_timing_explains_is_named_and_ends_with_1(tmp_path, capsys, changed, wanted):
    first, second = results(tmp_path / "first"), results(tmp_path / "second", **changed)
    told = compare_results(first, second)
    assert len(told["unexplained"]) == 1
    assert wanted in told["unexplained"][0]
    assert cli.main(["compare", str(first), str(second), "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == told
    assert "1 difference(s) that no timing explains" in shown.err


def test_a_row_that_has_numbers_in_one_run_alone_is_named(tmp_path):
    """As an emulated row has none on a machine that can't make a testbed."""
    head = "rung,scheme,launch,iteration_seconds,note\n"
    first = results(tmp_path / "first", f"{head}emulated,wfbp,net-4,0.1,\nemulated,single,net-4,0.2,\n")
    second = results(tmp_path / "second", f"{head}emulated,single,net-4,0.3,\nemulated,wfbp,,,no testbed\n")
    (difference,) = compare_results(first, second)["unexplained"]
    assert difference == "tables/toy/fig1.csv: 1 and 0 rows of rung emulated, scheme wfbp"


def test_another_plan_explains_other_parameters(tmp_path):
    changed = {"settings": {"batch": 8, "lr": 0.1, "plan": "p2"}, "conformance": {"parameters_sha256": "w2"}}
    told = compare_results(results(tmp_path / "first"), results(tmp_path / "second", **changed))
    assert (told["planned_otherwise"], told["unexplained"]) == (["runs/train/lenet5-2/wfbp"], [])


def test_files_of_one_folder_alone_are_named(tmp_path):
    first, second = results(tmp_path / "first"), results(tmp_path / "second")
    shutil.rmtree(second / "runs")
    assert compare_results(first, second)["unexplained"] == [
        f"runs/train/lenet5-2/wfbp/result.json: only in {first}",
    ]


def test_what_is_no_run_and_no_results_is_refused(tmp_path, capsys):
    first = results(tmp_path / "first")
    with pytest.raises(InputError, match="give two runs, or two folders of results"):
        compare_results(first, tmp_path)
    assert cli.main(["compare", str(first), str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    (first / "claims.json").write_text("{")
    assert cli.main(["compare", str(first), str(first)]) == 2
