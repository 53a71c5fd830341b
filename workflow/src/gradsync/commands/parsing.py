"""Parsers from dataclasses of options (`configuration/options.py`), and typed options from what a parser has read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from gradsync.commands.usage import Formatter, Parser
from gradsync.configuration.options import Option, options_of
from gradsync.errors import InputError

Kind = TypeVar("Kind")
Run = Callable[[argparse.Namespace], Any]


def add(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the options that a dataclass declares."""
    groups: dict[str, Any] = {}
    for option in _together(options_of(kind)):
        about, group = option.about, parser
        if about.either:
            if about.either not in groups:
                groups[about.either] = parser.add_mutually_exclusive_group(required=about.needed)
            group = groups[about.either]
        action = group.add_argument(option.flag or option.name, **_argument(option))
        action.silent = about.silent  # type: ignore[attr-defined]


def _together(options: tuple[Option, ...]) -> list[Option]:
    """The options in order, but those of which one is given stand where the first of them does."""
    first = {option.about.either: place for place, option in reversed([*enumerate(options)])}
    places = [first[option.about.either] if option.about.either else place for place, option in enumerate(options)]
    return [options[place] for place in sorted(range(len(options)), key=places.__getitem__)]


def _argument(option: Option) -> dict[str, Any]:
    """What argparse needs to know of an option."""
    about = option.about
    meaning = f"{about.meaning} (default: {about.unset})" if about.unset else about.meaning
    argument: dict[str, Any] = {"help": argparse.SUPPRESS if about.hidden else meaning}
    if not about.positional:
        argument["required"] = option.required
    if option.kind is bool:
        action = argparse.BooleanOptionalAction if option.default else "store_true"
        return {**argument, "action": action, "default": option.default}
    if option.kind is not str:
        argument["type"] = option.kind
    if option.choices:
        argument["choices"] = option.choices
    if about.metavar:
        argument["metavar"] = about.metavar
    if option.several and about.repeated:
        argument["action"] = "append"
    elif option.several:
        argument["nargs"] = "*" if about.empty else "+"
    if not option.required:
        argument["default"] = list(option.default) if option.several else option.default
    return argument


def read(kind: type[Kind], namespace: argparse.Namespace) -> Kind:
    """The options of a kind that were read; raises InputError for one that was given without another that it needs."""
    values = {}
    for option in options_of(kind):
        value = getattr(namespace, option.key)
        values[option.name] = tuple(value) if option.several else value
    by_name = {option.name: option for option in options_of(kind)}
    for option in by_name.values():
        if option.about.needs and option.key in getattr(namespace, "given_keys", ()) and not values[option.about.needs]:
            raise InputError(f"{option.flag}: only with {by_name[option.about.needs].flag}, which is not given")
    return kind(**values)


def actions(parser: argparse.ArgumentParser, metavar: str) -> Callable[[str, Run], argparse.ArgumentParser]:
    """Subcommands of a subcommand: a function that adds one by its name and what it runs."""
    subcommands = parser.add_subparsers(metavar=metavar, dest="action", required=True)

    def action(name: str, run: Run) -> argparse.ArgumentParser:
        """The parser of an action; the docstring of what it runs is its help."""
        added = subcommands.add_parser(name, **described(run))
        assert isinstance(added, Parser)
        added.siblings = subcommands.choices
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON")
        added.set_defaults(act=run)
        return added

    return action


def described(run: Run) -> dict[str, Any]:
    """Help and description of what a function runs: the first line of its docstring, and all of it."""
    text = " ".join((run.__doc__ or "").split())
    first = (run.__doc__ or "").strip().splitlines()[0]
    return {"help": first, "description": text, "formatter_class": Formatter}
