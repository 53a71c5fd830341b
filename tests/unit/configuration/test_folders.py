"""Jobs in an image see every folder of data that a configuration names, wherever it is named."""

from __future__ import annotations

import pytest

from gradsync.configuration import folders, settings
from gradsync.images.binding import bound

LAUNCH = {"model": "lenet5", "ranks": 2}
NAMING = {
    "external_data": lambda folder: {"external_data": folder},
    "training": lambda folder: {"training": [{**LAUNCH, "data": "mnist", "data_folder": folder}]},
    "copies": lambda folder: {"training": [{**LAUNCH, "data_cache": "files", "data_cache_folder": folder}]},
    "elastic": lambda folder: {
        "elastic": [
            {"model": "lenet5", "workers": 2, "methods": ["async_sgd"], "data_folder": folder, "paper": "mgwfbp"}
        ]
    },
    "loading": lambda folder: {"loading": {"data_folder": folder}},
}


@pytest.mark.parametrize("place", NAMING)
def test_a_folder_that_is_named_is_bound(tmp_path, place):
    away, checkout = tmp_path / "away", tmp_path / "checkout"
    away.mkdir()
    checkout.mkdir()
    config = settings.parse({"version": 1, "name": "tiny", **NAMING[place](str(away))}, "test")
    assert folders.named(config) == [str(away)]
    assert bound("", folders.named(config), checkout) == str(away)


def test_every_key_of_a_folder_of_data_is_among_them():
    """A new key that ends in `folder` has to be named here, too."""
    keys = {
        (where, key)
        for where, kind in (
            ("training", settings.Training),
            ("elastic", settings.ElasticTraining),
            ("emulated", settings.Emulation),
            *((name, field.annotation) for name, field in settings.Settings.model_fields.items()),
        )
        for key in getattr(kind, "model_fields", {})
        if key.endswith("folder")
    }
    assert keys == {
        *((where, "data_folder") for where in ("training", "elastic", "loading")),
        ("training", "data_cache_folder"),
    }


def test_none_is_named_twice():
    twice = [{**LAUNCH, "name": name, "data": "mnist", "data_folder": "data"} for name in ("a", "b")]
    assert folders.named(settings.parse({"version": 1, "name": "tiny", "training": twice}, "test")) == ["data"]
