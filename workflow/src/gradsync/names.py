"""Names that a configuration may give, known without what they name: importing torch takes seconds.

Tests hold them against the registries themselves. What a name may look like, too: names become file names, wildcards
of the workflow and words of commands.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path

from gradsync.errors import InputError

MODELS = (
    *("lenet5", "resnet18", "resnet50", "resnet152", "alexnet", "vgg19", "googlenet", "densenet201", "inceptionv4"),
    *("bert_base", "transformer", "resnet152_quarter", "vgg19_eighth", "densenet201_quarter", "inceptionv4_quarter"),
    *("bert_base_quarter", "transformer_quarter", "transformer_small"),
)
DATA = ("digits", "mnist", "cifar10", "imagenet", "synthetic", "text", "translation", "wmt17")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def modules_in(path: Iterable[str]) -> list[str]:
    """Modules of the package whose `__path__` this is, except those that begin with `_`, sorted.

    A registry whose modules are one of its kind each (schedules, collectives, ...) finds them so; all of them count as
    code behind a stage of the workflow that uses the registry (`workflow/import_closure.py`).
    """
    return list(_modules_in(tuple(path)))


@cache  # a scheme asks several times, and there are many schemes: a folder is listed once
def _modules_in(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_")))


def papers() -> list[str]:
    """Every paper that the package has tables and figures of, sorted."""
    folder = Path(__file__).parent / "papers"
    return sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if module.ispkg)


def refuse_unknown(what: str, name: str, known: Iterable[str], where: str = "") -> None:
    """Raises InputError, with the names that are nearest, for one that is not among the known; `where` it was given."""
    names = list(known)
    if name in names:
        return
    place = f"{where}: " if where else ""
    raise InputError(
        f"{place}{what} {shown(name)} does not exist; {near(name, names)}there are: {', '.join(names) or 'none'}"
    )


def near(name: object, known: Iterable[str]) -> str:
    """`did you mean ...? `, for a message, if known names are like that one; else empty."""
    word = str(name)[:100].lower()
    close = get_close_matches(word, known)
    alike = [SequenceMatcher(None, each, word).ratio() for each in close]
    close = [
        each for each, ratio in zip(close, alike, strict=True) if ratio > alike[0] - 0.1
    ]  # about as near as the best
    return f"did you mean {' or '.join(close)}? " if close else ""


def refuse_form(what: str, name: object, where: str) -> None:
    """Raises InputError for what can't be the name of anything: files and commands are made of names."""
    if not isinstance(name, str) or not WORD.fullmatch(name):
        raise InputError(
            f"{where}: {what} {shown(name)}: a name has letters, digits, '_', '-' and '.', begins with a letter or "
            "digit and has at most 100 of them"
        )


def shown(value: object) -> str:
    """A value as a message shows it: quoted, on one line, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"
