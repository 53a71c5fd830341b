"""Ranks get samples of each data set in the shape that the model takes, in batches, prepared ahead."""

import threading

import pytest
import torch

from gradsync.runtime import data
from image_files import load
from waiting import HANGS_SECONDS

FOLDERS = {"digits": None, "synthetic": None, "mnist": "mnist", "cifar10": "cifar10", "imagenet": "photographs"}


@pytest.fixture(params=FOLDERS)
def loaded(request):
    """Each set as a three-channel model at 32 pixels takes it."""
    if request.param == "cifar10":
        request.getfixturevalue("taken_for_published")
    folder = FOLDERS[request.param] and request.getfixturevalue(FOLDERS[request.param])
    return load(request.param, folder)


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
            for tensor, wanted in zip(feed(turn), sequential[turn], strict=True):
                assert torch.equal(tensor, wanted)


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


# --- batches


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


# --- photographs, which are prepared in a thread


def test_the_next_photographs_are_prepared_while_these_are_computed(photographs):
    loaded = load("imagenet", photographs)
    requests, prepared = [], threading.Event()

    class Watched:
        def batch(self, indices, epoch):
            requests.append((indices.tolist(), threading.current_thread() is threading.main_thread()))
            if len(requests) > 1:
                prepared.set()
            return loaded.training.batch(indices, epoch)

        def __getattr__(self, name):
            return getattr(loaded.training, name)

    with data.Feed(loaded._replace(training=Watched()), 0) as feed:
        feed(0)
        assert prepared.wait(HANGS_SECONDS)  # without another call
    assert requests == [(loaded.batches.indices(turn, 0).tolist(), False) for turn in (0, 1)]


def test_a_closed_feed_leaves_no_thread(photographs):
    before = set(threading.enumerate())
    feed = data.Feed(load("imagenet", photographs), 0)
    feed(0)
    own = set(threading.enumerate()) - before
    assert own
    feed.close()
    assert not any(thread.is_alive() for thread in own)
