"""Titles of tables and figures by their ids, and which of them a place in a paper names."""

from __future__ import annotations

import re

ID = re.compile(r"(fig|table|algorithm)(\d+)([a-z]?)(?:_(.+))?")
WORDS = {"fig": "Fig.", "table": "Table", "algorithm": "Algorithm"}
NAMED = re.compile(r"\b(Fig\.|Tables?|Algorithms?) ((?:(?:\d+|[IVX]+)(?:\([a-z]\))?(?:, | and )?)+)")
NUMBER = re.compile(r"(\d+|[IVX]+)(?:\(([a-z])\))?")
NUMERALS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
ROMAN = {numeral: str(number) for number, numeral in enumerate(NUMERALS, 1)}


def title(name: str) -> str:
    """`fig5a_tensors` is `Fig. 5(a), tensors`; what has no number in its paper is named by the words of its id."""
    match = ID.fullmatch(name)
    if not match:
        return name.replace("_", " ").capitalize()
    kind, number, letter, rest = match.groups()
    return (
        f"{WORDS[kind]} {number}" + (f"({letter})" if letter else "") + (f", {rest.replace('_', ' ')}" if rest else "")
    )


def printed(name: str) -> str:
    """What the paper prints under a number, without its parts: `fig5` of `fig5a_tensors`; empty if it has no number."""
    match = ID.fullmatch(name)
    return f"{match[1]}{match[2]}" if match else ""


def names(place: str, name: str) -> bool:
    """Whether a place (`Section V-A, Fig. 5(a) prose`) names a figure or table, as a whole or this part of it."""
    match = ID.fullmatch(name)
    if not match:
        return False
    for kind, listed in NAMED.findall(place):
        if kind.rstrip("s") != WORDS[match[1]]:
            continue
        for number, letter in NUMBER.findall(listed):
            if ROMAN.get(number, number) == match[2] and (not letter or not match[3] or letter == match[3]):
                return True
    return False
