"""The language of checks: a closed grammar of numbers, comparisons and table cells, walked and never run as code.

    numbers  "text"  + - * /  < <= > >= == !=  and or not  min max abs log2  isclose(x, y, rel)
    all(CHECK for n in [4, 8])  any(CHECK for n in [4, 8])
    iter_time(scheme, model, n)  exposed_comm(...)  speedup(...)  efficiency(...)
    value("column", key=value, ...)    the cell of a column, in the row that other columns single out

A check has a margin, the relative slack: 0 or more exactly if it holds. `and` and `all` take the smallest of their
parts, `or` and `any` the largest, `not` turns it round; isclose has rel - |x - y| / |y|. If cells are known within
intervals only, so is the margin. Cells that were repeated in one launch are compared pair by pair, in all arithmetic
between them; others may each be anywhere in their intervals (`statistics/spans.py`). What holds against the smallest of
several holds against each: the sides of such a comparison are compared one by one, since the smallest of noisy numbers
is too small. A cell without an interval leaves its comparison open, and so the check, unless another part of it
decides.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gradsync.errors import InputError
from gradsync.statistics import spans
from gradsync.statistics.spans import MayBeZero, Span

Key = float | str
Keys = dict[str, Key]


Lookup = Callable[[str, Keys], float | Span]

COLUMN_OF = {
    "iter_time": "iteration_seconds",
    "exposed_comm": "exposed_communication_seconds",
    "speedup": "speedup",
    "efficiency": "efficiency",
}
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.Div: spans.divided,
}
EXTREMES: dict[str, Callable[..., Any]] = {"min": min, "max": max}
FUNCTIONS: dict[str, Callable[..., float]] = {**EXTREMES, "abs": abs, "log2": math.log2}
# symbol, slack before it is made relative, and whether a slack of 0 fails
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[float, float], float], bool]] = {
    ast.LtE: ("<=", lambda x, y: y - x, False),
    ast.GtE: (">=", lambda x, y: x - y, False),
    ast.Eq: ("==", lambda x, y: -abs(x - y), False),
    ast.Lt: ("<", lambda x, y: y - x, True),
    ast.Gt: (">", lambda x, y: x - y, True),
    ast.NotEq: ("!=", lambda x, y: abs(x - y), True),
}
# how a comparison with several numbers joins those with each: x < min(a, b) if both, x < max(a, b) if one of them
JOINED: dict[tuple[type[ast.cmpop], str], Callable[..., Any]] = {
    **{(op, each): EXTREMES[each] for op in (ast.Lt, ast.LtE) for each in EXTREMES},
    **{(op, each): EXTREMES[{"min": "max", "max": "min"}[each]] for op in (ast.Gt, ast.GtE) for each in EXTREMES},
}
MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
TIE = -sys.float_info.epsilon  # the margin of what fails by equality alone


class Missing(Exception):  # noqa: N818  not an error: a check without its values is undecided
    """A value that a check needs is not there; the text has the reason."""


class Comparison(NamedTuple):
    """One comparison of a check, and the values of the loops around it."""

    text: str
    at: str


class Truth(NamedTuple):
    """A check holds if margin >= 0; `decides` is the comparison that the margin comes from.

    If the cells lie elsewhere in their intervals, the margin is `least` to `most`; without intervals, -inf to inf.
    """

    margin: float
    decides: Comparison
    least: float
    most: float

    @property
    def known(self) -> bool:
        """Whether the check holds, or does not, all over the intervals of its cells."""
        return (self.least >= 0) == (self.most >= 0)


class Walk:
    """One walk over a check; `lookup(column, keys)` gives the cells.

    `sides` collects the two numbers of each comparison, `inputs` how many inputs its cells are for.
    """

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.sides: dict[Comparison, tuple[float, float]] = {}
        self.inputs: dict[Comparison, int] = {}

    def run(self, check: str) -> Truth:
        """Raises InputError with the piece that isn't of the language, Missing if a value is not there."""
        try:
            return self._truth(ast.parse(check.strip(), mode="eval").body, {})
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"the check can't be read: {error or type(error).__name__}") from None

    def _truth(self, node: ast.expr, names: Keys) -> Truth:
        match node:
            case ast.Compare():
                return self._chain(node, names)
            case ast.BoolOp(op=op, values=values):
                parts = [self._truth(value, names) for value in values]
                return _joined(parts, min if isinstance(op, ast.And) else max)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                margin, decides, least, most = self._truth(operand, names)
                return Truth(-margin or TIE, decides, -most or TIE, -least or TIE)
            case ast.Call(func=ast.Name(id="isclose"), args=[left, right, rel], keywords=[]):
                x, y, tolerance = (self._number(side, names) for side in (left, right, rel))
                bound = tolerance.value
                about = Comparison(ast.unparse(node), shown(names))
                return self._noted(_compared(about, x, y, lambda x, y: bound - _relative(abs(x - y), x, y)), x, y)
            case ast.Call(func=ast.Name(id="all" | "any" as how), args=[ast.GeneratorExp() as loop], keywords=[]):
                parts = [self._truth(loop.elt, bound) for bound in self._bound(loop.generators, names)]
                return _joined(parts, min if how == "all" else max)
        raise _refused(node, "a comparison, and, or, not, isclose(x, y, rel), all(... for ...) or any(... for ...)")

    def _chain(self, node: ast.Compare, names: Keys) -> Truth:
        links = []
        for (left, right), op in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            if type(op) not in COMPARISONS:
                raise _refused(node, "a comparison by < <= > >= == !=")
            symbol, slack, strict = COMPARISONS[type(op)]
            margin = partial(_slack, slack, strict)
            about = Comparison(f"{ast.unparse(left)} {symbol} {ast.unparse(right)}", shown(names))
            lefts, join_lefts = self._side(left, names, MIRRORED.get(type(op)))
            rights, join_rights = self._side(right, names, type(op))
            rows = [[(_compared(about, x, y, margin), x, y) for x in lefts] for y in rights]
            joined = _joined([_joined([truth for truth, _, _ in row], join_lefts) for row in rows], join_rights)
            links.append(joined)
            comparisons = [each for row in rows for each in row]
            self._noted(*next((each for each in comparisons if each[0].margin == joined.margin), comparisons[0]))
        return _joined(links, min)

    def _side(self, node: ast.expr, names: Keys, op: type[ast.cmpop] | None) -> tuple[list[Span], Callable[..., Any]]:
        """The numbers of one side, and how the comparisons with each of them are joined.

        There are several if the side is the smallest or largest of numbers that are not exact, or a multiple of that.
        """
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if op and (op, name) in JOINED:
                parts = [self._number(arg, names) for arg in args]
                if not all(part.exact for part in parts):
                    return parts, JOINED[op, name]
                return [_computed(node, EXTREMES[name], parts)], min
            case ast.BinOp(left=ast.Constant() | ast.BinOp() as factor, op=ast.Mult(), right=ast.Call() as right):
                times = self._number(factor, names)
                if times.exact and times.value > 0:
                    parts, join = self._side(right, names, op)
                    return [_computed(node, ARITHMETIC[ast.Mult], [times, part]) for part in parts], join
        return [self._number(node, names)], min

    def _noted(self, truth: Truth, x: Span, y: Span) -> Truth:
        self.sides[truth.decides] = (x.value, y.value)
        self.inputs[truth.decides] = max(x.inputs, y.inputs)
        return truth

    def _bound(self, loops: Sequence[ast.comprehension], names: Keys) -> Iterator[Keys]:
        if not loops:
            yield names
            return
        match loops[0]:
            case ast.comprehension(target=ast.Name(id=name), iter=ast.List(elts=[_, *_] as values), ifs=[], is_async=0):
                for value in values:
                    yield from self._bound(loops[1:], {**names, name: self._key(value, names)})
            case _:
                raise _refused(loops[0], "`for name in [values]`")

    def _number(self, node: ast.expr, names: Keys) -> Span:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as constant) if abs(constant) <= sys.float_info.max:
                return Span.exactly(float(constant))
            case ast.Name(id=name) if isinstance(bound := names.get(name), float):
                return Span.exactly(bound)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _computed(node, lambda x: -x, [self._number(operand, names)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return _computed(node, ARITHMETIC[type(op)], [self._number(side, names) for side in (left, right)])
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                return _computed(node, FUNCTIONS[name], [self._number(arg, names) for arg in args])
            case ast.Call(func=ast.Name(id=name), args=[scheme, model, n], keywords=[]) if name in COLUMN_OF:
                keys = {"scheme": scheme, "model": model, "nodes": n}
                return self._cell(COLUMN_OF[name], {key: self._key(arg, names) for key, arg in keys.items()})
            case ast.Call(func=ast.Name(id="value"), args=[ast.Constant(value=str() as column)], keywords=keywords):
                if all(keyword.arg for keyword in keywords):
                    return self._cell(column, {str(key.arg): self._key(key.value, names) for key in keywords})
        raise _refused(node, f"a number, + - * /, {', '.join(FUNCTIONS)}, value(...) or {', '.join(COLUMN_OF)}")

    def _cell(self, column: str, keys: Keys) -> Span:
        cell = self.lookup(column, keys)
        return cell if isinstance(cell, Span) else Span.exactly(cell)

    def _key(self, node: ast.expr, names: Keys) -> Key:
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Name(id=name) if isinstance(bound := names.get(name), str):
                return bound
        return self._number(node, names).value


def shown(keys: Keys) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in keys.items())


def _relative(difference: float, x: float, y: float) -> float:
    return difference / (abs(y) or abs(x) or 1.0)


def _slack(slack: Callable[[float, float], float], strict: bool, x: float, y: float) -> float:
    margin = _relative(slack(x, y), x, y)
    return margin or TIE if strict else margin


def _joined(parts: Sequence[Truth], choose: Callable[..., Any]) -> Truth:
    """Holds if all (`choose` is min) or any (max) of the parts do; the parts that are known decide if they can."""
    least, most = choose(part.least for part in parts), choose(part.most for part in parts)
    holds = least >= 0
    known = [part for part in parts if part.known and (part.margin >= 0) == holds] if holds == (most >= 0) else []
    margin, decides, *_ = choose(known or parts)
    return Truth(margin, decides, least, most)


def _compared(about: Comparison, x: Span, y: Span, margin: Callable[[float, float], float]) -> Truth:
    """The truth of a comparison: `margin` depends on x / |y|; its sign is monotone in x and y on each side of x = y."""
    x, y = spans.compared(x, y)
    middle = margin(x.value, y.value)
    if not (x.known and y.known):
        return Truth(middle, about, -math.inf, math.inf)
    corners = [margin(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    low, high = max(x.low, y.low), min(x.high, y.high)
    meeting = [margin(equal, equal) for equal in (low, high)] if low <= high else []
    return Truth(middle, about, min(middle, *corners, *meeting), max(middle, *corners, *meeting))


def _computed(node: ast.expr, function: Callable[..., float], values: list[Span]) -> Span:
    try:
        return spans.of(function, values, pairs=function not in EXTREMES.values())
    except MayBeZero:
        raise Missing(f"{ast.unparse(node)} has no value: what divides may be 0") from None
    except TypeError:
        raise _refused(node, "a call with the right number of arguments") from None
    except (ZeroDivisionError, ValueError) as error:
        raise Missing(f"{ast.unparse(node)} has no value: {error}") from None


def _refused(node: ast.AST, expected: str) -> InputError:
    return InputError(f"`{ast.unparse(node).strip()}` is not {expected}")
