"""The configuration is closed, schemes are discovered, and what makes no sense is refused by name when it is read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradsync import peers, schedules, schemes, settings
from gradsync.costs import Linear
from gradsync.errors import InputError
from tiny_workloads import workload

ROOT = Path(__file__).parents[2]
COST = Linear(1.0, 0.1)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def quick() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load((ROOT / "config" / "quick.yaml").read_text()))


def parse(**changes: object) -> settings.Settings:
    return settings.parse({**quick(), **changes}, "test.yaml")


def scheme_file(folder: Path, text: str) -> Path:
    path = folder / "schemes.yaml"
    path.write_text(text)
    return path


# The files that come with the project


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_of_the_project_is_valid(path):
    if path.name == "schemes.yaml":
        found = schemes.load(path)
        assert set(yaml.safe_load(path.read_text())) <= set(found)
    elif path.name == "peers.yaml":
        assert set(yaml.safe_load(path.read_text())) == set(peers.load(path))
    else:
        assert settings.load(path).name == path.stem


def test_the_project_names_every_schedule_as_a_scheme():
    found = schemes.load(ROOT / "config" / "schemes.yaml")
    assert set(schedules.names()) <= set(found)
    assert found["horovod_buckets"].schedule == "fixed_buckets"
    assert found["mgwfbp_as_printed"].options == {"as_printed": True}
    assert found["wfbp"].label == "WFBP"


def test_every_scheme_of_the_project_can_be_planned():
    net = workload([400, 800, 1200], [1.0, 2.0, 3.0])
    for scheme in schemes.load(ROOT / "config" / "schemes.yaml").values():
        plan = schemes.plan(scheme, net, COST, 2)
        assert plan.name == scheme.name
        assert plan.provenance["schedule"] == scheme.schedule


# The configuration


def set_in(content: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, last = path.split(".")
    place: Any = content
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return content


@pytest.mark.parametrize("place", ["", "training.0.", "profiles.resnet50.", "network.", "figure9.", "mlflow."])
def test_an_unknown_key_is_named_wherever_it_is(place):
    with pytest.raises(InputError, match=rf"configuration test\.yaml: {place}colour: Extra inputs"):
        settings.parse(set_in(quick(), f"{place}colour", 1), "test.yaml")


@pytest.mark.parametrize(
    ("place", "value", "wanted"),
    [
        ("version", 2, "version 2; this gradsync reads version 1"),
        ("name", "Quick run", "name: "),
        ("name", "../elsewhere", "name: "),
        ("seed", "zero", "seed: "),
        ("training.0.ranks", 1, r"training\.0\.ranks: "),
        ("training.0.batch", 0, r"training\.0\.batch: "),
        ("training.0.block", 1, r"training\.0\.block: "),
        ("training.0.lr", 0, r"training\.0\.lr: "),
        ("training.0.lr", float("nan"), r"training\.0\.lr: "),
        ("training.0.momentum", 1.0, r"training\.0\.momentum: "),
        (
            "training.0.schemes",
            ["wfbp", "nosuch"],
            r"training\.0\.schemes: scheme 'nosuch' does not exist; there are: ",
        ),
        ("training.0.peers", ["ddp", "nosuch"], r"training\.0\.peers: peer 'nosuch' does not exist; there are: ddp, "),
        ("training.0.seeds", [], r"training\.0\.seeds: "),
        ("training.0.seeds", ["one"], r"training\.0\.seeds\.0: "),
        ("training.0.size", 0, r"training\.0\.size: "),
        ("training.0.iterations", -1, r"training\.0\.iterations: "),
        ("training.0.precision", "float8", r"training\.0\.precision: "),
        ("training.0.statistics", "global", r"training\.0\.statistics: "),
        ("training.0.conformance", -1, r"training\.0\.conformance: "),
        ("training.0.checkpoint_seconds", -1, r"training\.0\.checkpoint_seconds: "),
        ("network.ranks", [], r"network\.ranks: "),
        ("network.smallest", 2, r"network\.smallest: "),
        ("peers", "config/nosuch.yaml", r"config/nosuch\.yaml: can't be read"),
        ("profiles", {"resnet50": {"batch": 1}}, r"profiles: needs googlenet, which Fig\. 5\(a\) is drawn from"),
        ("profiles", {"googlenet": {"batch": 1}}, r"profiles: needs resnet50, which Fig\. 9\(b\) is simulated from"),
        ("profiles.resnet50.iterations", 1, r"profiles\.resnet50\.iterations: "),
        ("figure9.nodes", [], r"figure9\.nodes: "),
        ("figure9.nodes", [4, 6], r"figure9: .*gap_nodes must hold every one of nodes \(not there: \[6\]\)"),
        ("figure9.gap_nodes", [1, 4, 8, 16, 32, 64], "each at least 2"),
        ("figure9.forward_shares", [0.0, 1.0], r"forward_shares must hold 0\.5"),
        ("figure9.forward_shares", [-0.5, 0.5], "nothing below 0"),
        ("figure9.bucket_sweep", 1, r"figure9\.bucket_sweep: "),
        ("papers", ["config/papers/nosuch.yaml"], r"config/papers/nosuch\.yaml does not exist"),
        ("cluster", "config/clusters/nosuch.yaml", r"config/clusters/nosuch\.yaml does not exist"),
        ("schemes", "config/nosuch.yaml", r"config/nosuch\.yaml: can't be read"),
        ("external_data", "nosuch", "external_data: folder nosuch does not exist"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(place, value, wanted):
    with pytest.raises(InputError, match=wanted) as refused:
        settings.parse(set_in(quick(), place, value), "test.yaml")
    assert "\n" not in str(refused.value)


def test_two_launches_that_would_write_the_same_files_are_refused():
    entry = quick()["training"][0]
    with pytest.raises(InputError, match=r"training\.1: lenet5 on 2 ranks is there already"):
        parse(training=[entry, {**entry, "batch": 8}])
    assert [t.job for t in parse(training=[entry, {**entry, "ranks": 3}]).training] == ["lenet5-2", "lenet5-3"]


def test_ranks_that_a_scheme_cannot_serve_are_refused(tmp_path):
    file = scheme_file(tmp_path, "tree: {schedule: wfbp, collective: binary_tree}\n")
    entry = {"model": "lenet5", "ranks": 3, "schemes": ["tree"]}
    with pytest.raises(
        InputError, match=r"training\.0\.schemes: scheme 'tree': .*needs a power of two of ranks, not 3"
    ):
        parse(schemes=str(file), training=[entry])
    assert parse(schemes=str(file), training=[{**entry, "ranks": 4}]).training[0].ranks == 4
    assert parse(schemes=str(file), training=[{**entry, "schemes": ["wfbp"]}]).training[0].ranks == 3


def test_a_peer_with_the_buckets_of_a_scheme_needs_that_scheme():
    entry = {"model": "lenet5", "ranks": 2, "schemes": ["wfbp"]}
    for chosen in (["ddp_mgwfbp"], None):  # null: all peers, that one among them
        with pytest.raises(InputError, match=r"training\.0\.peers: ddp_mgwfbp needs the scheme 'mgwfbp', which is not"):
            parse(training=[{**entry, "peers": chosen}])
    for schemes_ in (["mgwfbp"], None):
        parse(training=[{**entry, "peers": None, "schemes": schemes_}])
    assert parse(training=[entry]).training[0].peers == []


def test_a_peer_named_like_a_scheme_would_overwrite_its_results(tmp_path):
    (tmp_path / "peers.yaml").write_text("wfbp: {hook: fp16}\n")
    entry = {"model": "lenet5", "ranks": 2, "peers": ["wfbp"]}
    with pytest.raises(InputError, match=r"training\.0\.peers: 'wfbp' is a scheme of this launch too"):
        parse(peers=str(tmp_path / "peers.yaml"), training=[entry])
    parse(peers=str(tmp_path / "peers.yaml"), training=[{**entry, "schemes": ["mgwfbp"]}])


def test_settings_cannot_be_changed_later():
    with pytest.raises(ValidationError):
        parse().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("content", [None, [], "quick", 3])
def test_something_that_is_no_configuration_is_refused(content):
    with pytest.raises(InputError, match=r"configuration test\.yaml: top level"):
        settings.parse(content, "test.yaml")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("name: [", "not YAML"), ("\t- x", "not YAML"), ("", "top level"), (None, "can't be read")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text, wanted):
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=wanted) as refused:
        settings.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


# Schemes


def test_entries_and_discovered_schedules_are_merged(tmp_path):
    found = schemes.load(
        scheme_file(tmp_path, "wfbp: {label: Wait-free}\nmine: {schedule: fixed_buckets, options: {bucket_bytes: 8}}\n")
    )
    assert set(found) == {*schedules.names(), "mine"}
    assert list(found)[:2] == ["wfbp", "mine"]  # the file's order first
    assert found["wfbp"].label == "Wait-free"
    assert found["mine"].schedule == "fixed_buckets"
    assert found["optimal"] == schemes.Scheme(name="optimal", schedule="optimal", label="optimal")


def test_without_entries_every_schedule_is_a_scheme(tmp_path):
    assert list(schemes.load(scheme_file(tmp_path, "# nothing\n"))) == schedules.names()


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{schedule: nosuch}", "schedule 'nosuch' does not exist; there are: "),
        ("{}", "schedule 'odd' does not exist"),
        ("{schedule: wfbp, options: {size: 3}}", "schedule 'wfbp' has no option 'size'"),
        ("{schedule: fixed_buckets, options: {bucket_bytes: big}}", "option 'bucket_bytes': 'big' is not a int"),
        ("{schedule: fixed_buckets, options: {bucket_bytes: true}}", "option 'bucket_bytes': True is not a int"),
        ("{schedule: mgwfbp, options: {as_printed: 1}}", "option 'as_printed': 1 is not a bool"),
        ("{schedule: wfbp, collective: nosuch}", "collective 'nosuch' does not exist; there are: native, "),
        ("{schedule: wfbp, update: nosuch}", "update 'nosuch' does not exist; there are: "),
        ("{schedule: wfbp, colour: red}", "colour: Extra inputs"),
        ("{schedule: [wfbp]}", "schedule: Input should be a valid string"),
        ("wfbp", "needs keys and values"),
        ("{name: other}", "needs keys and values"),
        ("{1: 2}", "needs keys and values"),
    ],
)
def test_a_combination_that_makes_no_sense_is_refused_by_name(tmp_path, entry, wanted):
    path = scheme_file(tmp_path, f"odd: {entry}\n")
    with pytest.raises(InputError) as refused:
        schemes.load(path)
    assert str(refused.value).startswith(f"{path}, scheme 'odd': ")
    assert wanted in str(refused.value)
    with pytest.raises(InputError, match="scheme 'odd'"):
        parse(schemes=str(path))


@pytest.mark.parametrize(("text", "wanted"), [("- wfbp", "needs scheme names as keys"), ("a: [", "can't be read")])
def test_a_file_that_holds_no_schemes_is_refused(tmp_path, text, wanted):
    with pytest.raises(InputError, match=wanted):
        schemes.load(scheme_file(tmp_path, text))


def test_picking_keeps_the_order_asked_for():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert [scheme.name for scheme in schemes.pick(known, ["wfbp", "naive"], "here")] == ["wfbp", "naive"]
    assert schemes.pick(known, None, "here") == list(known.values())
    assert schemes.pick(known, [], "here") == []
    with pytest.raises(InputError, match="here: scheme 'nosuch' does not exist; there are: naive, wfbp"):
        schemes.pick(known, ["nosuch"], "here")


def test_options_of_a_scheme_reach_the_schedule():
    net = workload([400, 400, 400, 400], [1.0] * 4)
    scheme = schemes.Scheme(
        name="two", schedule="fixed_buckets", options={"bucket_bytes": 800, "first_bucket_bytes": 800}
    )
    assert [len(message) for message in schemes.plan(scheme, net, COST, 2).messages()] == [2, 2]


@pytest.mark.parametrize("ranks", [0, -1])
def test_a_scheme_needs_ranks(ranks):
    with pytest.raises(InputError, match=f"scheme 'wfbp': {ranks} ranks: at least 1"):
        schemes.plan(schemes.Scheme(name="wfbp"), workload([4], [1.0]), COST, ranks)
