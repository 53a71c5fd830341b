"""Digits, noise, MNIST and CIFAR-10: samples are those of the files, and a broken file is refused in one line."""

import math
import pickle

import numpy as np
import pytest
import torch

from gradsync.errors import InputError
from gradsync.runtime import data
from image_files import CIFAR_FILES, idx, load, random

# --- digits and synthetic


def test_digits_for_lenet_are_all_resized_at_once():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    whole = torch.from_numpy(bunch.images.astype(np.float32) / 16)[:, None]
    whole = torch.nn.functional.interpolate(whole, (28, 28), mode="bilinear", align_corners=False)
    order = random(5).permutation(1797)
    loaded = load("digits", model="lenet5", size=None)
    for part, chosen in ((loaded.test, order[:359]), (loaded.training, order[359:])):
        assert torch.equal(part.labels, torch.from_numpy(bunch.target[chosen]))
        some = torch.tensor([0, 17, 300])
        assert torch.equal(part.images(some, 0), whole[chosen[some]])
        assert len(part.labels) == len(chosen)


def test_one_channel_is_repeated_where_the_model_takes_three():
    three = load("digits").training.images(torch.arange(4), 0)
    assert torch.equal(three[:, 0], three[:, 1])
    assert torch.equal(three[:, 0], three[:, 2])


def test_noise_takes_the_memory_of_little_more_than_one_image():
    loaded = load("synthetic", model="googlenet", size=224, batch=64, ranks=8)
    assert loaded.batches.turns_an_epoch == 100
    held = loaded.training.windows.untyped_storage().nbytes()
    assert held < 3 * 4 * math.prod(loaded.training.shape)
    images, labels = data.shard(loaded, 99, 7)
    assert images.shape == (64, 3, 224, 224)
    assert abs(float(images.mean())) < 0.05
    assert abs(float(images.std()) - 1) < 0.05
    assert 0 <= labels.min() < labels.max() < 1000


# --- MNIST and CIFAR-10


def test_mnist_is_read_as_it_was_written(mnist):
    loaded = load("mnist", mnist, model="lenet5", size=None)
    pixels = random(12).integers(256, size=(12, 28, 28))
    indices = torch.tensor([11, 2])
    torch.testing.assert_close(
        loaded.training.images(indices, 0)[:, 0], torch.from_numpy(pixels[indices] / 255).float(), rtol=0, atol=1e-7
    )
    assert loaded.training.labels.tolist() == [*range(10), 0, 1]
    assert loaded.test.labels.tolist() == [*range(6)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"train-labels-idx1-ubyte is missing: unpack the four files"),
        (b"", r"can't be read .*: unpack them again"),
        (b"no idx file", r"can't be read .*: unpack them again"),
        (idx(np.arange(11)), r"12 images, 11 labels: unpack them again"),
        (idx(np.full(12, 10)), r"'mnist' has 11 classes, model 'lenet5' has 10 outputs"),
    ],
)
def test_a_broken_file_of_mnist_is_refused(mnist, content, message):
    labels = mnist / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    labels.unlink()
    if content is not None:
        labels.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load("mnist", mnist, model="lenet5", size=None)


@pytest.mark.usefixtures("taken_for_published")
def test_cifar10_is_read_as_it_was_written(cifar10):
    loaded = load("cifar10", cifar10)
    pixels = np.stack([random(key).integers(256, size=(2, 3072), dtype=np.uint8) for key in range(6)])
    pixels = pixels.reshape(12, 3, 32, 32) / 255
    for part, chosen in ((loaded.training, slice(0, 10)), (loaded.test, slice(10, 12))):
        images = part.images(torch.arange(len(part.labels)), 0)
        torch.testing.assert_close(images, torch.from_numpy(pixels[chosen]).float(), rtol=0, atol=1e-7)
    assert loaded.training.labels.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


class Trap:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.usefixtures("taken_for_published")
def test_a_pickle_that_is_not_the_published_one_is_never_loaded(cifar10, tmp_path):
    trap, sprung = pickle.dumps(Trap(tmp_path / "sprung")), tmp_path / "sprung"
    pickle.loads(trap).close()
    assert sprung.exists()
    sprung.unlink()
    for file in (*CIFAR_FILES, "batches.meta"):
        path = cifar10 / "cifar-10-batches-py" / file
        published = path.read_bytes()
        path.write_bytes(trap)
        with pytest.raises(InputError, match=r"is not the published one \(its MD5 differs\)"):
            load("cifar10", cifar10)
        assert not sprung.exists()
        path.write_bytes(published)


def test_a_missing_file_of_cifar10_is_named(cifar10):
    (cifar10 / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(InputError, match=r"data_batch_4 is missing: unpack cifar-10-python\.tar\.gz there"):
        load("cifar10", cifar10)
