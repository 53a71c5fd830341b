"""The configuration is closed, and what makes no sense is refused by name when it is read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from configurations import ROOT, parse, quick, scheme_file
from gradsync import schedules
from gradsync.configuration import peers, schemes, settings
from gradsync.errors import InputError
from gradsync.statistics.intervals import repeats_needed

pytestmark = pytest.mark.usefixtures("in_the_project")


@pytest.mark.parametrize("name", ["quick", "emulated"])
def test_launches_have_the_blocks_that_an_interval_needs(name):
    loaded = settings.load(f"config/{name}.yaml")
    by_iterations = [launch for launch in (*loaded.training, *loaded.emulated) if launch.iterations]
    assert by_iterations
    for launch in by_iterations:
        whole, rest = divmod(launch.iterations, launch.block)
        assert whole + (rest >= 2) >= repeats_needed(), launch.job


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_of_the_project_is_valid(path):
    if path.name == "schemes.yaml":
        known = schemes.load(path)
        assert set(yaml.safe_load(path.read_text())) <= set(known)
    elif path.name == "peers.yaml":
        assert set(yaml.safe_load(path.read_text())) == set(peers.load(path))
    else:
        assert settings.load(path).name == path.stem


def set_in(content: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, last = path.split(".")
    place: Any = content
    for key in parents:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return content


@pytest.mark.parametrize("place", ["", "training.0.", "profiles.resnet50.", "network.", "papers.mgwfbp.", "mlflow."])
def test_an_unknown_key_is_named_wherever_it_is(place):
    with pytest.raises(InputError, match=rf"configuration test\.yaml: {place}colour: no such key"):
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
        ("training.0.optimizer", "adm", r"training\.0\.optimizer: optimizer 'adm' does not exist; did you mean adam"),
        ("training.0.beta2", 1.0, r"training\.0\.beta2: "),
        ("training.0.eps", 0.0, r"training\.0\.eps: "),
        ("training.0.lr_schedule", "linear:3", r"training\.0\.lr_schedule 'linear:3': linear takes no numbers"),
        ("training.0.accumulate", 0, r"training\.0\.accumulate: "),
        ("training.0.clip_norm", 0.0, r"training\.0\.clip_norm: "),
        ("training.0.clip_norm", float("inf"), r"training\.0\.clip_norm: "),
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
        ("papers.mgwfbp.nodes", [], r"papers\.mgwfbp\.nodes: "),
        (
            "papers.mgwfbp.nodes",
            [4, 6],
            r"papers\.mgwfbp: .*gap_nodes must hold every one of nodes \(not there: \[6\]\)",
        ),
        ("papers.mgwfbp.gap_nodes", [1, 4, 8, 16, 32, 64], "each at least 2"),
        ("papers.mgwfbp.forward_shares", [0.0, 1.0], r"forward_shares must hold 0\.5"),
        ("papers.mgwfbp.forward_shares", [-0.5, 0.5], "nothing below 0"),
        ("papers.mgwfbp.bucket_sweep", 1, r"papers\.mgwfbp\.bucket_sweep: "),
        ("papers", ["mgwfbp"], r"papers: must be the names of papers, each with its settings \(`mgwfbp: {}`\), not "),
        ("papers.mgwfb", {}, r"papers: paper 'mgwfb' does not exist; did you mean mgwfbp\? "),
        ("papers.mgwfbp", "all", r"papers\.mgwfbp: must be keys with their values, not 'all'"),
        ("papers.bml_bcube.nodes", [4], r"papers\.bml_bcube\.nodes: no such key"),
        ("papers.mgwfbp.published", "config/nosuch.yaml", r"config/nosuch\.yaml does not exist"),
        ("papers.ascwfbp.testbed", "config/nosuch.yaml", r"config/nosuch\.yaml does not exist"),
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


# What a launch names


@pytest.mark.parametrize(
    ("parts", "ranks", "wanted"),
    [
        ("collective: bml", 8, None),
        ("collective: bml", 2, "topology 'bcube': 2 is no n^k with n, k >= 2"),
        ("collective: bml", 6, "topology 'bcube': 6 is no n^k"),
        ("collective: bml, topology: 'bcube:3,2'", 9, None),
        ("collective: bml, topology: 'bcube:3,2'", 3, None),  # one level of it
        ("collective: bml, topology: 'bcube:3,2'", 10, "topology 'bcube:3,2' holds 1 to 9 ranks, not 10"),
        ("collective: bml, topology: 'bcube:3,2'", 6, "needs levels of one size, not 3 x 2"),
        ("collective: torus2d, topology: 'fat_tree:4'", 16, "needs two levels, not 3"),
        ("collective: ring, topology: 'switch:4'", 5, "topology 'switch:4' holds 1 to 4 ranks, not 5"),
        ("collective: hierarchical, topology: 'dense_gpu:2,4'", 16, "holds 1 to 8 ranks, not 16"),
        ("collective: ring, topology: bcube", 3, "topology 'bcube': 3 is no n^k"),
        ("topology: 'bcube:2,2'", 5, "topology 'bcube:2,2' holds 1 to 4 ranks, not 5"),
    ],
)
def test_ranks_that_a_scheme_cannot_serve_are_refused_when_the_configuration_is_read(tmp_path, parts, ranks, wanted):
    file = scheme_file(tmp_path, f"odd: {{schedule: wfbp, {parts}}}\n")
    launch = {"model": "lenet5", "ranks": ranks, "schemes": ["wfbp", "odd"]}
    if wanted is None:
        assert parse(schemes=str(file), training=[launch]).training[0].ranks == ranks
    else:
        with pytest.raises(InputError) as refused:
            parse(schemes=str(file), training=[launch])
        assert str(refused.value).startswith("configuration test.yaml: training.0.schemes: scheme 'odd': ")
        assert wanted in str(refused.value)
    # if no scheme is named, those that can't be served are left out
    assert parse(schemes=str(file), training=[{**launch, "schemes": None}]).training[0].schemes is None
    picked = [scheme.name for scheme in schemes.pick(schemes.load(file), None, "here", ranks)]
    assert ("odd" in picked) is (wanted is None)
    assert {*schedules.names(), "ring", "ps_tensor"} <= set(picked)


def test_only_processors_execute_collectives_made_of_transfers():
    launch = {"model": "lenet5", "ranks": 4, "schemes": ["wfbp", "ring"]}
    parse(training=[launch])
    with pytest.raises(InputError, match=r"training\.0\.schemes: scheme 'ring': collective 'ring' .* not cuda"):
        parse(training=[launch], device="cuda")
    picked = schemes.pick(schemes.load(ROOT / "config" / "schemes.yaml"), None, "here", 4, "cuda")
    assert {scheme.collective for scheme in picked} == {"native"}
    assert len(picked) >= len(schedules.names())
    assert parse(training=[{**launch, "schemes": None}], device="cuda").training[0].schemes is None


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


# What is no configuration


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


def test_ranks_of_a_node_are_those_of_the_launch():
    sparse = {"model": "lenet5", "ranks": 8, "schemes": ["mstopk_sgd"]}
    (launch,) = parse(training=[{**sparse, "ranks_a_node": 2}]).training
    assert launch.ranks_a_node == 2
    with pytest.raises(InputError, match=r"8 ranks do not fill nodes of 3|3"):
        parse(training=[{**sparse, "ranks_a_node": 3}])


def test_no_launch_trains_with_a_compressor_that_may_fail():
    with pytest.raises(InputError, match=r"training\.0\.schemes: compressor 'mstopk_as_printed' may end a training"):
        parse(training=[{"model": "lenet5", "ranks": 2, "schemes": ["mstopk_as_printed"]}])


@pytest.mark.parametrize(
    ("loading", "message"),
    [
        ({"model": "resnet19"}, r"loading\.model: model 'resnet19' does not exist"),
        ({"photographs": 3, "batch": 4}, r"loading\.photographs: 3: at least the batch 4"),
    ],
)
def test_photographs_that_nothing_takes_are_refused(loading, message):
    with pytest.raises(InputError, match=message):
        parse(loading=loading)


# Launches of methods with masters or a centre


def test_a_list_is_a_launch_for_each_value():
    entry = {"model": "lenet5", "workers": [2, 4], "methods": ["single"], "name": "b", "batch": [8, 16], "lr": 0.1}
    jobs = [launch.job for launch in parse(elastic=[entry]).elastic]
    assert jobs == ["lenet5-2-b_batch8", "lenet5-2-b_batch16", "lenet5-4-b_batch8", "lenet5-4-b_batch16"]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"methods": ["async_sdg"]}, r"elastic\.0\.methods: scheme 'async_sdg' does not exist; did you mean async_sgd"),
        ({"methods": ["async_sgd", "async_sgd"]}, r"elastic\.0\.methods: a method is named twice"),
        ({"methods": ["bml"], "workers": 3}, r"elastic\.0\.methods: scheme 'bml': topology 'bcube': 3 is no n\^k"),
        ({"methods": ["post_local_sgd"]}, r"elastic\.0\.methods: post_local_sgd goes on from iterations of ssgd"),
        ({"workers": 0}, r"elastic\.0\.workers: "),
        ({"seeds": [1, 1]}, r"elastic\.0: --seed: a seed is given twice"),
        ({"target_errors": [2.0]}, r"elastic\.0: --target-error 2\.0: a share of test samples"),
        ({"rho": 0.0}, r"elastic\.0\.rho: "),
        ({"lr": [0.1, "fast"]}, r"elastic\.1\.lr: "),
        ({"paper": "nosuch"}, r"elastic\.0\.paper: 'nosuch' is not one of this configuration"),
        ({"testbed": "swich"}, r"elastic\.0\.testbed: topology 'swich' does not exist; did you mean switch"),
        ({"methods": ["hogwild_sgd"], "testbed": "switch"}, r"methods: hogwild_sgd has memory that all ranks share"),
        ({"compute_seconds": 0.0}, r"elastic\.0\.compute_seconds: "),
        ({"compute_seconds": 0.1}, r"elastic\.0\.compute_seconds: means nothing without a testbed"),
        ({"testbed": "switch", "flow_rate": 5e8}, r"elastic\.0\.flow_rate: 5e\+08 is more than the rate 4e\+08"),
        ({"rate": 0}, r"elastic\.0\.rate: "),
        ({"colour": 1}, r"elastic\.0\.colour: no such key"),
    ],
)
def test_a_launch_of_methods_that_makes_no_sense_is_named(changes, wanted):
    entry = {"model": "lenet5", "workers": 4, "name": "x", "methods": ["async_sgd"], **changes}
    with pytest.raises(InputError, match=wanted):
        parse(elastic=[entry])


def test_what_a_method_leaves_open_is_told_to_its_plan():
    (launch,) = parse(elastic=[{"model": "lenet5", "workers": 4, "methods": ["async_measgd"], "rho": 2.0}]).elastic
    open_options = schemes.Scheme(name="async_measgd").open_options
    assert launch.steps(open_options) == [
        *("--lr=0.02", "--momentum=0.9"),
        *(f"--update-option={key}={value}" for key, value in (("rho", 2.0), ("momentum", 0.9))),
    ]


@pytest.mark.parametrize(
    ("content", "gpus"),
    [
        ({"papers": {"cloud_topk": {}}}, 1),
        ({"papers": {"cloud_topk": {}}, "device": "cpu"}, 0),
        ({"papers": {"mgwfbp": {}}, "network": {"ranks": [2, 16]}}, 16),
        ({"papers": {"ascwfbp": {}}, "contention": {"ranks": 4}}, 4),
        ({"papers": {"cloud_topk": {}}, "cluster_profile": {"name": "here", "ranks": 32}}, 32),
        ({"papers": {"cloud_topk": {}}, "training": [{"model": "resnet50", "paper": "cloud_topk", "ranks": 8}]}, 8),
    ],
)
def test_the_most_gpus_that_a_configuration_takes(monkeypatch, content, gpus):
    monkeypatch.chdir(ROOT)
    assert settings.parse({"version": 1, "name": "mine", "device": "cuda", **content}, "here").gpus == gpus
