"""English text for pre-training: Python's own documentation, or text files.

Every Python installation holds the topics of `help()`, some 460 kB (`pydoc_data.topics`); the text depends on its
version. `data_folder` names a text file, or a folder of them (*.txt), instead. The last tenth is for the test.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

import numpy as np

from gradsync.errors import InputError
from gradsync.runtime.data.masked import MaskedPairs
from gradsync.runtime.data.samples import Wanted
from gradsync.runtime.data.wordpiece import learnt

NAME = "text"  # of the set
TEST_SHARE = 0.1
MOST_BYTES = 64 * 2**20  # every rank holds its tokens in memory
STOPS = (".", "!", "?")
INSTALLED = "Python's documentation"


def read(wanted: Wanted) -> tuple[MaskedPairs, MaskedPairs]:
    """Training and test samples. Raises InputError if there is no text, too much of it, or too little."""
    tokens, pieces, stops = _tokens(wanted.folder, wanted.classes)
    length = wanted.shape[-1]
    span = length - 3
    parts = np.split(tokens, [len(tokens) - int(TEST_SHARE * len(tokens))])
    least = int(2 * span / TEST_SHARE)
    if min(len(part) // span for part in parts) < 2:
        raise InputError(
            f"data 'text': {_named(wanted.folder)} has {len(tokens)} tokens, training and test with sequences of "
            f"{length} need {least} at least: give more text, or a smaller size"
        )
    training, test = (
        MaskedPairs(part, np.arange(len(part) // span) * span, length, pieces, (wanted.seed, number), stops)
        for number, part in enumerate(parts)
    )
    return training, test


@functools.cache
def _tokens(place: Path, vocabulary: int) -> tuple[np.ndarray, int, tuple[int, ...]]:
    """All tokens of the text, the size of their vocabulary, and the tokens that end sentences."""
    documents = _documents(place)
    tokeniser = learnt(documents, vocabulary)
    encoded = [encoding.ids for encoding in tokeniser.encode_batch(documents)]
    stops = [tokeniser.token_to_id(stop) for stop in STOPS]
    tokens = np.concatenate([np.array(each, np.int32) for each in encoded])
    return tokens, tokeniser.get_vocab_size(), tuple(stop for stop in stops if stop is not None)


def _named(place: Path) -> str:
    return INSTALLED if place == Path() else str(place)


def _documents(place: Path) -> list[str]:
    if place == Path():
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
        return [topics[name] for name in sorted(topics)]
    files = sorted(place.rglob("*.txt")) if place.is_dir() else [place]
    if not files:
        raise InputError(f"data 'text': {place} holds no *.txt: correct data_folder or --data-folder, or name a file")
    total = sum(file.stat().st_size for file in files)
    if total > MOST_BYTES:
        raise InputError(
            f"data 'text': {place} holds {total / 2**20:.0f} MiB of text, each rank holds all of it in memory: at most "
            f"{MOST_BYTES // 2**20} MiB, choose fewer files"
        )
    documents = [_decoded(file) for file in files]
    if not any(document.strip() for document in documents):
        raise InputError(f"data 'text': {place} is empty: give text to train on")
    return documents


def _decoded(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"data 'text': {file} is no text in UTF-8 (byte {error.start}): correct or remove it"
        ) from None
    if "\0" in text:
        raise InputError(f"data 'text': {file} is no text (it holds zero bytes): correct or remove it")
    return text
