"""Corpus BLEU of a model's translations of the test sentences, as `sacrebleu` computes it.

Source: Papineni et al., "BLEU", ACL 2002; Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018: the library's
signature says how it was computed. Text is compared as it was before it became tokens, cut by the library's own
tokeniser (13a). Differs from what the papers' translations are usually decoded with: greedily, no beam.
"""

from __future__ import annotations

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


def bleu(model: nn.Module, test: Sentences) -> tuple[float, str]:
    """(BLEU in percent, signature of how it was computed) of the model's translations of all test sentences.

    The model comes back in the mode that it was in.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(force=True)
    score = metric.corpus_score(translations(model, test), [list(test.references)])
    return float(score.score), str(metric.get_signature())


def translations(model: nn.Module, test: Sentences) -> list[str]:
    """The model's translation of each test sentence; sentences of like lengths are translated at once."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    texts = [""] * len(test)
    order = torch.from_numpy(test.sources.lengths[test.rows]).argsort(stable=True)
    try:
        for indices in order.split(SENTENCES_AT_ONCE):
            inputs, _ = test.batch(indices, 0)
            sources = inputs[:, 0, : 1 + int(test.sources.lengths[test.rows[indices[-1]]])]
            most = min(test.shape[-1], sources.shape[1] + LONGER)
            tokens = cast(Transformer, model).translate(sources.to(device), most).tolist()
            for index, numbers in zip(indices.tolist(), tokens, strict=True):
                texts[index] = test.vocabulary.text(numbers)
    finally:
        model.train(training)
    return texts
