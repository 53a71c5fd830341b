"""What the ranks of a training find of a contender together: the accuracy on the test samples, and BLEU.

Test samples are dealt to the ranks that have a whole model. Each rank has running statistics of batch normalisation
of its own: meanwhile all have rank 0's, whose model it is that is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from gradsync.runtime.compute import statistics
from gradsync.runtime.data import Samples, Sentences, bleu, predicted
from gradsync.runtime.models.spec import Model


class Evaluated(NamedTuple):
    """`accuracy` is the same on all ranks; BLEU in percent of translations, and its signature, are rank 0's alone."""

    accuracy: float
    bleu: tuple[float, str] | None


def evaluate(model: nn.Module | None, test: Samples, spec: Model, batch: int) -> Evaluated:
    """What a model does with the test samples, evaluated by all ranks that have one, rank 0 among them. Collective.

    `batch`: samples on which a rank trains at once.
    """
    everybody: list[bool] = [False] * dist.get_world_size()
    dist.all_gather_object(everybody, model is not None)
    evaluators = [rank for rank, has_model in enumerate(everybody) if has_model]
    counts, texts = torch.zeros(2, dtype=torch.int64), dict[int, str]()
    with _statistics_of_rank_0(model):
        if model is not None:
            part, parts = evaluators.index(dist.get_rank()), len(evaluators)
            counts += torch.tensor(predicted(model, test, torch.arange(part, len(test), parts), spec, batch))
            if isinstance(test, Sentences):
                texts = bleu.translations(model, test, part, parts)
    dist.all_reduce(counts)  # the others wait here, where they may, and not in their next message
    right, labels = counts.tolist()
    return Evaluated(right / labels, _scored(texts, test) if isinstance(test, Sentences) else None)


def _scored(texts: dict[int, str], test: Sentences) -> tuple[float, str] | None:
    """BLEU of the translations of all ranks, on rank 0. Collective."""
    dealt: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(texts, dealt)
    return None if dealt is None else bleu.bleu({number: text for part in dealt for number, text in part.items()}, test)


@contextmanager
def _statistics_of_rank_0(model: nn.Module | None) -> Iterator[None]:
    """Lend a model the running statistics of rank 0's. Collective."""
    own = [] if model is None else statistics(model)
    given: list[Any] = [[buffer.cpu() for buffer in own] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(given, 0)
    kept = [buffer.clone() for buffer in own]
    _copy(given[0] if own else (), own)
    try:
        yield
    finally:
        _copy(kept, own)


def _copy(values: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        buffer.copy_(value)
