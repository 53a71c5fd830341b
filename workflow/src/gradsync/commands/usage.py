"""How the command line says that it can't be read: one message, with the words that were meant."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from gradsync.commands import limits
from gradsync.errors import InputError
from gradsync.names import near, shown

NUMBERS = {int: "a whole number", float: "a number"}


class Parser(argparse.ArgumentParser):
    """argparse's own, whose errors are an InputError of one line; it notes which options are given twice."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        limits.types(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's own; raises InputError for a word that is left over, with what this very command has."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(self._unknown(left[0]))
        return found, left

    def error(self, message: str) -> NoReturn:
        """Raises InputError: what is wrong, and which command shows all words."""
        missing = re.fullmatch(r"the following arguments are required: (.*)", message)
        if missing:
            message = f"{missing[1]}: needed, and not given"
        raise InputError(f"{message.removeprefix('argument ')} ({self.prog} --help shows all)")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{shown(word)}: one word too many; quote a value that holds blanks"
        guess = near(word.partition("=")[0], self._option_string_actions).strip()
        return f"{shown(word)}: no such option" + (f"; {guess}" if guess else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            told = f"{shown(value)} does not exist; {near(value, known)}there are: {', '.join(known)}"
            raise argparse.ArgumentError(action, told)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type in NUMBERS:
                raise argparse.ArgumentError(action, f"must be {NUMBERS[action.type]}, not {shown(text)}") from None
            raise
