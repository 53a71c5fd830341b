"""Corpus BLEU of a model's translations of the test sentences, as `sacrebleu` computes it.

Source: Papineni et al., "BLEU", ACL 2002; Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018: the library's
signature says how it was computed. Text is compared as it was before it became tokens, cut by the library's own
tokeniser (13a). Differs from what the papers' translations are usually decoded with: greedily, no beam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.runtime.data.sentences import Sentences
from gradsync.runtime.models.language import Transformer

SENTENCES_AT_ONCE = 64
LONGER = 50  # tokens that a translation may have more than its source: Vaswani et al., 2017, Section 6.1


def refuse() -> None:
    """Raises InputError if the library is not installed: no training finds that out after its first epoch."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise InputError(
            "translations are scored by sacrebleu, which is not installed: set up the environment again"
        ) from None


def bleu(texts: Mapping[int, str], test: Sentences) -> tuple[float, str]:
    """(BLEU in percent, signature of how it was computed) of the translations of all test sentences, by number."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(force=True)
    score = metric.corpus_score([texts[number] for number in range(len(test))], [list(test.references)])
    return float(score.score), str(metric.get_signature())


def translations(model: nn.Module, test: Sentences, part: int = 0, parts: int = 1) -> dict[int, str]:
    """The model's translations of the test sentences, or of one part of so many, by number.

    Sentences of like lengths are translated at once, and all parts have some of every length. The model comes back in
    the mode that it was in.
    """
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    texts = {}
    order = torch.from_numpy(test.sources.lengths[test.rows]).argsort(stable=True)[part::parts]
    try:
        for first in range(0, len(order), SENTENCES_AT_ONCE):
            indices = order[first : first + SENTENCES_AT_ONCE]
            inputs, _ = test.batch(indices, 0)
            sources = inputs[:, 0, : 1 + int(test.sources.lengths[test.rows[indices[-1]]])]
            most = min(test.shape[-1], sources.shape[1] + LONGER)
            tokens = cast(Transformer, model).translate(sources.to(device), most).tolist()
            for index, numbers in zip(indices.tolist(), tokens, strict=True):
                texts[index] = test.vocabulary.text(numbers)
    finally:
        model.train(training)
    return texts
