"""What pydantic found wrong with a file, in plain English: the place, what is wanted, what the file has instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from gradsync.names import near, shown

WANTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "keys with their values"),
    "string_type": "text (in quotes where it looks like something else)",
    "finite_number": "a finite number",
    "none_required": "null",
}
UNWANTED = ("extra_forbidden", "unexpected_keyword_argument")  # of models and of dataclasses
# what pydantic says with a regular expression
PATTERNS = {
    "^[a-z0-9_]*$": "of small letters, digits and '_' alone",
    "^[a-z0-9_]+$": "of small letters, digits and '_' alone",
    "^[a-z0-9-]+$": "of small letters, digits and '-' alone",
    "^[a-z0-9_][a-z0-9_-]*$": "of small letters, digits, '_' and '-', and not begin with '-'",
    "^[A-Za-z0-9][A-Za-z0-9._-]*$": "of letters, digits, '.', '_' and '-', and begin with a letter or digit",
}
BOUNDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda context: f"more than {context['gt']:g}",
    "greater_than_equal": lambda context: f"at least {context['ge']}",
    "less_than": lambda context: f"less than {context['lt']}",
    "less_than_equal": lambda context: f"at most {context['le']}",
    "literal_error": lambda context: str(context["expected"]),
    "string_pattern_mismatch": lambda context: PATTERNS.get(context["pattern"], f"of the form {context['pattern']}"),
    "string_too_long": lambda context: f"at most {context['max_length']} characters",
    "string_too_short": lambda context: f"at least {context['min_length']} character(s)",
}
# pydantic's own names for one of several forms that a value may have: they are no keys of the file
FORM = re.compile(r"[a-z-]*\[.*\]|int|float|str|bool|constrained-\w+|lax-or-strict\W*.*|json-or-python\W*.*")


def first_problem(error: ValidationError, model: type | None = None, below: str = "") -> str:
    """The first problem that pydantic found, in one line: place and reason.

    `model` is what the file should hold, so that the message about a misspelt key can suggest keys.
    `below` is the place in the file of what was validated.
    """
    problems = [(_place(problem["loc"], model), problem) for problem in error.errors(include_url=False)]
    place, problem = problems[0]
    if problem["type"] in {"missing", *UNWANTED}:
        # a misspelt key is often reported as two: what is missing, and what is there instead
        place, problem = next((each for each in problems if each[1]["type"] in UNWANTED), problems[0])
    reasons = dict.fromkeys(_reason(each, model) for at, each in problems if at == place)
    wants = [reason for reason in reasons if reason.startswith("must be ")]
    if problem["type"] not in {"missing", *UNWANTED} and len(wants) > 1:  # none of several forms
        forms = " or ".join(want.removeprefix("must be ").partition(", not ")[0] for want in wants)
        reason = f"must be {forms}, not {_value_in_file(problem)}"
    else:
        reason = _reason(problem, model)
    others = len({at for at, _ in problems}) - 1
    where = ".".join([below] * bool(below) + [*map(_part, place)])
    return f"{where or 'top level'}: {reason}" + (f" (and {others} more)" if others else "")


def _reason(problem: Any, model: type | None) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in WANTED:
        return f"must be {WANTED[kind]}, not {_value_in_file(problem)}"
    if kind in BOUNDS:
        choices = re.findall(r"'([^']*)'", context.get("expected", ""))
        guess = near(problem["input"], choices).strip()
        return f"must be {BOUNDS[kind](context)}, not {_value_in_file(problem)}" + (f"; {guess}" if guess else "")
    if kind == "missing":
        return "is missing"
    if kind in UNWANTED:
        keys = list(_keys(model, problem["loc"][:-1]))
        key = str(problem["loc"][-1])
        hint = f"; {near(key, keys)}there are: {', '.join(keys)}" if keys else ""
        return f"no such key{hint}"
    if kind in {"too_short", "too_long"}:
        most, least = context.get("max_length"), context.get("min_length")
        count = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"needs {count} {'entry' if count.endswith(' 1') else 'entries'}"
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        what = context["discriminator"].strip("'")
        if "expected_tags" not in context:
            return f"{what} is missing"
        guess = near(context["tag"], re.findall(r"'([^']*)'", context["expected_tags"])).strip()
        return f"{what} must be one of {context['expected_tags']}, not {shown(context['tag'])}" + (
            f"; {guess}" if guess else ""
        )
    if kind == "invalid_key":
        return "a key must be text"
    text = " ".join(str(problem["msg"]).split())
    return text.removeprefix("Value error, ").removeprefix("Assertion failed, ").replace("Input should be", "must be")


def _part(part: int | str) -> str:
    """A key as messages show it: it is quoted if it could be taken for something else."""
    text = str(part)
    return text if re.fullmatch(r"[\w@ /+-]{1,100}", text) else shown(text)


def _value_in_file(problem: Any) -> str:
    """The value that a file has, as the file writes it."""
    words = {None: "null", True: "true", False: "false"}
    value = problem["input"]
    return words[value] if value is None or isinstance(value, bool) else shown(value)


def _place(loc: tuple[int | str, ...], model: type | None) -> tuple[int | str, ...]:
    """`loc` with keys and numbers of entries alone."""
    return tuple(
        part
        for number, part in enumerate(loc)
        if isinstance(part, int) or part in _keys(model, loc[:number]) or not FORM.fullmatch(part)
    )


def _keys(model: type | None, loc: tuple[int | str, ...]) -> Iterable[str]:
    """The keys that `model` has at `loc`."""
    kinds = {model} if model else set()
    for part in loc:
        deeper = {each for kind in kinds if part in _fields(kind) for each in _models(_fields(kind)[part].annotation)}
        kinds = deeper or kinds  # an entry of a list or mapping is of the kind that its field says
    return dict.fromkeys(key for kind in sorted(kinds, key=str) for key in _fields(kind))


def _fields(kind: Any) -> dict[Any, Any]:
    if isinstance(kind, type) and is_dataclass(kind) and not hasattr(kind, "__pydantic_fields__"):  # as plans are
        hints = get_type_hints(kind)
        return {field.name: SimpleNamespace(annotation=hints[field.name]) for field in fields(kind)}
    return getattr(kind, "__pydantic_fields__", {})


def _models(annotation: Any) -> Iterable[type]:
    if _fields(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
