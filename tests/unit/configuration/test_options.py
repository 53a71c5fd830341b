"""Options as fields of dataclasses: read from the words that they write, they are the same; configurations agree."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from gradsync.commands import parsing, usage
from gradsync.configuration import launches
from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option, options_of, taken, words
from gradsync.configuration.training import Compute, Steps, Training
from gradsync.errors import InputError
from gradsync.experiments import predict, train
from gradsync.experiments.cluster import Profiled
from gradsync.experiments.costs import Known
from gradsync.experiments.profile import allreduce, layers


@dataclass(frozen=True, kw_only=True)
class Every:
    """An option of every kind."""

    name: str = option(meaning="name", positional=True)
    count: int = option(meaning="count")
    rate: float | None = option(None, "rate", needs="file")
    file: Path | None = option(None, "file")
    kind: Literal["a", "b"] = option("a", "kind")
    numbers: tuple[int, ...] = option((1, 2), "numbers")
    parts: tuple[Literal["x", "y"], ...] = option((), "parts", flag="--part", repeated=True)
    models: tuple[str, ...] = option(("all",), "models", empty=True)
    on: bool = option(True, "on")
    off: bool = option(False, "off")


def read_again(options: object) -> object:
    parser = usage.Parser()
    parsing.add(parser, type(options))
    return parsing.read(type(options), parser.parse_args(words(options)))


@pytest.mark.parametrize(
    "options",
    [
        Every(name="n", count=3),
        Every(
            name="n", count=3, rate=0.1, file=Path("-f"), kind="b", numbers=(7,), parts=("x", "x"), on=False, off=True
        ),
        Every(name="n", count=3, models=()),
        Training(seeds=(3, 4), references=False, clip_norm=0.5, data_folder="-odd folder"),
        train.Options(
            plans=(Path("a.json"), Path("b.json")), peers=("ddp",), output=Path("o"), testbed="switch", flow_rate=1e8
        ),
        predict.Options(workload="w.json", allreduce="a=-1,b=1", schedule="kway", schedule_options=("lanes=2", "x=y")),
        allreduce.Options(
            ranks=(2, 4), collective=("native", "bml@bcube:3,2"), by_layer=True, workload="w", output=Path("p")
        ),
        Profiled(name="here", ranks=(2,), models=(), only=("nodes", "links"), launched=True),
    ],
    ids=lambda options: f"{type(options).__module__}.{type(options).__name__}",
)
def test_options_are_read_again_from_their_words(options):
    assert read_again(options) == options


def test_what_is_unset_or_lacks_what_it_needs_is_no_word():
    assert words(OnTestbed()) == []
    assert words(OnTestbed(testbed="switch")) == ["--testbed=switch", "--rate=400000000.0"]
    assert words(Every(name="n", count=3, rate=1.0)) == [
        *("n", "--count=3", "--kind=a", "--numbers", "1", "2", "--models", "all", "--on"),
    ]


def test_an_option_without_the_one_that_it_needs_is_refused():
    parser = usage.Parser()
    parsing.add(parser, OnTestbed)
    with pytest.raises(InputError, match="--rate: only with --testbed, which is not given"):
        parsing.read(OnTestbed, parser.parse_args(["--rate", "1"]))


def test_of_options_that_exclude_one_another_one_is_taken():
    parser = usage.Parser()
    parsing.add(parser, Known)
    known = parsing.read(Known, parser.parse_args(["--workload=w", "--cluster=c"]))
    assert (known.cluster, known.allreduce) == ("c", None)
    for more, message in (
        ([], "--allreduce or --cluster: needed, and not given"),
        (["--cluster=c", "--allreduce=a"], "not allowed with"),
    ):
        with pytest.raises(InputError, match=message):
            parser.parse_args(["--workload=w", *more])


def test_options_of_another_kind_are_taken_by_name():
    launch = train.Options(model="vgg19", batch=4, device="cuda", output=Path("o"), lr=0.5)
    profiled = taken(layers.Options, launch, iterations=10, output=Path("w.json"))
    assert profiled == layers.Options(
        model="vgg19", batch=4, device="cuda", ranks=2, iterations=10, output=Path("w.json")
    )
    assert taken(Steps, launch) == Steps(lr=0.5)
    assert taken(Training, argparse.Namespace(seeds=[1, 2])).seeds == (1, 2)


def test_keys_of_a_configured_launch_are_the_options_of_training():
    """All but two are: where the ranks compute is set for all launches, and ratios are to one scheme."""
    options = {each.name: each for each in options_of(Training)}
    assert set(options) - set(launches.Training.model_fields) == {"device", "reference"}
    launch = launches.Training(model="lenet5", ranks=2)
    configured = {"epochs": 6, "paper": "mgwfbp"}
    assert launch.options("cuda") == dataclasses.replace(Training(device="cuda"), **configured)
    assert {name: each.about.configured for name, each in options.items() if each.about.configured} == configured
    assert taken(Compute, launch) == Compute()
