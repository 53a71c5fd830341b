"""Translation: sentences of parallel files (`parallel_files.py`), or generated ones (`generated_language.py`).

`translation` takes generated sentences unless a folder is given; `wmt17` needs one. Generated sentences are made of
words; files are cut into pieces, of which a model has as many as its vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradsync.errors import InputError
from gradsync.runtime.data import generated_language, parallel_files
from gradsync.runtime.data.samples import Wanted
from gradsync.runtime.data.sentences import Ragged, Sentences
from gradsync.runtime.data.vocabulary import Pieces, Vocabulary, Words

ENCODED_AT_ONCE = 100_000  # lines
NOTE = "sentences and translations are generated: no natural language"


class _Corpus(NamedTuple):
    """All tokens of a corpus, and the text of the test's targets."""

    vocabulary: Vocabulary
    training: tuple[Ragged, Ragged]
    test: tuple[Ragged, Ragged]
    references: tuple[str, ...]


def read(wanted: Wanted, name: str = "translation") -> tuple[Sentences, Sentences]:
    """Training and test samples; of the training the pairs that fit into the length.

    Raises InputError if files are missing, are no pairs or no text, and if no pair of sentences fits.
    """
    length, generated = wanted.shape[-1], wanted.folder == Path()
    corpus = _corpus(wanted.folder, wanted.classes, name)
    fits = np.maximum(*(side.lengths for side in corpus.training)) < length  # one more token ends a sentence
    if not fits.any():
        raise InputError(f"data {name!r}: no sentence of the training has less than {length} tokens: a larger size")
    training = Sentences(*corpus.training, length, corpus.vocabulary, rows=np.flatnonzero(fits), generated=generated)
    test = Sentences(*corpus.test, length, corpus.vocabulary, references=corpus.references, generated=generated)
    return training, test


@functools.cache
def _corpus(folder: Path, most: int, name: str) -> _Corpus:
    """Its vocabulary has `most` tokens at the most."""
    vocabulary: Vocabulary
    if folder == Path():
        parts = [tuple(map(list, zip(*pairs, strict=True))) for pairs in generated_language.sentences()]
        vocabulary = Words(line for side in parts[0] for line in side)
        if len(vocabulary.tokens) > most:
            raise InputError(f"data {name!r}: {len(vocabulary.tokens)} words, the model has {most}: choose another one")
    else:
        files = parallel_files.files(folder, name)
        parts = [parallel_files.read(pairs, name) for pairs in (files.training, files.test)]
        vocabulary = Pieces([line for pair in zip(*parts[0], strict=True) for line in pair], most)
    training, test = ((_tokens(vocabulary, sources), _tokens(vocabulary, targets)) for sources, targets in parts)
    return _Corpus(vocabulary, training, test, tuple(parts[1][1]))


def _tokens(vocabulary: Vocabulary, lines: Sequence[str]) -> Ragged:
    parts = range(0, len(lines), ENCODED_AT_ONCE)
    return Ragged.joined([Ragged.of(vocabulary.encoded(lines[at : at + ENCODED_AT_ONCE])) for at in parts])
