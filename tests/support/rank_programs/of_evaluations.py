"""What ranks find of a model together, and what rank 0 finds alone."""

from __future__ import annotations

import torch

from gradsync.runtime import data, models
from gradsync.runtime.data import bleu
from gradsync.runtime.evaluate import Evaluated, evaluate

SAMPLES, SENTENCES = 20, 5  # of which three ranks have unlike numbers


def evaluated(rank: int, ranks: int) -> dict[str, tuple[Evaluated, Evaluated | None]]:
    """By who has a model: what `evaluate` gives, and what the rank's does alone; ranks have other statistics."""
    spec = models.get("resnet18")
    torch.manual_seed(1)
    pixels = torch.randint(256, (SAMPLES, 3, 8, 8), dtype=torch.uint8)
    model = _with_statistics("resnet18", rank)
    with torch.no_grad():  # half of the labels are right for rank 0's statistics
        labels = _with_statistics("resnet18", 0).eval()(pixels.float() / 255).argmax(1)
    labels[::2] += 1
    test = data.Pixels(pixels, labels, 255, (3, 8, 8))
    before = [buffer.clone() for buffer in model.buffers()]
    alone = Evaluated(data.accuracy(model, test, spec), None)
    assert (alone.accuracy == 0.5) == (rank == 0)
    dealt = evaluate(model, test, spec, batch=2)
    single = evaluate(model if rank == 0 else None, test, spec, batch=2)
    assert all(torch.equal(buffer, value) for buffer, value in zip(model.buffers(), before, strict=True))
    return {"all": (dealt, alone), "rank 0": (single, alone), "translations": _of_translations(rank)}


def _of_translations(rank: int) -> tuple[Evaluated, Evaluated | None]:
    name = "transformer_small"
    spec = models.get(name)
    test = data.load("translation", model=name, size=None, batch=2, ranks=2, seed=0).test
    assert isinstance(test, data.Sentences)
    test.rows, test.references = test.rows[:SENTENCES], test.references[:SENTENCES]
    model = models.build(name, 3)
    torch.manual_seed(0)
    with torch.no_grad():  # so that it says something else of each sentence
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    alone = None
    if rank == 0:
        alone = Evaluated(data.accuracy(model, test, spec), bleu.bleu(bleu.translations(model, test), test))
    return evaluate(model, test, spec, batch=2), alone


def _with_statistics(name: str, rank: int) -> torch.nn.Module:
    """A model that says something else of the same images for the statistics of each rank."""
    model = models.build(name, 0)
    generator = torch.Generator().manual_seed(rank)
    for key, buffer in model.named_buffers():
        if key.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
        elif key.endswith("running_var"):
            buffer.copy_(0.1 + torch.rand(buffer.shape, generator=generator))
    return model
