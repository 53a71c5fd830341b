"""A WordPiece vocabulary, learnt from the text that is trained on.

Source: Devlin et al., "BERT", NAACL 2019, Section 3: WordPiece of lower case; the `tokenizers` library learns it.

Its trainer numbers pieces in the order in which it meets words in a hash table, which differs from process to process,
and ties between pieces go by those numbers. Ranks must agree, so every piece of one character gets its number before
the trainer starts; then it learns the same pieces in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradsync.runtime.data.masked import SPECIAL

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LETTERS = 1000  # most different characters; rarer ones are unknown
RAREST = 2  # times that a piece must be there
UNKNOWN = SPECIAL[1]
CONTINUED = "##"


def learnt(documents: Sequence[str], most: int) -> Tokenizer:
    """The tokeniser of these texts, of `most` pieces at most; the special ones come first."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    def empty(vocabulary: dict[str, int]) -> Tokenizer:
        tokeniser = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
        tokeniser.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokeniser

    learning = empty({})
    counted: Counter[str] = Counter()
    for document in documents:
        counted.update(learning.normalizer.normalize_str(document))
    common = sorted(
        (letter for letter in counted if not letter.isspace()), key=lambda letter: (-counted[letter], letter)
    )
    letters = sorted(common[: min(LETTERS, (most - len(SPECIAL)) // 2)])
    trainer = trainers.WordPieceTrainer(
        vocab_size=most,
        min_frequency=RAREST,
        special_tokens=[*SPECIAL, *letters, *(CONTINUED + letter for letter in letters)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learning.train_from_iterator(documents, trainer)
    numbered = learning.get_vocab()
    # without what the trainer takes for special: a letter is part of a word
    return empty({piece: number for number, piece in enumerate(sorted(numbered, key=lambda piece: numbered[piece]))})
