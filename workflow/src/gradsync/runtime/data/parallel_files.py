"""Parallel text: files of lines in two languages, line by line translations of one another.

    FOLDER/train/NAME.SOURCE    FOLDER/train/NAME.TARGET    any number of such pairs; FOLDER/train.SOURCE will do too
    FOLDER/test/NAME.SOURCE     FOLDER/test/NAME.TARGET     held out; FOLDER/test.SOURCE will do too

SOURCE and TARGET are two endings, the same for all files: src and tgt, or en and another language, into which English
is translated. WMT17's English to German is laid out so: europarl-v7.de-en, commoncrawl.de-en and
news-commentary-v12.de-en in train, and newstest2017 as plain lines in test (sacrebleu -t wmt17 -l en-de --echo src).

A pair of lines of which one is blank is left out. Text is UTF-8; a line ends with a line feed alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gradsync.errors import InputError

SOURCES = ("src", "source", "en")  # endings of files that are translated
MOST_BYTES = 4 * 2**30  # of one part: every rank holds its tokens in memory
Lines = tuple[list[str], list[str]]


class Parallel(NamedTuple):
    """The files of a folder: pairs of paths, of source and target."""

    training: list[tuple[Path, Path]]
    test: list[tuple[Path, Path]]


def files(folder: Path, name: str) -> Parallel:
    """The pairs in a folder; raises InputError, which begins with the data set's `name`, if they are no pairs."""
    if not folder.is_dir():
        raise InputError(f"data {name!r}: {folder} is no folder: correct data_folder or --data-folder")
    parts = {part: sorted(_files(folder, part)) for part in ("train", "test")}
    for part, paths in parts.items():
        if not paths:
            raise InputError(
                f"data {name!r}: {folder} holds no files {part}/NAME.SOURCE and {part}/NAME.TARGET (nor {part}.SOURCE "
                f"and {part}.TARGET): lay the files of lines so"
            )
        total = sum(path.stat().st_size for path in paths)
        if total > MOST_BYTES:
            raise InputError(
                f"data {name!r}: {folder}/{part} holds {total / 2**30:.1f} GiB of text, each rank holds all its "
                f"tokens in memory: at most {MOST_BYTES / 2**30:g} GiB, choose fewer files"
            )
    source, target = _languages([*parts["train"], *parts["test"]], folder, name)
    return Parallel(*(_pairs(paths, source, target, name) for paths in parts.values()))


def read(pairs: list[tuple[Path, Path]], name: str) -> Lines:
    """Lines of source and target of all pairs, in order.

    Raises InputError for a file that is empty or no text, and for two that have not as many lines as one another.
    """
    sources: list[str] = []
    targets: list[str] = []
    for source, target in pairs:
        lines = _lines(source, name), _lines(target, name)
        if len(lines[0]) != len(lines[1]):
            raise InputError(
                f"data {name!r}: {source} has {len(lines[0])} lines, {target} has {len(lines[1])}: line by line they "
                "must be translations of one another"
            )
        for line, there in zip(*lines, strict=True):
            if line.strip() and there.strip():
                sources.append(line)
                targets.append(there)
        if not sources:
            raise InputError(f"data {name!r}: {source} and {target} have no line that is not blank in one of them")
    return sources, targets


def _files(folder: Path, part: str) -> list[Path]:
    inside = (folder / part).glob("*.*") if (folder / part).is_dir() else []
    return [path for path in (*folder.glob(f"{part}.*"), *inside) if path.is_file() and path.name[0] != "."]


def _languages(paths: list[Path], folder: Path, name: str) -> tuple[str, str]:
    endings = sorted({path.suffix[1:] for path in paths})
    sources = [ending for ending in endings if ending in SOURCES]
    if len(endings) != 2 or len(sources) != 1:
        raise InputError(
            f"data {name!r}: files of {folder} end in {', '.join(f'.{each}' for each in endings[:6])}: two endings are "
            f"needed, the source's is .src or .en, the target's any other one"
        )
    (source,) = sources
    return source, next(ending for ending in endings if ending != source)


def _pairs(paths: list[Path], source: str, target: str, name: str) -> list[tuple[Path, Path]]:
    known = {*paths}
    for path in paths:
        other = path.with_suffix(f".{target if path.suffix == f'.{source}' else source}")
        if other not in known:
            raise InputError(f"data {name!r}: {path} has no translation: {other} is missing")
    return [(path, path.with_suffix(f".{target}")) for path in paths if path.suffix == f".{source}"]


def _lines(path: Path, name: str) -> list[str]:
    content = path.read_bytes()
    if not content.strip():
        raise InputError(f"data {name!r}: {path} is empty: give lines of text")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise InputError(
            f"data {name!r}: {path}, line {line}: no text in UTF-8 (byte {error.start} of the file): correct or remove "
            "it, and its translation"
        ) from None
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
