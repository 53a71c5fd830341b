"""Sentences with their translations, as the Transformer takes them: padded to the longest one of a batch.

A source is its tokens and END. The decoder is given START and the tokens of the target, and must predict the tokens and
END: the label of a place is the token that it is given at the next one. Sources are padded with PADDING, which the
model does not attend to; labels with NOT_COUNTED, which neither the loss nor the accuracy counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from gradsync.errors import InputError
from gradsync.runtime.data.vocabulary import Vocabulary
from gradsync.runtime.models.language import END, PADDING, START
from gradsync.runtime.models.spec import NOT_COUNTED


class Ragged:
    """Rows of different lengths in one array: row i is `tokens[starts[i] : starts[i + 1]]`."""

    def __init__(self, tokens: np.ndarray, starts: np.ndarray) -> None:
        self.tokens, self.starts = tokens, starts

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Self:
        """Those rows, in 16 bits a token if they fit."""
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        tokens = np.fromiter((token for row in rows for token in row), np.int32, int(starts[-1]))
        return cls(tokens.astype(np.uint16) if not len(tokens) or tokens.max() < 2**16 else tokens, starts)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in order."""
        lengths = [np.diff(part.starts) for part in parts]
        starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)])
        return cls(np.concatenate([part.tokens for part in parts]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, number: int, most: int) -> np.ndarray:
        """At most so many tokens of the row."""
        start = self.starts[number]
        return self.tokens[start : min(self.starts[number + 1], start + most)]

    @property
    def lengths(self) -> np.ndarray:
        """Of each row."""
        return np.diff(self.starts)


class Sentences:
    """Samples (2, length at most): source and target; labels (length at most).

    `rows` says which of the pairs count. A longer sentence is cut: training leaves such pairs out, and the test keeps
    them. `references` has the text of each target of the test, which translations are compared with; `generated` says
    that it is no natural language.
    """

    decoded = False

    def __init__(
        self,
        sources: Ragged,
        targets: Ragged,
        length: int,
        vocabulary: Vocabulary,
        *,
        rows: np.ndarray | None = None,
        references: Sequence[str] = (),
        generated: bool = False,
    ) -> None:
        self.sources, self.targets, self.vocabulary = sources, targets, vocabulary
        self.rows = np.arange(len(sources)) if rows is None else rows
        self.shape: tuple[int, ...] = (2, length)
        self.references, self.generated = references, generated

    def __len__(self) -> int:
        return len(self.rows)

    def same(self, before: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
        """What a checkpoint keeps of these sentences: the size of the vocabulary, SHA-256 of it and of all tokens.

        Raises InputError if `before`, which the checkpoint has kept, is of others; it is empty if there is none.
        """
        hashed = hashlib.sha256("\n".join(self.vocabulary.tokens).encode())
        for part in (self.sources, self.targets):
            hashed.update(part.starts.tobytes())
            hashed.update(part.tokens.tobytes())
        kept = {"tokens": len(self.vocabulary.tokens), "sha256": hashed.hexdigest()}
        if before not in ({}, kept):
            raise InputError(
                f"checkpoint {checkpoint} is of other sentences: their vocabulary has {before['tokens']} tokens, that "
                f"of the data is of {kept['tokens']} or of other ones: restore the files, or delete {checkpoint} to "
                "start anew"
            )
        return kept

    def batch(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (indices, 2, longest) and labels (indices, longest), the same in every epoch."""
        room = self.shape[-1] - 1
        numbers = self.rows[indices.numpy()]
        sources = [self.sources.row(number, room) for number in numbers]
        targets = [self.targets.row(number, room) for number in numbers]
        lengths = self.targets.starts[numbers + 1] - self.targets.starts[numbers]
        longest = 1 + max(map(len, [*sources, *targets]))
        inputs = np.full((len(numbers), 2, longest), PADDING, np.int64)
        labels = np.full((len(numbers), longest), NOT_COUNTED, np.int64)
        inputs[:, 1, 0] = START
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            inputs[i, 0, : len(source)], inputs[i, 0, len(source)] = source, END
            inputs[i, 1, 1 : len(target) + 1] = target
            labels[i, : len(target)] = target
            if lengths[i] <= room:  # the end of a sentence that was cut is not here
                labels[i, len(target)] = END
        return torch.from_numpy(inputs), torch.from_numpy(labels)
