"""Options as fields of frozen dataclasses: name, type, default, limits and meaning of each are stated once.

`commands/options.py` makes parsers of them, `words` writes the command line that gives the same values again, and
`settings.py` takes defaults, limits and meanings from them for keys of a configuration.
"""

from __future__ import annotations

import dataclasses
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

ABOUT = "option"  # the key of a field's metadata
Kind = TypeVar("Kind")


class About(NamedTuple):
    """What `option` is told of a field, beside its default."""

    meaning: str
    flag: str = ""  # empty: that of the field's name
    positional: bool = False
    repeated: bool = False  # one flag for each of several values; else one flag with all of them
    empty: bool = False  # that one flag may have no value
    metavar: str | None = None
    silent: bool = False  # its default is refused, and not shown
    hidden: bool = False  # of what only commands start: not shown at all
    least: int | None = None
    most: int | None = None
    unset: str = ""  # what holds if the option is not given
    needs: str = ""  # the field without which this one means nothing
    either: str = ""  # the group of options of which at most one is given
    needed: bool = False  # of that group one is
    configured: Any = None  # the default in a configuration, if it is another one than here


class Option(NamedTuple):
    """A field, as a parser needs it."""

    name: str
    flag: str
    kind: type  # of one value
    choices: tuple[str, ...]
    several: bool
    default: Any  # dataclasses.MISSING: the option is required
    about: About

    @property
    def required(self) -> bool:
        """Whether a command line without the option is refused."""
        return self.default is dataclasses.MISSING

    @property
    def key(self) -> str:
        """Its name in what argparse has read, by which messages name the option, too."""
        return self.name if self.about.positional else self.flag.removeprefix("--").replace("-", "_")


def option(default: Any = dataclasses.MISSING, meaning: str = "", **about: Any) -> Any:
    """A field of a dataclass of options; `about`: see `About`. Without a default the option is required."""
    return dataclasses.field(default=default, metadata={ABOUT: About(meaning, **about)})


def options_of(kind: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in order."""
    hints = get_type_hints(kind)
    options = []
    for field in dataclasses.fields(kind):
        one, choices, several = _value_type(hints[field.name])
        about: About = field.metadata[ABOUT]
        flag = "" if about.positional else about.flag or f"--{field.name.replace('_', '-')}"
        options.append(Option(field.name, flag, one, choices, several, field.default, about))
    return tuple(options)


def _value_type(hint: Any) -> tuple[type, tuple[str, ...], bool]:
    """(type of one value, what it is chosen from, whether there are several) of a field's annotation."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        one, choices, _ = _value_type(get_args(hint)[0])
        return one, choices, True
    if get_origin(hint) is Literal:
        return str, get_args(hint), False
    return hint, (), False


def words(values: Any) -> list[str]:
    """The words of a command line that give the values of a dataclass of options; what is unset is left out."""
    positional, flagged = list[str](), list[str]()
    for name, flag, kind, _, several, default, about in options_of(type(values)):
        value = getattr(values, name)
        if value is None or (about.needs and not getattr(values, about.needs)):
            continue
        if about.positional:
            positional += map(str, value if several else [value])
        elif kind is bool:
            off = [flag.replace("--", "--no-", 1)] if default else []
            flagged += [flag] if value else off
        elif not several:
            flagged.append(f"{flag}={value}")
        elif about.repeated:
            flagged += [f"{flag}={one}" for one in value]
        elif value or default:
            flagged += [flag, *map(str, value)]
    return positional + flagged


def taken(kind: type[Kind], source: object, /, **changes: Any) -> Kind:
    """Options of another kind, from the attributes of `source` that have their names; `changes` go first."""
    names = [field.name for field in options_of(kind) if hasattr(source, field.name)]
    values = {name: getattr(source, name) for name in names} | changes
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
