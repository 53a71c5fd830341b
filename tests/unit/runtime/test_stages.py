"""Trainings in stages: which turn has which images, and which rate; what is refused; the time to an accuracy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradsync.configuration import recipes, settings
from gradsync.configuration.options import words
from gradsync.configuration.training import Training
from gradsync.errors import InputError
from gradsync.plan.blocks import borders_of_blocks
from gradsync.runtime import data, models
from gradsync.runtime.contenders import Record
from gradsync.runtime.repeats import of_phases, to_accuracy

ROOT = Path(__file__).parents[3]
RANKS = 2
RECIPE = ("epochs=2,size=8,batch=100", "epochs=1,size=16,batch=200,lr=0.01", "epochs=1,size=24,batch=50")


def staged(recipe=RECIPE, **options):
    return Training(model="resnet18", data="digits", lr=0.02, recipe=recipe, **options)


def test_turns_epochs_and_shares_are_those_of_the_stages():
    loaded = data.load_stages(staged(), RANKS, seed=3)
    assert loaded.an_epoch == [7, 3, 14]  # of 1438 samples
    assert (loaded.first, loaded.turns) == ([0, 14, 17], 31)
    assert [loaded.number(turn) for turn in (0, 13, 14, 16, 17, 30)] == [0, 0, 1, 1, 2, 2]
    assert [loaded.epochs_after(turn) for turn in (0, 7, 14, 17, 24, 31)] == [0, 1, 2, 3, 3.5, 4]
    assert loaded.turns_after([0.5, 0.25, 0.25]) == [14, 17]
    assert data.load_stages(staged(iterations=20), RANKS, seed=3).turns == 20
    assert data.load_stages(staged(iterations=10), RANKS, seed=3).first == [0]


def test_a_stage_goes_on_with_the_same_samples_in_another_size():
    loaded = data.load_stages(staged(), RANKS, seed=3)
    single = data.load_stages(Training(model="resnet18", size=24, batch=50, epochs=4), RANKS, seed=3).parts[0]
    with data.StagedFeed(loaded, 1) as feed:
        shapes = [tuple(feed(turn)[0].shape) for turn in (13, 14, 17)]
        assert shapes == [(100, 3, 8, 8), (200, 3, 16, 16), (50, 3, 24, 24)]
        for turn in (17, 30):  # the fourth epoch, of whichever stages were before
            wanted = data.shard(single, turn - 17 + 3 * 14, 1)
            assert all(torch.equal(one, other) for one, other in zip(feed(turn), wanted, strict=True))


def test_batch_normalisation_copes_with_growing_images():
    loaded = data.load_stages(staged(), RANKS, seed=3)
    model = models.build("resnet18", 3)
    with data.StagedFeed(loaded, 0) as feed:
        for turn in (0, 14, 17):
            images, labels = feed(turn)
            loss = torch.nn.functional.cross_entropy(model(images[:8]), labels[:8])
            loss.backward()
            assert torch.isfinite(loss)
    statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    assert all(torch.isfinite(buffer).all() for buffer in statistics)
    assert 0 <= data.accuracy(model, loaded.parts[2].test) <= 1


def test_each_stage_has_its_rate():
    options = staged()
    loaded = data.load_stages(options, RANKS, seed=3)
    rate = options.learning_rate(loaded.turns, loaded.first)
    assert [rate(turn) for turn in (0, 13, 14, 16, 17, 30)] == [1, 1, 0.5, 0.5, 1, 1]
    assert not rate.constant
    linear = staged(lr_schedule="linear").learning_rate(loaded.turns, loaded.first)
    assert linear(15) == 0.5 * (1 - 15 / 31)
    assert staged(("epochs=1", "epochs=2,size=8")).learning_rate(9, (0, 3)).constant


@pytest.mark.parametrize(
    ("recipe", "options", "reason"),
    [
        (("epochs=1,size=4,batch=1", "epochs=1"), {}, "takes no single image of 4 x 4"),
        (("epochs=1,size=16", "epochs=1,size=20"), {"model": "lenet5"}, "model 'lenet5' takes no images of 16 x 16"),
        (("epochs=1,batch=700", "epochs=1"), {}, "stage 1 has 1 iteration(s): at least 2"),
        (("epochs=1,batch=9999",), {}, "is more than the 1438 training samples"),
        (("epochs=0",), {}, "--stage 'epochs=0': epochs 0: above 0"),
        (("epochs=1,size=big",), {}, "size must be a number, not 'big'"),
        (("epochs=1,epochs=2",), {}, "'epochs' is given twice"),
        (("epochs=1,pixels=8",), {}, "'pixels' does not exist; give epochs=N"),
        (("size=8",), {}, "epochs is missing"),
        (("epochs=1,lr=nan",), {}, "lr nan: above 0"),
        (("epochs=1,size=8", "epochs=1,size=16"), {"data_cache": "reduced"}, "stages have several: take exact"),
    ],
)
def test_bad_recipes_are_refused_by_name(recipe, options, reason):
    with pytest.raises(InputError) as refused:
        data.load_stages(Training(recipe=recipe, **{"model": "resnet18", **options}), RANKS, seed=0)
    assert reason in str(refused.value)


def test_stages_survive_their_text():
    for text in RECIPE:
        assert recipes.parsed(text).text() == text


def test_blocks_begin_anew_with_each_stage_and_none_has_a_single_turn():
    for stages, turns, expected in (
        ([0], 13, [0, 6, 13]),  # a single turn belongs to the block before
        ([0], 14, [0, 6, 12, 14]),
        ([0, 7, 10], 31, [0, 7, 10, 16, 22, 28, 31]),
        ([0, 12], 24, [0, 6, 12, 18, 24]),
        ([0, 1], 8, [0, 1, 8]),  # but that of a stage of one
    ):
        borders = borders_of_blocks(stages, turns, 6)
        assert [*borders] == expected
        assert (len(borders), borders[-1], [*borders[1:3]]) == (len(expected), turns, expected[1:3])
        with pytest.raises(IndexError):
            borders[len(expected)]


def record() -> Record:
    """Two blocks of each of two seeds, a switch between them, an evaluation after each."""
    made = Record()
    for seed in (0, 1):
        made.block(seed, 0, [1.0, 1.0], [0.0, 2.0])
        made.accuracy.append((seed, 1, 0.5))
        made.block(seed, 2, [1.0, 1.0, 1.0], [0.0, 4.0, 8.0])
        made.accuracy.append((seed, 4, 0.9 if seed else 0.6))
        made.phases += [0, 1]
        made.switches.append((seed, 2, 0.25))
    return made


def test_the_time_to_an_accuracy_is_that_of_iterations_and_switches():
    assert to_accuracy(record(), 0.5) == {"reached_target": 2, "seconds_to_accuracy": 4.0}
    assert to_accuracy(record(), 0.9) == {"reached_target": 1, "seconds_to_accuracy": 2 * 2.0 + 3 * 4.0 + 0.25}
    assert to_accuracy(record(), 0.95) == {"reached_target": 0}


def test_the_time_of_each_phase_is_that_of_one_training():
    assert of_phases(record()) == {
        "phase0_iterations": 2,
        "phase0_seconds": 4.0,
        "phase0_iteration_seconds": 2.0,
        "phase1_iterations": 3,
        "phase1_seconds": 12.0,
        "phase1_iteration_seconds": 4.0,
        "switch_seconds": 0.25,
    }


def test_a_recipe_of_a_configuration_is_what_the_command_is_told(monkeypatch):
    monkeypatch.chdir(ROOT)
    launch = {"model": "resnet18", "ranks": 2, "recipe": [{"epochs": 2, "size": 8, "lr": 0.5}, {"epochs": 1}]}
    parsed = settings.parse({"version": 1, "name": "tiny", "training": [launch]}, "here")
    assert words(parsed.training[0].options("cpu")).count("--stage=epochs=2,size=8,lr=0.5") == 1
    assert parsed.training[0].options("cpu").recipe == ("epochs=2,size=8,lr=0.5", "epochs=1")
    for stage, reason in (
        ({"size": 8}, "epochs: is missing"),
        ({"epochs": 1, "scheme": "wfbp"}, "scheme: no such key"),
    ):
        with pytest.raises(InputError) as refused:
            settings.parse({"version": 1, "name": "tiny", "training": [launch | {"recipe": [stage]}]}, "here")
        assert f"training.0.recipe.0.{reason}" in str(refused.value)
