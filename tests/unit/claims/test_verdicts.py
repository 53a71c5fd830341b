"""Verdicts follow their definitions, over bands of assumptions and on every rung; the ledger has them all."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import pytest

from gradsync import claims
from gradsync.errors import InputError
from made_up_claims import MEASURED, band_rows, repeated_rows, two_rows, verdict_of, write_paper, write_table


@pytest.mark.parametrize(("seconds", "expected"), [(1, claims.CONFIRMED), (3, claims.REFUTED)])
def test_schemes_are_mapped_and_the_claim_decided(tmp_path: Path, seconds: float, expected: str) -> None:
    write_table(tmp_path, *two_rows(seconds, 2))
    verdict = verdict_of(write_paper(tmp_path), tmp_path)
    assert (verdict.verdict, verdict.counted, verdict.holds, verdict.points) == (expected, True, int(seconds == 1), 1)
    assert verdict.margin == pytest.approx((2 - seconds) / 2)
    assert str(verdict.compared[0]) == f"{seconds} vs 2"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (None, "table t has not been made"),
        ([], "table t has no simulated rows"),
        ([{"rung": "measured"}], "table t has no simulated rows"),
        (two_rows(1, 2)[:1], "table t has no simulated row with scheme=synceasgd, model=net, nodes=4"),
        (two_rows(1, ""), "table t has no simulated iteration_seconds for scheme=synceasgd, model=net, nodes=4"),
        (two_rows(1, "NaN", note="too few cores"), "too few cores"),
        (two_rows(1, 2, nodes=8), "table t has no simulated row with scheme=wfbp, model=net, nodes=4"),
    ],
)
def test_without_its_values_a_claim_is_undecided(tmp_path: Path, rows: list | None, reason: str) -> None:
    if rows is not None:
        write_table(tmp_path, *rows)
    verdict = verdict_of(write_paper(tmp_path), tmp_path)
    assert (verdict.verdict, verdict.reason, verdict.margin) == (claims.UNDECIDED, reason, None)


def test_inputs_of_a_universal_claim_are_counted_in_the_table(tmp_path: Path) -> None:
    columns = ("rung", "layers", "losing", "instances")
    rows = [{"layers": 5, "losing": 0, "instances": 400}, {"layers": 20, "losing": 0, "instances": 70}]
    check = 'all(value("losing", layers=n) == 0 for n in [5, 20])'

    def decided() -> claims.Verdict:
        (tmp_path / "p").mkdir(exist_ok=True)
        with (tmp_path / "p" / "t.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows({"rung": "simulated", **row} for row in rows)
        return verdict_of(write_paper(tmp_path, check, universal=True), tmp_path)

    verdict = decided()
    assert (verdict.verdict, verdict.reason, verdict.inputs) == (
        claims.UNCONTRADICTED,
        "in 470 inputs that were tried",
        470,
    )
    assert claims.summary([verdict])[claims.CONFIRMED] == 0
    rows[1]["losing"] = 1
    assert (decided().verdict, decided().reason, decided().counted) == (claims.REFUTED, "", True)


@pytest.mark.parametrize(("x", "expected"), [(1, claims.HOLDS_AS_CHANGED), (3, claims.FAILS_AS_CHANGED)])
def test_what_was_changed_after_its_value_was_seen_is_not_counted(tmp_path: Path, x: float, expected: str) -> None:
    write_table(tmp_path, *two_rows(x, 2))
    changed = {"text": "In 1234567."}
    for universal in (False, True):
        verdict = verdict_of(write_paper(tmp_path, post_hoc=changed, universal=universal, note="more"), tmp_path)
        assert (verdict.verdict, verdict.counted, verdict.note) == (expected, False, "In 1234567. more")
    counts = claims.summary([verdict])
    assert counts[claims.CONFIRMED] == counts[claims.REFUTED] == counts[claims.UNCONTRADICTED] == 0
    missing = verdict_of(write_paper(tmp_path, post_hoc=changed, rungs=["measured"]), tmp_path)
    assert (missing.verdict, missing.counted) == (claims.UNDECIDED, False)
    only = write_paper(tmp_path, post_hoc={**changed, "rungs": ["simulated"]}, rungs=["simulated", "measured"])
    write_table(tmp_path, *two_rows(x, 2), *repeated_rows(x, 2, rung="measured"), columns=MEASURED)
    simulated, measured = claims.evaluate(only, tmp_path)
    assert (simulated.counted, measured.counted) == (False, True)
    assert (measured.verdict, measured.note) == (claims.CONFIRMED if x == 1 else claims.REFUTED, "")


def test_a_fitted_point_leaves_the_band_of_the_claim_it_was_fitted_to(tmp_path: Path) -> None:
    points = [*two_rows(3, 2, assumption="a stated, t_f 0"), *two_rows(1, 2, assumption="a fitted, t_f 0")]
    write_table(tmp_path, *points)
    assert verdict_of(write_paper(tmp_path), tmp_path).verdict == claims.UNDECIDED
    without = [{"point": "a fitted", "why": "fitted to it"}]
    verdict = verdict_of(write_paper(tmp_path, without=without), tmp_path)
    assert (verdict.verdict, verdict.holds, verdict.points) == (claims.REFUTED, 0, 1)
    assert verdict.reason == "holds at 0 of 1 points of the assumed band; 1 of 2 points are left out: fitted to it"
    # parts of a label are whole
    assert verdict_of(write_paper(tmp_path, without=[{"point": "a", "why": "w"}]), tmp_path).points == 2
    left_out = [*without, {"point": "a stated", "why": "too"}]
    nothing = verdict_of(write_paper(tmp_path, without=left_out), tmp_path)
    assert nothing.verdict == claims.UNDECIDED
    assert nothing.reason.startswith("no point of the assumed band is left: 1 of 2 points are left out: fitted to it")


def test_derived_rows_are_a_rung_of_their_own(tmp_path: Path) -> None:
    write_table(tmp_path, *two_rows(1, 2, rung="derived"), *two_rows(3, 2))
    verdicts = claims.evaluate(write_paper(tmp_path, rungs=["derived", "simulated"]), tmp_path)
    assert [(v.rung, v.verdict) for v in verdicts] == [("derived", claims.CONFIRMED), ("simulated", claims.REFUTED)]


def test_a_scheme_without_counterpart_is_undecided(tmp_path: Path) -> None:
    write_table(tmp_path, *two_rows(1, 2))
    verdict = verdict_of(write_paper(tmp_path, 'iter_time("tf_ps", "net", 4) > 1'), tmp_path)
    assert (verdict.verdict, "no counterpart" in verdict.reason) == (claims.UNDECIDED, True)


@pytest.mark.parametrize(
    ("pairs", "universal", "expected", "holds"),
    [
        ([(1, 2), (1.5, 2)], False, claims.CONFIRMED, 2),
        ([(3, 2), (4, 2)], False, claims.REFUTED, 0),
        ([(1, 2), (4, 2)], False, claims.UNDECIDED, 1),
        ([(1, 2), (4, 2)], True, claims.REFUTED, 1),
        ([(1, 2), (1, 2)], True, claims.UNCONTRADICTED, 2),
    ],
)
def test_a_claim_is_decided_over_the_whole_band(
    tmp_path: Path, pairs: list, universal: bool, expected: str, holds: int
) -> None:
    write_table(tmp_path, *band_rows(*pairs))
    verdict = verdict_of(write_paper(tmp_path, universal=universal), tmp_path)
    assert (verdict.verdict, verdict.holds, verdict.points) == (expected, holds, 2)
    assert verdict.reason.endswith(f"holds at {holds} of 2 points of the assumed band")
    assert verdict.margin == pytest.approx(min((y - x) / y for x, y in pairs))
    assert verdict.compared[0].left == (min(x for x, _ in pairs), max(x for x, _ in pairs))


@pytest.mark.parametrize(("x", "expected"), [(1, claims.CONFIRMED), (3, claims.UNDECIDED)])
def test_a_simulation_that_leaves_something_out_confirms_but_does_not_refute(tmp_path, x, expected):
    write_table(tmp_path, *two_rows(x, 2))
    verdict = verdict_of(write_paper(tmp_path, one_sided="a lower bound"), tmp_path)
    assert (verdict.verdict, verdict.reason) == (expected, "" if expected == claims.CONFIRMED else "a lower bound")
    assert verdict.margin == pytest.approx((2 - x) / 2)
    write_table(tmp_path, *repeated_rows(3, 2, rung="measured"), columns=MEASURED)
    measured = verdict_of(write_paper(tmp_path, one_sided="a lower bound", rungs=["measured"]), tmp_path)
    assert measured.verdict == claims.REFUTED


def test_one_missing_point_leaves_the_band_undecided(tmp_path: Path) -> None:
    write_table(tmp_path, *band_rows((1, 2), (1, "")))
    verdict = verdict_of(write_paper(tmp_path), tmp_path)
    assert (verdict.verdict, verdict.reason.endswith("(where b=1)")) == (claims.UNDECIDED, True)


def test_rows_without_assumption_hold_at_every_point_and_other_models_set_no_point(tmp_path: Path) -> None:
    wfbp = [{"scheme": "wfbp", "iteration_seconds": x, "assumption": f"b={x}"} for x in (1, 3)]
    other_model = [{"scheme": "wfbp", "iteration_seconds": 9, "assumption": "b=9", "model": "other"}]
    write_table(tmp_path, *wfbp, *other_model, two_rows(1, 2)[1])
    verdict = verdict_of(write_paper(tmp_path), tmp_path)
    assert (verdict.holds, verdict.points) == (1, 2)


def test_each_rung_has_its_own_verdict(tmp_path: Path) -> None:
    write_table(tmp_path, *two_rows(1, 2), *repeated_rows(3, 2, rung="measured"), columns=MEASURED)
    verdicts = claims.evaluate(write_paper(tmp_path, rungs=["simulated", "measured", "emulated"]), tmp_path)
    assert [(v.rung, v.verdict) for v in verdicts] == [
        ("simulated", claims.CONFIRMED),
        ("measured", claims.REFUTED),
        ("emulated", claims.UNDECIDED),
    ]


def test_what_holds_by_construction_counts_only_on_real_rungs(tmp_path: Path) -> None:
    write_table(tmp_path, *two_rows(1, 2), *repeated_rows(1, 2, rung="measured"), columns=MEASURED)
    path = write_paper(tmp_path, by_construction=True, why="our own model.", rungs=["simulated", "measured"])
    verdicts = [(v.verdict, v.counted, v.note) for v in claims.evaluate(path, tmp_path)]
    assert verdicts == [(claims.CONSTRUCTED, False, "our own model."), (claims.CONFIRMED, True, "")]
    write_table(tmp_path, *band_rows((1, 2), (3, 2)))
    assert claims.evaluate(path, tmp_path)[0].verdict == claims.BROKEN
    write_table(tmp_path, *two_rows(1, 2, rung="derived"))
    path = write_paper(tmp_path, by_construction=True, why="our own model.", rungs=["derived"])
    assert verdict_of(path, tmp_path).verdict == claims.CONSTRUCTED


def test_a_table_without_rung_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "t.csv").write_text("algorithm,nodes,x\nring,2,1.0\nring,4.0,3.0\n")
    verdicts = claims.evaluate(
        write_paper(tmp_path, 'value("x", nodes=4) > 2', rungs=["simulated", "measured"]), tmp_path
    )
    assert [v.verdict for v in verdicts] == [claims.CONFIRMED, claims.UNDECIDED]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ('value("iteration_seconds", model="net") > 0', "2 rows have model=net"),
        ('value("seconds", scheme="wfbp") > 0', "no column 'seconds'"),
        ('value("efficiency", size=1) > 0', "no column 'size'"),
        ('value("model", scheme="wfbp") > 0', "is not a number: 'net'"),
    ],
)
def test_a_check_that_does_not_fit_its_table_is_an_error(tmp_path: Path, check: str, message: str) -> None:
    write_table(tmp_path, *two_rows(1, 2))
    path = write_paper(tmp_path, check)
    with pytest.raises(InputError, match="claim 'c', check") as error:
        claims.evaluate(path, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize("row", ["1", "1,2,3"], ids=["too few", "too many"])
def test_a_ragged_table_is_an_error(tmp_path: Path, row: str) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "t.csv").write_text(f"a,b\n1,2\n{row}\n")
    with pytest.raises(InputError, match=r"t\.csv, row 3: not as many cells as columns"):
        claims.evaluate(write_paper(tmp_path), tmp_path)


def test_the_ledger_has_every_rung_of_every_claim(tmp_path: Path) -> None:
    write_table(tmp_path, *band_rows((1, 2), (1.5, 2)))
    path = write_paper(tmp_path, rungs=["simulated", "measured"], note="a remark")
    verdicts = claims.evaluate(path, tmp_path)
    ledger = json.loads(claims.ledger_json(verdicts))
    assert ledger["version"] == claims.VERSION
    assert ledger["summary"][claims.CONFIRMED] == ledger["summary"][claims.UNDECIDED] == 1
    assert ledger["verdicts"][0]["compared"][0]["left"] == [1, 1.5]
    assert math.isclose(ledger["verdicts"][0]["margin"], 0.25)


def test_both_sides_of_a_comparison_are_told_over_the_band(tmp_path: Path) -> None:
    write_table(tmp_path, *band_rows((1, 2), (1.5, 4), (1.25, 3)))
    (compared,) = verdict_of(write_paper(tmp_path), tmp_path).compared
    assert (compared.left, compared.right) == ((1.0, 1.5), (2.0, 4.0))
    assert str(compared) == "1 to 1.5 vs 2 to 4"


def test_a_ledger_holds_no_number_that_json_does_not_have(tmp_path: Path) -> None:
    write_table(tmp_path, *two_rows(1, 2))
    (verdict,) = claims.evaluate(write_paper(tmp_path), tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        claims.ledger_json([dataclasses.replace(verdict, margin=math.nan)])
