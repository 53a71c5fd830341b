"""How the command line explains itself, and how it says that it can't be read: one message, with what was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from gradsync.commands import limits
from gradsync.configuration.networks import Ranks
from gradsync.errors import InputError
from gradsync.names import near, shown

NUMBERS = {int: "a whole number", float: "a number", Ranks: "a whole number, or NODESxRANKS as 16x8"}


class Formatter(argparse.HelpFormatter):
    """Tells the default of each option once: behind its meaning, unless that tells it or the action is `silent`."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (action.help or "").removesuffix(" (default: %(default)s)")  # which argparse adds to some by itself
        silent = action.required or not action.option_strings or getattr(action, "silent", False)
        none = action.default is None or action.default is False or action.default in ("", [], argparse.SUPPRESS)
        if "(default: " in text or silent or none:
            return text
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"{text} (default: {action.option_strings[0]})"
        values = action.default if isinstance(action.default, list) else [action.default]
        texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return f"{text} (default: {' '.join(texts)})"


class Parser(argparse.ArgumentParser):
    """argparse's own, whose errors are an InputError of one line; it notes which options are given twice."""

    siblings: Mapping[str, argparse.ArgumentParser] = {}  # subcommands beside this one, whose options may be meant

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        limits.types(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's own; raises InputError for a word that is left over, with what this very command has."""
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self.error(self._left_over(left[0], list(args or ())))
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """Raises InputError: what is wrong, and which command shows all words."""
        missing = re.fullmatch(r"the following arguments are required: (.*)", message)
        if missing:
            message = f"{missing[1]}: needed, and not given"
        if one_of := re.fullmatch(r"one of the arguments (.*) is required", message):
            message = f"{' or '.join(one_of[1].split())}: needed, and not given"
        raise InputError(f"{message.removeprefix('argument ')} ({self.prog} --help shows all)")

    def _left_over(self, word: str, words: list[str]) -> str:
        """What to say of a word that no option takes, among all words."""
        if not word.startswith("-"):
            before = words[: words.index(word)] if word in words else []
            option = next((earlier for earlier in reversed(before) if earlier.startswith("--")), "")
            action = self._option_string_actions.get(option)
            if action is not None and action.nargs is None:
                one = "number" if action.type in NUMBERS else "value"
                return f"{shown(word)}: one word too many: {option} takes one {one}"
            return f"{shown(word)}: one word too many; quote a value that holds blanks"
        option = word.partition("=")[0]
        takers = [name for name, parser in self.siblings.items() if option in parser._option_string_actions]
        have = f"{', '.join(takers)} {'have' if len(takers) > 1 else 'has'} it"
        hint = have if takers else near(option, self._option_string_actions).strip()
        return f"{shown(word)}: no such option" + (f"; {hint}" if hint else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            message = f"{shown(value)} does not exist; {near(value, known)}there are: {', '.join(known)}"
            raise argparse.ArgumentError(action, message)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type in NUMBERS:
                raise argparse.ArgumentError(action, f"must be {NUMBERS[action.type]}, not {shown(text)}") from None
            raise
