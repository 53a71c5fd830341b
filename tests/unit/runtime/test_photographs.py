"""Photographs in folders, as ImageNet has them: labels, crops, augmentation, and folders that are refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from gradsync.errors import InputError
from gradsync.runtime import data
from gradsync.runtime.data import imagenet
from image_files import load, random, write_photograph


def test_photographs_are_labelled_by_folder(photographs):
    loaded = load("imagenet", photographs)
    assert loaded.training.labels.tolist() == [label for label in range(3) for _ in range(5)]
    assert loaded.test.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_augmentation_is_a_function_of_seed_epoch_and_sample(photographs):
    training = load("imagenet", photographs).training
    forward = training.images(torch.arange(15), epoch=2)
    training.threads = 7
    torch.manual_seed(1)
    backward = training.images(torch.arange(14, -1, -1), epoch=2)
    assert torch.equal(forward, backward.flip(0))
    again = load("imagenet", photographs).training.images(torch.arange(15), epoch=2)
    assert torch.equal(forward, again)
    for other in (
        training.images(torch.arange(15), 3),
        load("imagenet", photographs, seed=6).training.images(torch.arange(15), 2),
    ):
        assert all(not torch.equal(mine, its) for mine, its in zip(forward, other, strict=True))


def test_test_photographs_are_the_normalised_centre(tmp_path):
    """Left half black, right half white, with a grey frame that the centre does not reach."""
    pixels = np.full((64, 96, 3), 128, np.uint8)
    pixels[8:-8, 24:48], pixels[8:-8, 48:72] = 0, 255
    for part in ("train", "val"):
        path = tmp_path / part / "cat" / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
    image = load("imagenet", tmp_path, size=32, batch=1, ranks=1, model="vgg19").test.images(torch.tensor([0]), 0)[0]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(image[:, 16, 8], (0 - mean) / deviation)
    torch.testing.assert_close(image[:, 16, 24], (1 - mean) / deviation)
    # 64 pixels become 37, of which 32 are kept: 24 black columns become 13.7 of 16
    black = (image[0, 16] < (0.1 - mean[0]) / deviation[0]).sum()
    assert 12 <= int(black) <= 14


def test_random_crops_have_the_published_area_and_ratio():
    boxes = [imagenet.random_box(500, 400, random(1, key)) for key in range(2000)]
    left, upper, right, lower = np.array(boxes).T
    assert (left >= 0).all()
    assert (upper >= 0).all()
    assert (right <= 500).all()
    assert (lower <= 400).all()
    area, ratio = (right - left) * (lower - upper) / 200_000, (right - left) / (lower - upper)
    assert 0.079 < area.min() < 0.1
    assert 0.9 < area.max() <= 1
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.345
    assert np.median(ratio) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("width", "height", "box"), [(3000, 3, (1498, 0, 1502, 3)), (2, 900, (0, 448, 2, 451))])
def test_an_image_that_no_ratio_fits_is_cropped_in_the_centre(width, height, box):
    centred = imagenet.random_box(width, height, random(1))
    assert centred == box


def test_half_of_the_training_photographs_are_mirrored(tmp_path):
    """Dark to the left, bright to the right: a mirrored one is the other way round."""
    ramp = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], 64, 0).repeat(3, 2)
    for part in ("train", "val"):
        path = tmp_path / part / "cat" / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(ramp).save(path)
    training = load("imagenet", tmp_path, batch=1, ranks=1, model="vgg19").training
    images = torch.cat([training.images(torch.tensor([0]), epoch) for epoch in range(200)])
    mirrored = int((images[:, 0, 16, 0] > images[:, 0, 16, -1]).sum())
    assert 70 < mirrored < 130


def test_a_file_that_is_no_image_is_named_when_its_turn_comes(photographs):
    broken = photographs / "train" / "emu" / "2.jpg"
    broken.write_bytes(broken.read_bytes()[:100])
    loaded = load("imagenet", photographs, batch=15, ranks=1)
    with data.Feed(loaded, 0) as feed, pytest.raises(InputError, match=r"emu/2\.jpg: no image that can be decoded"):
        feed(0)


@pytest.mark.parametrize("part", ["train", "val"])
def test_folders_of_another_layout_are_refused(photographs, part):
    (photographs / part).rename(photographs / "other")
    with pytest.raises(InputError, match=rf"{part} with a folder of images per class is needed"):
        load("imagenet", photographs)
    (photographs / part).mkdir()
    with pytest.raises(InputError, match=rf"{part} with a folder of images per class is needed: .*class folder"):
        load("imagenet", photographs)


def test_a_class_without_images_or_in_one_part_only_is_named(photographs):
    (photographs / "val" / "fox").mkdir()
    with pytest.raises(InputError, match="fox"):
        load("imagenet", photographs)
    write_photograph(photographs / "val" / "fox" / "0.png", 1)
    with pytest.raises(InputError, match="class 'fox' is only in one of"):
        load("imagenet", photographs)
