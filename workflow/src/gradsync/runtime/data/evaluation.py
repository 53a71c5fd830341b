"""The share of labels of the test samples that a model predicts."""

from __future__ import annotations

import math

import torch
from torch import nn

from gradsync.runtime.data.samples import Samples
from gradsync.runtime.models.spec import Model, labelled

SAMPLES_AT_ONCE = 256
VALUES_AT_ONCE = 2**20  # of input: 6 images of 3 x 224 x 224, for which VGG-19 takes some 350 MB
OUTPUTS_AT_ONCE = 2**24  # 67 MB: what BERT-Base gives for 4 sequences of 128 tokens


def accuracy(model: nn.Module, test: Samples, spec: Model | None = None) -> float:
    """The accuracy of `model` on all test samples, as `predicted` counts it."""
    right, labels = predicted(model, test, torch.arange(len(test)), spec)
    return right / labels


def predicted(
    model: nn.Module, test: Samples, indices: torch.Tensor, spec: Model | None = None, batch: int = 1
) -> tuple[int, int]:
    """(labels that `model` predicts, labels) of those test samples, in eval mode without gradients.

    As many are evaluated at once as memory is sure to hold: small samples in hundreds, large ones in few, and in any
    case as many as it is trained on at once, `batch`. `spec` says what counts as right: the label of an image, the
    masked tokens of a text. The model comes back in the mode that it was in, its parameters and running statistics
    unchanged.
    """
    parameter = next(model.parameters())
    at_once = min(SAMPLES_AT_ONCE, VALUES_AT_ONCE // math.prod(test.shape))
    if spec is not None:
        at_once = min(at_once, OUTPUTS_AT_ONCE // spec.outputs(test.shape))
    at_once = max(at_once, batch)
    predicts = labelled if spec is None else spec.right
    training = model.training
    model.eval()
    right, labels = 0, 0
    try:
        with torch.no_grad():
            for first in range(0, len(indices), at_once):
                inputs, expected = test.batch(indices[first : first + at_once], 0)
                inputs = inputs.to(parameter.device, parameter.dtype if inputs.is_floating_point() else None)
                new_right, new_labels = predicts(model(inputs), expected.to(parameter.device))
                right, labels = right + new_right, labels + new_labels
    finally:
        model.train(training)
    return right, labels
