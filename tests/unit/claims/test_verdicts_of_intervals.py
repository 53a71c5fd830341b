"""Verdicts on cells with intervals: noise and too few repeats decide nothing, pairs do."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gradsync import claims
from gradsync.claims.expressions import Walk
from gradsync.claims.published import load
from gradsync.errors import InputError
from gradsync.papers.repeats import cells
from made_up_claims import FASTER, MEASURED, repeated_rows, two_rows, verdict_of, write_paper, write_table

PAPER = Path(__file__).parents[3] / "config/papers/mgwfbp/published.yaml"


@pytest.mark.parametrize(
    ("rung", "low", "expected"),
    [
        ("emulated", 1.8, claims.UNDECIDED),  # 2.2 against 2, which may be 1.8 against 2.1
        ("emulated", 2.05, claims.UNDECIDED),
        ("emulated", 2.11, claims.REFUTED),
        ("simulated", 1.8, claims.REFUTED),  # a band is not an interval of measurements
    ],
)
def test_noise_decides_nothing(tmp_path: Path, rung: str, low: float, expected: str) -> None:
    first, second = two_rows(2.2, 2, rung=rung)
    first |= {"iteration_seconds_low": low, "iteration_seconds_high": 2.5, "repeats": 6}
    second |= {"iteration_seconds_low": 1.9, "iteration_seconds_high": 2.1, "repeats": 6}
    write_table(tmp_path, first, second, columns=MEASURED)
    verdict = verdict_of(write_paper(tmp_path, rungs=[rung]), tmp_path)
    assert verdict.verdict == expected
    assert ("95 % intervals" in verdict.reason) == (expected == claims.UNDECIDED)
    assert verdict.margin == pytest.approx(-0.1)


@pytest.mark.parametrize("rung", ["emulated", "measured"])
def test_what_has_no_interval_decides_nothing_and_says_how_many_repeats_would(tmp_path: Path, rung: str) -> None:
    write_table(tmp_path, *repeated_rows(1, 2, rung=rung, moments=(1.0, 1.1, 1.2, 1.0, 0.9)), columns=MEASURED)
    verdict = verdict_of(write_paper(tmp_path, rungs=[rung]), tmp_path)
    assert (verdict.verdict, verdict.counted) == (claims.UNDECIDED, True)
    assert verdict.reason == (
        "no interval of iteration_seconds for scheme=wfbp, model=net, nodes=4 (and of 1 others): "
        "5 repeats, 6 are needed"
    )
    assert verdict.margin == pytest.approx(0.5)  # as far as it goes
    write_table(tmp_path, *repeated_rows(1, 2, rung=rung), columns=MEASURED)
    assert verdict_of(write_paper(tmp_path, rungs=[rung]), tmp_path).verdict == claims.CONFIRMED


def test_pairs_decide_what_intervals_do_not(tmp_path: Path) -> None:
    asleep = (1.0, 5.0, 1.0, 0.5, 3.0, 1.0)
    for first, second, expected in (
        ("a", "a", claims.CONFIRMED),
        ("a", "b", claims.UNDECIDED),
        ("", "", claims.UNDECIDED),
    ):
        rows = repeated_rows(1, 1.1, moments=asleep, rung="measured")
        rows = [row | {"launch": launch} for row, launch in zip(rows, (first, second), strict=True)]
        write_table(tmp_path, *rows, columns=MEASURED)
        verdict = verdict_of(write_paper(tmp_path, rungs=["measured"]), tmp_path)
        assert verdict.verdict == expected, (first, second)
        assert ("95 % intervals" in verdict.reason) == (expected == claims.UNDECIDED)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({}, "the table does not tell of how many repeats"),
        ({"repeats": 5, "iteration_seconds_low": 0.9, "iteration_seconds_high": 1.1}, "5 repeats, 6 are needed"),
        ({"iteration_seconds_low": 0.9, "iteration_seconds_high": 1.1}, "the table does not tell of how many repeats"),
        ({"repeats": 9, "iteration_seconds_low": 0.9}, "nodes=4"),
        ({"repeats": 9, "iteration_seconds_low": "nan", "iteration_seconds_high": "nan"}, "nodes=4"),
        ({"repeats": 9, "iteration_seconds_low": "-inf", "iteration_seconds_high": "inf"}, "nodes=4"),
    ],
)
def test_odd_cells_are_no_certainty(tmp_path: Path, cells: dict, reason: str) -> None:
    first, second = repeated_rows(1, 2, rung="measured")
    write_table(
        tmp_path, {"scheme": "wfbp", "iteration_seconds": 1, "rung": "measured", **cells}, second, columns=MEASURED
    )
    verdict = verdict_of(write_paper(tmp_path, rungs=["measured"]), tmp_path)
    assert verdict.verdict == claims.UNDECIDED
    assert verdict.reason.startswith("no interval of iteration_seconds for scheme=wfbp")
    assert verdict.reason.endswith(reason)
    columns = tuple(column for column in MEASURED if not column.endswith(("_low", "_high", "_samples", "repeats")))
    bare = {"rung": "measured", "iteration_seconds": 1, "launch": "a"}
    write_table(tmp_path, {**bare, "scheme": "wfbp"}, {**bare, "scheme": "single"}, columns=columns)
    assert verdict_of(write_paper(tmp_path, rungs=["measured"]), tmp_path).verdict == claims.UNDECIDED
    assert first["repeats"] == 6


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"iteration_seconds_samples": "[1, 2"}, "is no list of numbers: '[1, 2'"),
        ({"iteration_seconds_samples": "[]"}, "is no list of numbers"),
        ({"iteration_seconds_samples": "[NaN, 1, 1, 1, 1, 1]"}, "is no list of numbers"),
        ({"iteration_seconds_samples": "[2, 2, 2, 2, 2, 2]"}, "is 1, the median of its repeats 2"),
        (
            {"repeats": 6, "iteration_seconds_low": 1.5, "iteration_seconds_high": 2},
            "is 1, outside its interval from 1.5 to 2",
        ),
        ({"repeats": "many"}, "repeats of scheme=wfbp, model=net, nodes=4 is not a number: 'many'"),
    ],
)
def test_a_cell_that_contradicts_itself_is_an_error(tmp_path: Path, cells: dict, message: str) -> None:
    first = {"scheme": "wfbp", "iteration_seconds": 1, "rung": "measured", **cells}
    write_table(tmp_path, first, repeated_rows(1, 2, rung="measured")[1], columns=MEASURED)
    with pytest.raises(InputError, match="claim 'c', check") as error:
        claims.evaluate(write_paper(tmp_path, rungs=["measured"]), tmp_path)
    assert message in str(error.value)


def test_columns_that_are_exact_need_no_interval(tmp_path: Path) -> None:
    check = 'value("nodes", scheme="wfbp") == 4'
    write_table(tmp_path, *two_rows(1, 2, rung="measured"), *two_rows(1, 2))
    assert verdict_of(write_paper(tmp_path, check, rungs=["measured"]), tmp_path).verdict == claims.UNDECIDED
    exact = {"t": ["nodes"]}
    assert verdict_of(write_paper(tmp_path, check, exact, rungs=["measured"]), tmp_path).verdict == claims.CONFIRMED
    with pytest.raises(InputError, match="claim 'c', check: exact: the table t has no column 'knots'"):
        claims.evaluate(write_paper(tmp_path, check, {"t": ["nodes", "knots"]}, rungs=["measured"]), tmp_path)


def test_a_part_that_is_known_decides_where_it_can(tmp_path: Path) -> None:
    few = repeated_rows(1, 2, rung="measured", moments=(1.0, 1.0))
    rows = [*few, *repeated_rows(3, 2, rung="measured", nodes=8)]
    write_table(tmp_path, *rows, columns=MEASURED)
    check = f'{FASTER} and iter_time("wfbp", "net", 8) < iter_time("synceasgd", "net", 8)'
    verdict = verdict_of(write_paper(tmp_path, check, rungs=["measured"]), tmp_path)
    assert (verdict.verdict, verdict.margin) == (claims.REFUTED, pytest.approx(-0.5))
    assert verdict.compared[0].comparison == "iter_time('wfbp', 'net', 8) < iter_time('synceasgd', 'net', 8)"
    either = verdict_of(write_paper(tmp_path, check.replace(" and ", " or "), rungs=["measured"]), tmp_path)
    assert either.verdict == claims.UNDECIDED


def test_one_point_of_the_band_that_is_not_known_leaves_the_claim_open(tmp_path: Path) -> None:
    few = repeated_rows(1, 2, rung="measured", moments=(1.0, 1.0), assumption="b=1")
    known = repeated_rows(1, 2, rung="measured", assumption="b=2")
    for rows in ([*few, *known], [*known, *few]):
        write_table(tmp_path, *rows, columns=MEASURED)
        verdict = verdict_of(write_paper(tmp_path, rungs=["measured"]), tmp_path)
        assert (verdict.verdict, verdict.holds, verdict.points) == (claims.UNDECIDED, 2, 2)
        assert "2 repeats, 6 are needed" in verdict.reason
    write_table(tmp_path, *known, *repeated_rows(1, 2, rung="measured", assumption="b=1"), columns=MEASURED)
    assert verdict_of(write_paper(tmp_path, rungs=["measured"]), tmp_path).verdict == claims.CONFIRMED


def looked_up(paper_file: Path, rung: str) -> dict[str, dict[tuple, dict]]:
    """By table and keys, a row with every cell that the claims of a paper look up on a rung."""
    rows: dict[str, dict[tuple, dict]] = {}
    paper = load(paper_file)
    rng = np.random.default_rng(1)
    for claim in paper.claims:
        if rung not in claim.rungs:
            continue

        def lookup(column: str, keys: dict, table: str = claim.table) -> float:
            our_keys = {key: paper.schemes[value] if key == "scheme" else value for key, value in keys.items()}
            row = rows.setdefault(table, {}).setdefault(tuple(sorted(our_keys.items())), {**our_keys, "rung": rung})
            row.setdefault(column, float(rng.uniform(0.1, 0.9)))
            return row[column]

        Walk(lookup).run(claim.check)
    return rows


@pytest.mark.parametrize("name", ["mgwfbp", "bml_bcube", "ascwfbp"])
@pytest.mark.parametrize("moments", [(), (1.0, 1.01), (1.0, 1.01, 0.99, 1.0, 1.0), (1.0, 1.01, 0.99, 1.0, 1.0, 1.0)])
def test_no_claim_of_any_paper_is_decided_without_an_interval(tmp_path: Path, name: str, moments: tuple) -> None:
    paper_file = PAPER.parents[1] / name / "published.yaml"
    for table_name, by_keys in looked_up(paper_file, "emulated").items():
        rows = []
        for row in by_keys.values():
            numbers = [column for column in row if isinstance(row[column], float) and column not in ("nodes", "batch")]
            more = {
                key: cell for column in numbers for key, cell in cells(column, row[column] * np.array(moments)).items()
            }
            rows.append({**row, **more, "launch": table_name, "repeats": len(moments)})
        columns = list(dict.fromkeys(column for row in rows for column in row))
        path = tmp_path / load(paper_file).meta.key / f"{table_name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
    verdicts = [v for v in claims.evaluate(paper_file, tmp_path) if v.rung == "emulated"]
    assert verdicts
    decided = {v.claim for v in verdicts if v.verdict != claims.UNDECIDED}
    if len(moments) < 6:
        assert not decided
        assert all("no interval of" in v.reason for v in verdicts), [v.reason for v in verdicts]
    else:
        assert len(decided) > 0.5 * len(verdicts)
