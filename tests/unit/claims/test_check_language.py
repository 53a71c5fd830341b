"""The language of checks: it refuses what it must, and margins follow their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsync.claims.expressions import Missing, Span, Walk
from gradsync.errors import InputError


def no_cells(column: str, keys: dict) -> float:
    raise AssertionError(f"{column} {keys} was looked up")


def margin(check: str) -> float:
    return Walk(no_cells).run(check).margin


@pytest.mark.parametrize(
    ("check", "piece"),
    [
        ("().__class__ == 1", "().__class__"),
        ('__import__("os").system("true") == 0', "__import__('os').system('true')"),
        ("(lambda: 1)() == 1", "(lambda: 1)()"),
        ("open(1) == 1", "open(1)"),
        ("n == 1", "n"),
        ("2 ** 9 == 512", "2 ** 9"),
        ("[1][0] == 1", "[1][0]"),
        ("True == 1", "True"),
        ('"a" == "a"', "'a'"),
        ("(1 if 1 < 2 else 0) == 1", "1 if 1 < 2 else 0"),
        ("1 in [1]", "1 in [1]"),
        ("1 + 1", "1 + 1"),
        ("(1 < 2) + 1 > 0", "1 < 2"),
        ("all(n > 0 for n in [1] if n > 1)", "for n in [1] if n > 1"),
        ("all(n > 0 for n in range(9))", "for n in range(9)"),
        ("all(n > 0 for n in [])", "for n in []"),
        ("all([1 < 2])", "all([1 < 2])"),
        ("isclose(1, 2, rel=3)", "isclose(1, 2, rel=3)"),
        ("min(1) == 1", "min(1)"),
        ('value(**{"a": 1}) > 0', "value(**{'a': 1})"),
        ('value("a", *["b"]) > 0', "value('a', *['b'])"),
        ("(n := 1) == 1", "(n := 1)"),
        ("1e999 > 0", "1e309"),
        ("1j == 1", "1j"),
    ],
)
def test_the_language_is_closed(check: str, piece: str) -> None:
    with pytest.raises(InputError) as error:
        margin(check)
    assert f"`{piece}`" in str(error.value)


@pytest.mark.parametrize("check", ["1 <", "a = 1", "import os", "", "1 < 2; 2 < 3", "-" * 900 + "1 < 2", "\x00"])
def test_what_is_no_expression_is_refused(check: str) -> None:
    with pytest.raises(InputError):
        margin(check)


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("1 <= 2", 0.5),
        ("3 <= 2", -0.5),
        ("2 <= 2", 0.0),
        ("3 > 2", 0.5),
        ("2 == 2", 0.0),
        ("3 == 2", -0.5),
        ("3 != 2", 0.5),
        ("1 < 2 < 8", 0.5),
        ("1 <= 2 and 1 <= 4", 0.5),
        ("1 <= 2 or 1 <= 4", 0.75),
        ("not 3 <= 2", 0.5),
        ("isclose(1.9, 2, 0.1)", 0.05),
        ("isclose(2.4, 2, 0.1)", -0.1),
        ("all(n <= 8 for n in [2, 4])", 0.5),
        ("any(n <= 8 for n in [2, 4])", 0.75),
        ("all(n * m <= 8 for n in [1, 2] for m in [n, 2])", 0.5),
        ("max(1, 2, abs(-3)) + log2(8) / 2 - -1 <= 11", 0.5),
        ("1 >= 0", 1.0),
        ("0 >= 0", 0.0),
    ],
)
def test_margins(check: str, expected: float) -> None:
    assert margin(check) == pytest.approx(expected)


@pytest.mark.parametrize("check", ["2 < 2", "2 > 2", "2 != 2", "not 2 <= 2", "not 2 == 2", "0 < 0", "1 <= 2 and 2 < 2"])
def test_a_tie_that_fails_has_a_negative_margin(check: str) -> None:
    assert -1e-12 < margin(check) < 0
    assert margin(f"not ({check})") > 0


NUMBERS = st.floats(0, 1e6).map(lambda x: round(x, 3))


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_sign_of_the_margin_is_the_truth(x: float, y: float, z: float) -> None:
    for check in (
        f"{x} < {y} <= {z}",
        f"not {x} < {y}",
        f"{x} == {y} or {y} != {z}",
        f"{x} >= {y} and not ({y} > {z} or {x} == {z})",
        f"any(n > {x} for n in [{y}, {z}])",
    ):
        python = check.replace(f"any(n > {x} for n in [{y}, {z}])", str(y > x or z > x))
        assert (margin(check) >= 0) is eval(python), check


@pytest.mark.parametrize(
    ("check", "least", "most"),
    [
        ('value("x", at=1) <= 2', 0.25, 0.75),
        ('value("x", at=1) + value("x", at=1) <= 2', -0.5, 0.5),
        ('1 / value("x", at=1) >= 1', 1 / 1.5 - 1, 1.0),
        ('-value("x", at=1) <= 0', 1.0, 1.0),
        ('abs(value("x", at=1) - 1) <= 1', 0.5, 1.0),
        ('isclose(value("x", at=1), 1, 0.1)', -0.4, 0.1),
        ('value("x", at=1) == 1', -0.5, 0.0),
        ('not value("x", at=1) <= 2', -0.75, -0.25),
        ('value("x", at=1) <= 2 or 1 <= 4', 0.75, 0.75),
        ('value("x", at=1) <= 2 and 1 <= 1.5', 0.25, 1 / 3),
    ],
)
def test_where_cells_are_intervals_so_is_the_margin(check: str, least: float, most: float) -> None:
    truth = Walk(lambda column, keys: Span(1.0, 0.5, 1.5)).run(check)
    assert (truth.least, truth.most) == pytest.approx((least, most))
    assert truth.known == ((least >= 0) == (most >= 0))


@given(*(st.tuples(NUMBERS, NUMBERS, NUMBERS).map(sorted) for _ in range(2)), st.floats(0, 1), st.floats(0, 1))
def test_what_is_known_holds_at_every_point_of_the_intervals(x: list, y: list, at_x: float, at_y: float) -> None:
    spans = {"x": x, "y": y}
    inside = {"x": x[0] + at_x * (x[2] - x[0]), "y": y[0] + at_y * (y[2] - y[0])}
    for check in ('value("x") <= 2 * value("y") - 1', 'isclose(value("x"), value("y") + 1, 0.2)', 'value("x") != 3'):
        truth = Walk(lambda column, keys: Span(spans[column][1], spans[column][0], spans[column][2])).run(check)
        inside_truth = Walk(lambda column, keys: inside[column]).run(check)
        assert not truth.known or abs(inside_truth.margin) < 1e-9 or (inside_truth.margin >= 0) == (truth.margin >= 0)


def test_what_may_divide_by_zero_has_no_value() -> None:
    with pytest.raises(Missing, match="may be 0"):
        Walk(lambda column, keys: Span(1.0, -1.0, 2.0)).run('1 / value("x") <= 1')


def test_lookups_get_column_and_keys() -> None:
    lookups = []

    def lookup(column: str, keys: dict) -> float:
        lookups.append((column, keys))
        return 1.0

    check = 'all(speedup("wfbp", m, 2 * n) == value("b", case=m) for m in ["net"] for n in [4])'
    truth = Walk(lookup).run(check)
    assert lookups == [("speedup", {"scheme": "wfbp", "model": "net", "nodes": 8.0}), ("b", {"case": "net"})]
    assert truth.decides.at == "m=net, n=4"


def test_division_by_zero_is_a_missing_value() -> None:
    with pytest.raises(Missing, match="1 / 0 has no value"):
        margin("1 / 0 > 0")
