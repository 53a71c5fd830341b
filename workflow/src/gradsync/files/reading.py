"""How files from outside are read: YAML, JSON and text, each with limits that its messages name.

Neither YAML nor JSON may have a key twice (the last would win silently), a number that is infinite or none, a whole
number of hundreds of digits, or deep nesting. YAML with its aliases spelled out may have no more nodes than a file of
that kind can need.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import yaml

from gradsync.errors import InputError

MOST_BYTES = 256 << 20  # of a plan, a trace, a table of points
MOST_CONFIGURED_BYTES = 1 << 20  # of a file that people write
MOST_NODES = 100_000  # of YAML, aliases spelled out
MOST_DEEP = 32  # of lists and mappings in one another
MOST_DIGITS = 40  # of a whole number
MOST_PATH_BYTES = 4095
MOST_NAME_BYTES = 255
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml it is ten times as fast


def refuse_path(path: str | Path, where: str) -> None:
    """Raises InputError for what can't be the path of a file: no text, null bytes, surrogates, too many bytes."""
    text = str(path)
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError:
        raise InputError(f"{where}: a path with characters that no file name has: {_cut(text)}") from None
    if not text or "\0" in text:
        raise InputError(f"{where}: {_cut(text)} is no path of a file")
    if size > MOST_PATH_BYTES or any(len(os.fsencode(part)) > MOST_NAME_BYTES for part in text.split("/")):
        raise InputError(
            f"{where}: a path of {size} bytes: at most {MOST_PATH_BYTES}, and {MOST_NAME_BYTES} of each folder and name"
        )


def refuse_word(word: str, where: str) -> None:
    """Raises InputError for what can't be a word of a command or a path in the workflow; the message says why."""
    odd = next((character for character in word if not character.isprintable() or character in "{}*"), None)
    if odd is not None:
        raise InputError(
            f"{where}: {_cut(word)} holds {odd!a}: the workflow can't pass braces, stars or control characters"
        )
    if word.startswith("-"):
        raise InputError(
            f"{where}: {_cut(word)} begins with '-', which commands take for an option: write ./ before it"
        )
    refuse_path(word, where)


def shown(path: str | Path) -> str:
    """A path as messages show it: in characters that any terminal prints, and cut if it is long."""
    return _cut(str(path))


def _cut(text: str) -> str:
    quoted = ascii(text)
    return quoted if len(quoted) <= 100 else f"{quoted[:100]}..."


def text(path: str | Path, what: str, most: int = MOST_BYTES) -> str:
    """The text of a file; raises InputError if it can't be read or is no file. `what` says what it should be."""
    content = raw(path, what, most)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} {path}: can't be read: not text in UTF-8 ({error.reason}, byte {error.start})"
        ) from None


def raw(path: str | Path, what: str, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file; raises InputError as `text` does. A pipe, as in `<(command)`, is read to its end."""
    refuse_path(path, what)
    try:
        with open(path, "rb") as file:
            kind = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
                raise InputError(f"{what} {path}: can't be read: it is a device or a socket, no file")
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{what} {path}: can't be read: {error.strerror or error}") from None
    if len(content) > most:
        raise InputError(f"{what} {path}: larger than {most >> 20} MiB, the most that is read of such a file")
    return content


def json_of(path: str | Path, what: str) -> Any:
    """What a JSON file holds; raises InputError with file and reason."""
    return parse_json(text(path, what), f"{what} {path}")


def parse_json(content: str, where: str) -> Any:
    """What JSON says; raises InputError for anything that the module's docstring refuses."""

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(entries)
        if len(mapping) < len(entries):
            keys = [key for key, _ in entries]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{where}: key {_cut(twice)} is there twice: one would be lost")
        return mapping

    not_finite = False

    def number(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise InputError(f"{where}: a whole number of {len(digits)} digits: at most {MOST_DIGITS}")
        return int(digits)

    def real(digits: str) -> float:
        nonlocal not_finite
        value = float(digits)
        not_finite = not_finite or not math.isfinite(value)
        return value

    try:
        parsed = json.loads(content, object_pairs_hook=pairs, parse_constant=real, parse_int=number, parse_float=real)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: lists and objects are nested too deep") from None
    if not_finite:
        _refuse_numbers(parsed, where, "")
    return parsed


def yaml_of(path: str | Path, what: str) -> Any:
    """What a YAML file holds; raises InputError with file and reason."""
    return parse_yaml(text(path, what, MOST_CONFIGURED_BYTES), f"{what} {path}")


def parse_yaml(content: str, where: str) -> Any:
    """What YAML says; raises InputError for anything that the module's docstring refuses."""
    try:
        _refuse_events(content, where)
        loader = LOADER(content)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _refuse_nodes(node, where)
            parsed = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, OverflowError, TypeError, AttributeError, LookupError) as error:  # a date of month 13, say
        reason = "a whole number of thousands of digits" if "integer string" in str(error) else str(error)
        raise InputError(f"{where}: not YAML that means anything: {' '.join(reason.split())[:200]}") from None
    _refuse_numbers(parsed, where, "")
    return parsed


def _refuse_events(content: str, where: str) -> None:
    depth = 0
    for event in yaml.parse(content, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEEP:
                raise InputError(f"{where}: lists and mappings are nested more than {MOST_DEEP} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_nodes(root: yaml.Node, where: str) -> None:
    """Refuse a key twice, an alias of what it lies in, and too many nodes with aliases spelled out, as merges do it."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in open_:
            raise InputError(f"{where}: an alias stands for what it lies in")
        if id(node) not in sizes:
            open_.add(id(node))
            children: list[yaml.Node] = []
            if isinstance(node, yaml.MappingNode):
                _refuse_twice(node, where)
                children = [child for pair in node.value for child in pair]
            elif isinstance(node, yaml.SequenceNode):
                children = list(node.value)
            sizes[id(node)] = 1 + sum(size(child) for child in children)
            open_.discard(id(node))
        return sizes[id(node)]

    if size(root) > MOST_NODES:
        raise InputError(f"{where}: with its aliases spelled out it has more than {MOST_NODES} entries")


def _refuse_twice(node: yaml.MappingNode, where: str) -> None:
    keys = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{where}, line {key.start_mark.line + 1}: a list or mapping is a key")
        if (key.tag, key.value) in keys:
            raise InputError(
                f"{where}, line {key.start_mark.line + 1}: key {_cut(key.value)} is there twice: one would be lost"
            )
        keys.add((key.tag, key.value))


def _refuse_numbers(content: Any, where: str, place: str) -> None:
    if isinstance(content, dict):
        for key, value in content.items():
            _refuse_numbers(key, where, place)
            _refuse_numbers(value, where, f"{place}.{_name(key)}" if place else _name(key))
    elif isinstance(content, list | tuple | set):
        for number, value in enumerate(content):
            _refuse_numbers(value, where, f"{place}.{number}")
    elif isinstance(content, float) and not math.isfinite(content):
        raise InputError(f"{where}: {place}: {content} is no number that anything here takes")
    elif isinstance(content, int) and abs(content) >= 10**MOST_DIGITS:
        raise InputError(f"{where}: {place}: a whole number of more than {MOST_DIGITS} digits")


def _name(key: Any) -> str:
    return key if isinstance(key, str) else ascii(key)
