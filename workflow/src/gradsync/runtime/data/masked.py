"""Pairs of sentences with masked tokens, as BERT is pre-trained on.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019,
Section 3.1 and A.1: half of the second sentences follow the first one in the text, the others come from elsewhere;
15 % of the tokens are to be predicted, of which 80 % are replaced by `[MASK]`, 10 % by any token, 10 % by none.

Differs: pairs fill their length, while BERT has a tenth of shorter ones. Sentences of a pair are as long as they come
(several may stand for one, as in BERT), and are parted at the end of a sentence that is nearest to the middle.

What is masked is a function of (seed, epoch, sample) alone: every contender and the oracle see the same, and so does a
resumed run; each epoch masks other tokens.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from gradsync.runtime.models.spec import NOT_COUNTED

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLASS, SEPARATOR, MASK = 2, 3, 4  # token numbers; ordinary ones come after them
ORDINARY = len(SPECIAL)
SHARE = 0.15  # of the tokens are to be predicted
MASKED, REPLACED = 0.8, 0.1  # of those; the rest stay


class MaskedPairs:
    """Samples (2, length) of one long text: `tokens` (tokens,), of which sample i starts at `starts[i]`.

    A batch is inputs (indices, 2, length), tokens and the sentence that each belongs to, and labels (indices, length):
    the token if it is to be predicted, else NOT_COUNTED; the first column says whether the second sentence follows
    the first one (0) or not (1). `vocabulary`: tokens that may replace another; `stops`: those that end a sentence.
    """

    decoded = False

    def __init__(
        self,
        tokens: np.ndarray,
        starts: np.ndarray,
        length: int,
        vocabulary: int,
        seed: tuple[int, ...],
        stops: tuple[int, ...] = (),
    ):
        self.tokens, self.starts, self.vocabulary, self.seed = tokens, starts, vocabulary, seed
        self.stops = np.array(stops, tokens.dtype)
        self.shape: tuple[int, ...] = (2, length)
        self.span = length - 3  # but for [CLS] and twice [SEP]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sha256(self) -> str:
        """Of all tokens: other text, or another vocabulary, has another one."""
        return hashlib.sha256(self.tokens.tobytes()).hexdigest()

    def batch(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (indices, 2, length) and labels (indices, length), as they are masked in that epoch."""
        inputs, labels = zip(*(self._sample(index, epoch) for index in indices.tolist()), strict=True)
        return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(labels))

    def _sample(self, index: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng((*self.seed, epoch, index))
        start = self.starts[index]
        parted = self._parted(index)
        follows = random.random() < 0.5 or len(self.starts) == 1
        if follows:
            second = self.tokens[start + parted : start + self.span]
        else:
            other = (index + int(random.integers(1, len(self.starts)))) % len(self.starts)
            begin = min(self.starts[other] + self._parted(other), len(self.tokens) - (self.span - parted))
            second = self.tokens[begin : begin + self.span - parted]
        inputs = np.zeros(self.shape, np.int64)
        first_end = 1 + parted
        inputs[0, 0], inputs[0, [first_end, -1]] = CLASS, SEPARATOR
        inputs[0, 1:first_end], inputs[0, first_end + 1 : -1] = self.tokens[start : start + parted], second
        inputs[1, first_end + 1 :] = 1
        labels = self._masked(inputs[0], first_end, random)
        labels[0] = 0 if follows else 1
        return inputs, labels

    def _parted(self, index: int) -> int:
        """The number of tokens of the first sentence: both sentences have one at least."""
        start = self.starts[index]
        middle = self.span // 2
        ends = 1 + np.flatnonzero(np.isin(self.tokens[start : start + self.span - 1], self.stops))
        return int(ends[np.abs(ends - middle).argmin()]) if len(ends) else middle

    def _masked(self, tokens: np.ndarray, first_end: int, random: np.random.Generator) -> np.ndarray:
        """Mask `tokens` (length,), which is mutated; returns the labels."""
        ordinary = np.delete(np.arange(len(tokens)), [0, first_end, -1])
        chosen = random.choice(ordinary, max(1, round(SHARE * len(ordinary))), replace=False)
        labels = np.full(len(tokens), NOT_COUNTED, np.int64)
        labels[chosen] = tokens[chosen]
        fate = random.random(len(chosen))
        replaced = (fate >= MASKED) & (fate < MASKED + REPLACED)
        tokens[chosen[fate < MASKED]] = MASK
        tokens[chosen[replaced]] = random.integers(ORDINARY, self.vocabulary, replaced.sum())
        return labels
