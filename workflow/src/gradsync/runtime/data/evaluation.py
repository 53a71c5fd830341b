"""The share of labels of the test samples that a model predicts."""

from __future__ import annotations

import math

import torch
from torch import nn

from gradsync.runtime.data.samples import Samples
from gradsync.runtime.models.spec import Model, labelled

VALUES_AT_ONCE = 2**21  # of input: 13 images of 3 x 224 x 224, for which VGG-19 takes some 700 MB
OUTPUTS_AT_ONCE = 2**25  # 134 MB: what BERT-Base gives for 8 sequences of 128 tokens


def accuracy(model: nn.Module, test: Samples, batch: int = 256, spec: Model | None = None) -> float:
    """The accuracy of `model`, in eval mode without gradients: at most `batch` samples at once, fewer if large.

    `spec` says what counts as right: the label of an image, the masked tokens of a text. The model comes back in the
    mode that it was in, its parameters and running statistics unchanged.
    """
    parameter = next(model.parameters())
    at_once = min(batch, VALUES_AT_ONCE // math.prod(test.shape))
    if spec is not None:
        at_once = min(at_once, OUTPUTS_AT_ONCE // spec.outputs(test.shape))
    right = labelled if spec is None else spec.right
    training = model.training
    model.eval()
    correct, total = 0, 0
    try:
        with torch.no_grad():
            for indices in torch.arange(len(test)).split(max(1, at_once)):
                inputs, labels = test.batch(indices, 0)
                inputs = inputs.to(parameter.device, parameter.dtype if inputs.is_floating_point() else None)
                new_correct, new_total = right(model(inputs), labels.to(parameter.device))
                correct, total = correct + new_correct, total + new_total
    finally:
        model.train(training)
    return correct / total
