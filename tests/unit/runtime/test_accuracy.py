"""The accuracy of a model on test samples: the share of right labels, a few samples at once."""

import pytest
import torch

from gradsync.runtime import data
from image_files import load


class Brightest(torch.nn.Module):
    """Predicts the column of the brightest pixel in the first row; counts how many images it was shown."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.noise = torch.nn.Dropout(0.9)
        self.shown = []

    def forward(self, images):
        assert not torch.is_grad_enabled()
        assert images.dtype == self.scale.dtype
        self.shown.append(len(images))
        return self.noise(self.scale * images[:, 0, 0])


def seven_in_ten(samples: int) -> data.Pixels:
    """So many samples, of which three in ten have the wrong label."""
    pixels = torch.zeros(samples, 1, 8, 8, dtype=torch.uint8)
    labels = torch.arange(samples) % 10 % 8
    pixels[torch.arange(samples), 0, 0, labels] = 200
    labels[torch.isin(torch.arange(samples) % 10, torch.tensor([2, 5, 9]))] += 1
    return data.Pixels(pixels, labels, 255, (1, 8, 8))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("samples", "shown"), [(10, [10]), (600, [256, 256, 88])])
def test_accuracy_is_the_share_of_right_labels(training, samples, shown):
    model = Brightest().double().train(training)
    assert data.accuracy(model, seven_in_ten(samples)) == 0.7
    assert model.shown == shown
    assert model.training is model.noise.training is training


def test_a_part_of_the_samples_is_evaluated_at_least_as_many_at_once_as_are_trained_on():
    model = Brightest()
    assert data.predicted(model, seven_in_ten(1000), torch.arange(1, 1000, 2), batch=300) == (250 + 50, 500)
    assert model.shown == [300, 200]
    assert data.predicted(model, seven_in_ten(10), torch.arange(0)) == (0, 0)  # more ranks than samples


def test_large_images_are_tested_a_few_at_once():
    class Side(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = torch.nn.Linear(1, 10)
            self.most = 0

        def forward(self, images):
            self.most = max(self.most, images.numel())
            return self.dense(images[:, 0, :1, 0])

    model = Side()
    data.accuracy(model, load("digits", size=224).test)
    assert 3 * 224 * 224 < model.most <= 2**20
