"""What the settings of a result tell of a training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradsync.configuration.training import Training
from gradsync.names import MODELS
from gradsync.runtime import models
from gradsync.runtime.train_results import recorded

TRANSLATES = [name for name in MODELS if models.get(name).takes == models.TRANSLATIONS]


@pytest.mark.parametrize("model", TRANSLATES)
def test_translations_tell_the_smoothing_that_they_are_trained_with(model):
    unset = Training(model=model)
    (smoothing,) = {recorded(unset, None)["label_smoothing"]}
    output, labels = torch.randn(2, 3, 50), torch.randint(4, 50, (2, 3))
    loss = models.get(model).loss
    torch.testing.assert_close(loss(output, labels), loss(output, labels, smoothing=smoothing))
    assert recorded(unset, None) == recorded(replace(unset, label_smoothing=smoothing), None)
    assert recorded(replace(unset, label_smoothing=0.0), None)["label_smoothing"] == 0.0


def test_of_other_models_there_is_none():
    assert TRANSLATES
    assert recorded(Training(model="lenet5"), None)["label_smoothing"] is None
