"""A small Transformer learns to translate the generated sentences: some minutes of one core at a time."""

import pytest
import torch

from gradsync.learning_rates import LearningRate
from gradsync.runtime import data, models
from gradsync.runtime.data import bleu

STEPS, BATCH, LR, WARMUP = 500, 32, 0.002, 100


@pytest.mark.deep
def test_generated_sentences_are_learnt_to_a_high_bleu():
    """80 was seen after 500 steps of 32 sentences, which took 30 seconds of one core, and 93 after 700."""
    pytest.importorskip("sacrebleu")
    name = "transformer_small"
    loaded = data.load("translation", model=name, size=None, batch=BATCH, ranks=1, seed=0)
    model, spec = models.build(name, 0), models.get(name)
    rate = LearningRate("inverse_sqrt", WARMUP, STEPS)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=(0.9, 0.98))
    before, _ = bleu.bleu(bleu.translations(model, loaded.test), loaded.test)
    for turn in range(STEPS):
        optimizer.param_groups[0]["lr"] = LR * rate(turn)
        inputs, labels = data.shard(loaded, turn, 0)
        optimizer.zero_grad()
        spec.loss(model(inputs), labels).backward()
        optimizer.step()
    after, _ = bleu.bleu(bleu.translations(model, loaded.test), loaded.test)
    assert before < 5
    assert after > 60
