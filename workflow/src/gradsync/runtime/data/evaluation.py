"""The share of test samples that a model labels rightly."""

from __future__ import annotations

import math

import torch
from torch import nn

from gradsync.runtime.data.samples import Samples

VALUES_AT_ONCE = 2**21  # of input: 13 images of 3 x 224 x 224, for which VGG-19 takes some 700 MB


def accuracy(model: nn.Module, test: Samples, batch: int = 256) -> float:
    """In eval mode, without gradients, at most `batch` samples at once, fewer where they are large.

    The model comes back in the mode that it was in, its parameters and running statistics unchanged.
    """
    parameter = next(model.parameters())
    at_once = max(1, min(batch, VALUES_AT_ONCE // math.prod(test.shape)))
    training = model.training
    model.eval()
    right = 0
    try:
        with torch.no_grad():
            for indices in torch.arange(len(test.labels)).split(at_once):
                images = test.images(indices, 0).to(parameter.device, parameter.dtype)
                right += int((model(images).argmax(1).cpu() == test.labels[indices]).sum())
    finally:
        model.train(training)
    return right / len(test.labels)
