"""Sets are read from small local folders made here; ranks share them; what does not fit is refused in one line."""

import dataclasses
import hashlib
import math
import pickle
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from gradsync.errors import InputError
from gradsync.runtime import data, models
from gradsync.runtime.data import imagenet
from gradsync.runtime.torchvision_operators import torchvision
from waiting import HANGS_SECONDS

CLASSES = ("cat", "dog", "emu")


def load(name, folder=None, model="resnet18", size=32, batch=2, ranks=2, seed=5):
    return data.load(name, model=model, size=size, batch=batch, ranks=ranks, seed=seed, folder=folder)


def random(*key):
    return np.random.default_rng(key)


def idx(values):
    """The bytes of an MNIST file."""
    header = np.array([0x800 + values.ndim, *values.shape], ">u4")
    return header.tobytes() + values.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, samples in (("train", 12), ("t10k", 6)):
        pixels = random(samples).integers(256, size=(samples, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(samples) % 10))
    return tmp_path


CIFAR_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


@pytest.fixture
def cifar10(tmp_path):
    """Files of the layout of CIFAR-10, which are not the published ones."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for key, file in enumerate(CIFAR_FILES):
        batch = {"data": random(key).integers(256, size=(2, 3072), dtype=np.uint8), "labels": [key, key + 1]}
        (folder / file).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(label) for label in range(10)]}))
    return tmp_path


@pytest.fixture
def taken_for_published(cifar10, monkeypatch):
    """Puts the MD5 of these files where those of the published ones are."""

    def listed(*files):
        return [[f, hashlib.md5((cifar10 / "cifar-10-batches-py" / f).read_bytes()).hexdigest()] for f in files]

    published = torchvision().datasets.CIFAR10
    monkeypatch.setattr(published, "train_list", listed(*CIFAR_FILES[:5]))
    monkeypatch.setattr(published, "test_list", listed(*CIFAR_FILES[5:]))
    monkeypatch.setattr(published, "meta", published.meta | {"md5": listed("batches.meta")[0][1]})


def photograph(path, key):
    path.parent.mkdir(parents=True, exist_ok=True)
    size = random(key).integers(40, 90, size=2)
    coarse = Image.fromarray(random(key).integers(256, size=(4, 4, 3), dtype=np.uint8))
    coarse.resize(size.tolist(), Image.Resampling.BILINEAR).save(path)


@pytest.fixture
def photographs(tmp_path):
    for part, images in (("train", 5), ("val", 2)):
        for label, name in enumerate(CLASSES):
            for number in range(images):
                photograph(tmp_path / part / name / f"{number}.{('jpg', 'png')[number % 2]}", 10 * label + number)
    return tmp_path


FOLDERS = {"digits": None, "synthetic": None, "mnist": "mnist", "cifar10": "cifar10", "imagenet": "photographs"}


@pytest.fixture(params=FOLDERS)
def loaded(request):
    """Each set as a three-channel model at 32 pixels takes it."""
    if request.param == "cifar10":
        request.getfixturevalue("taken_for_published")
    folder = FOLDERS[request.param] and request.getfixturevalue(FOLDERS[request.param])
    return load(request.param, folder)


# --- every set


def test_every_set_gives_what_the_model_takes(loaded):
    for part in (loaded.training, loaded.test):
        if part is None:
            assert loaded.name == "synthetic"
            continue
        images = part.images(torch.tensor([1, 0, 1]), epoch=0)
        assert images.shape == (3, *part.shape) == (3, 3, 32, 32)
        assert images.dtype == torch.float32
        assert torch.equal(images[0], images[2])
        assert not torch.equal(images[0], images[1])
        assert part.labels.dtype == torch.int64
        if loaded.name in ("digits", "mnist", "cifar10"):
            assert images.min() >= 0
            assert 0.5 < images.max() <= 1


def test_a_feed_may_be_asked_for_any_turn(loaded):
    turns = loaded.batches.turns_an_epoch + 2
    with data.Feed(loaded, 1) as feed:
        sequential = [feed(turn) for turn in range(turns)]
    with data.Feed(loaded, 1) as feed:
        for turn in (turns - 1, 0, 0, turns - 2, turns - 1):
            for found, wanted in zip(feed(turn), sequential[turn], strict=True):
                assert torch.equal(found, wanted)


def test_a_feed_gives_the_rank_its_samples_of_the_epoch_in_its_precision(loaded):
    turn = loaded.batches.turns_an_epoch + 1
    with data.Feed(loaded, 1, torch.float64) as feed:
        images, labels = feed(turn)
    indices = loaded.batches.indices(turn, 1)
    assert images.dtype == torch.float64
    assert torch.equal(labels, loaded.training.labels[indices])
    assert torch.equal(images, loaded.training.images(indices, epoch=1).double())


def test_loading_and_feeding_leave_torchs_random_numbers_alone(loaded):
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    with data.Feed(load("synthetic"), 0) as noise, data.Feed(loaded, 0) as feed:
        noise(0), feed(0), feed(1)
    assert torch.equal(torch.rand(3), wanted)


# --- who gets what


@pytest.mark.parametrize(("samples", "batch", "ranks"), [(24, 2, 3), (25, 4, 2), (7, 1, 7)])
def test_an_epoch_is_a_permutation_without_its_tail(samples, batch, ranks):
    batches = data.Batches(samples, batch, ranks, seed=1)
    assert batches.turns_an_epoch == samples // (batch * ranks)
    epochs = []
    for epoch in range(2):
        turns = range(epoch * batches.turns_an_epoch, (epoch + 1) * batches.turns_an_epoch)
        shards = [batches.indices(turn, rank).tolist() for turn in turns for rank in range(ranks)]
        assert all(len(shard) == batch for shard in shards)
        epochs.append([sample for shard in shards for sample in shard])
        assert len(set(epochs[-1])) == len(epochs[-1])  # no sample twice: ranks are disjoint
        assert set(epochs[-1]) <= set(range(samples))
        assert samples - len(epochs[-1]) < batch * ranks
    assert epochs[0] != epochs[1]


def test_batches_are_a_function_of_seed_and_turn():
    def turns(order, seed=1):
        batches = data.Batches(40, 2, 2, seed)
        return {turn: batches.indices(turn, 1).tolist() for turn in order}

    assert turns([25, 3, 11, 0]) == turns([0, 3, 11, 25])
    assert turns([0]) != turns([0], seed=2)


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


# --- photographs


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
    found = load("imagenet", tmp_path, size=32, batch=1, ranks=1, model="vgg19").test.images(torch.tensor([0]), 0)[0]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(found[:, 16, 8], (0 - mean) / deviation)
    torch.testing.assert_close(found[:, 16, 24], (1 - mean) / deviation)
    # 64 pixels become 37, of which 32 are kept: 24 black columns become 13.7 of 16
    black = (found[0, 16] < (0.1 - mean[0]) / deviation[0]).sum()
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


def test_the_next_photographs_are_prepared_while_these_are_computed(photographs):
    loaded = load("imagenet", photographs)
    asked, prepared = [], threading.Event()

    class Watched:
        def batch(self, indices, epoch):
            asked.append((indices.tolist(), threading.current_thread() is threading.main_thread()))
            if len(asked) > 1:
                prepared.set()
            return loaded.training.batch(indices, epoch)

        def __getattr__(self, name):
            return getattr(loaded.training, name)

    with data.Feed(loaded._replace(training=Watched()), 0) as feed:
        feed(0)
        assert prepared.wait(HANGS_SECONDS)  # without another call
    assert asked == [(loaded.batches.indices(turn, 0).tolist(), False) for turn in (0, 1)]


def test_a_closed_feed_leaves_no_thread(photographs):
    before = threading.active_count()
    feed = data.Feed(load("imagenet", photographs), 0)
    feed(0)
    assert threading.active_count() > before
    feed.close()
    assert threading.active_count() == before


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
    photograph(photographs / "val" / "fox" / "0.png", 1)
    with pytest.raises(InputError, match="class 'fox' is only in one of"):
        load("imagenet", photographs)


# --- what does not fit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "letters"}, "data 'letters' does not exist; there are: digits, mnist, cifar10, imagenet, synthetic"),
        (
            {"name": "mnist"},
            "needs a folder that holds MNIST/raw: set data_folder in the configuration, or give --data",
        ),
        ({"name": "imagenet", "folder": "/nowhere"}, "folder /nowhere does not exist: correct data_folder or --data"),
        ({"name": "cifar10", "model": "lenet5", "size": 28}, "'cifar10' has 3 channels, model 'lenet5' takes 1"),
        ({"name": "digits", "batch": 360, "ranks": 4}, "batch 360 x 4 ranks is more than the 1438 training samples"),
        ({"name": "digits", "size": 16, "model": "vgg19"}, "takes no images of 16 x 16: the smallest is 32"),
        ({"name": "digits", "model": "alexnet"}, "model 'alexnet' does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        load(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_classes_than_outputs_are_refused(photographs, monkeypatch):
    monkeypatch.setitem(models.MODELS, "resnet18", dataclasses.replace(models.get("resnet18"), classes=2))
    with pytest.raises(InputError, match="'imagenet' has 3 classes, model 'resnet18' has 2 outputs"):
        load("imagenet", photographs)


# --- accuracy


class Brightest(torch.nn.Module):
    """Says that the label is the column of the brightest pixel in the first row; counts how many it was shown."""

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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("batch", "shown"), [(4, [4, 4, 2]), (256, [10])])
def test_accuracy_is_the_share_of_right_labels(training, batch, shown):
    pixels = torch.zeros(10, 1, 8, 8, dtype=torch.uint8)
    labels = torch.arange(10) % 8
    pixels[torch.arange(10), 0, 0, labels] = 200
    labels[[2, 5, 9]] += 1  # three of ten are wrong
    test = data.Pixels(pixels, labels, 255, (1, 8, 8))
    model = Brightest().double().train(training)
    assert data.accuracy(model, test, batch) == 0.7
    assert model.shown == shown
    assert model.training is model.noise.training is training


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
    assert 3 * 224 * 224 < model.most <= 2**21
