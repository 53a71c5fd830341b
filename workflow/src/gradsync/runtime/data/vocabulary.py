"""What tokens the sentences of a translation are made of: whole words, or pieces that are learnt from the text.

Both languages share one vocabulary, since a model has one embedding for both (Vaswani et al., "Attention Is All You
Need", NeurIPS 2017, Section 5.1: byte-pair encoding of both languages together). The special tokens come first.

Pieces are byte-pair encoding on bytes, which the `tokenizers` library learns: any text can be written with them, and
comes back as it was. Its alphabet is that of the 256 bytes, so that all processes learn the same pieces, in the same
order. They are learnt from at most LEARNT_LINES lines, evenly spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from gradsync.runtime.models.language import END, PADDING, START

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN = 1
LEARNT_LINES = 1_000_000
assert (SPECIAL[PADDING], SPECIAL[START], SPECIAL[END]) == ("<pad>", "<s>", "</s>")


class Vocabulary(Protocol):
    """Tokens of text, by number."""

    tokens: list[str]

    def encoded(self, lines: Sequence[str]) -> list[list[int]]:
        """The token numbers of each line, without special ones but for the unknown token."""
        ...

    def text(self, numbers: Iterable[int]) -> str:
        """The text of token numbers, up to the end of the sentence; special tokens are left out."""
        ...


class Words:
    """Every word of the lines, the commonest first; words are parted by spaces. Other words are unknown."""

    def __init__(self, lines: Iterable[str]) -> None:
        counted = Counter(word for line in lines for word in line.split())
        self.tokens = [*SPECIAL, *sorted(counted, key=lambda word: (-counted[word], word))]
        self._numbers = {word: number for number, word in enumerate(self.tokens)}

    def encoded(self, lines: Sequence[str]) -> list[list[int]]:
        """The token numbers of each line."""
        return [[self._numbers.get(word, UNKNOWN) for word in line.split()] for line in lines]

    def text(self, numbers: Iterable[int]) -> str:
        """Words, parted by spaces."""
        return " ".join(self.tokens[number] for number in _ordinary(numbers, len(self.tokens)))


class Pieces:
    """At most `most` pieces, learnt from the lines: see the module."""

    def __init__(self, lines: Sequence[str], most: int) -> None:
        self._tokeniser = _learnt(lines, most)
        numbered = self._tokeniser.get_vocab()
        self.tokens = sorted(numbered, key=lambda piece: numbered[piece])

    def encoded(self, lines: Sequence[str]) -> list[list[int]]:
        """The token numbers of each line."""
        return [encoding.ids for encoding in self._tokeniser.encode_batch(lines, add_special_tokens=False)]

    def text(self, numbers: Iterable[int]) -> str:
        """The text as it was."""
        return str(self._tokeniser.decode(list(_ordinary(numbers, len(self.tokens))))).strip()


def _ordinary(numbers: Iterable[int], tokens: int) -> Iterable[int]:
    """Without special tokens, and without those that no token has: a model's output may be wider than a vocabulary."""
    for number in numbers:
        if number == END:
            return
        if len(SPECIAL) <= number < tokens:
            yield number


def _learnt(lines: Sequence[str], most: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokeniser = Tokenizer(models.BPE())
    tokeniser.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokeniser.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=most,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokeniser.train_from_iterator(lines[:: -(-len(lines) // LEARNT_LINES)], trainer)
    return tokeniser
