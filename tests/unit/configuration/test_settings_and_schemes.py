"""The configuration is closed, schemes are discovered, and what makes no sense is refused by name when it is read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

import toy_collective
from gradsync import collectives, schedules
from gradsync.check import check
from gradsync.configuration import peers, schemes, settings
from gradsync.costs import Linear
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.rounds.lowering import lowered
from gradsync.statistics.intervals import repeats_needed
from tiny_workloads import workload

ROOT = Path(__file__).parents[3]
COST = Linear(1.0, 0.1)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def quick() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load((ROOT / "config" / "quick.yaml").read_text()))


@pytest.mark.parametrize("name", ["quick", "emulated"])
def test_launches_have_the_blocks_that_an_interval_needs(name):
    loaded = settings.load(f"config/{name}.yaml")
    by_iterations = [launch for launch in (*loaded.training, *loaded.emulated) if launch.iterations]
    assert by_iterations
    for launch in by_iterations:
        whole, rest = divmod(launch.iterations, launch.block)
        assert whole + (rest >= 2) >= repeats_needed(), launch.job


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
        known = schemes.load(path)
        assert set(yaml.safe_load(path.read_text())) <= set(known)
    elif path.name == "peers.yaml":
        assert set(yaml.safe_load(path.read_text())) == set(peers.load(path))
    else:
        assert settings.load(path).name == path.stem


def test_the_project_names_every_schedule_and_collective_as_a_scheme():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert {*schedules.names(), *collectives.names()} <= set(known)
    for name in collectives.names():
        assert (known[name].schedule, known[name].collective) == ("wfbp", name)
        assert known[name].paper
    assert known["horovod_buckets"].schedule == "fixed_buckets"
    assert known["mgwfbp_as_printed"].options == {"as_printed": True}
    assert known["wfbp"].label == "WFBP"


@pytest.mark.parametrize("ranks", [4, 9])  # that every collective can serve
def test_every_scheme_of_the_project_can_be_planned(ranks):
    net = workload([400, 800, 1200], [1.0, 2.0, 3.0])
    for scheme in schemes.load(ROOT / "config" / "schemes.yaml").values():
        plan = schemes.plan(scheme, net, COST, ranks)
        check(plan)
        assert plan.name == scheme.name
        assert plan.provenance["schedule"] == scheme.schedule
        assert plan.provenance["topology"] == scheme.network(ranks).name
        shape = () if scheme.collective == "native" else scheme.shape(ranks)
        assert {(op.algorithm, op.shape) for op in plan.communications()} == {(scheme.collective, shape)}


# The configuration


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
    # where no scheme is named, those that can't be served are left out
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
    known = schemes.load(
        scheme_file(tmp_path, "wfbp: {label: Wait-free}\nmine: {schedule: fixed_buckets, options: {bucket_bytes: 8}}\n")
    )
    assert set(known) == {*schedules.names(), *collectives.names(), "mine"}
    assert list(known)[:2] == ["wfbp", "mine"]  # the file's order first
    assert known["wfbp"].label == "Wait-free"
    assert known["mine"].schedule == "fixed_buckets"
    assert known["optimal"] == schemes.Scheme(name="optimal", schedule="optimal", label="optimal")


def test_without_entries_every_schedule_and_every_collective_is_a_scheme(tmp_path):
    known = schemes.load(scheme_file(tmp_path, "# nothing\n"))
    assert list(known) == [*schedules.names(), *collectives.names()]
    assert known["bml"] == schemes.Scheme(name="bml", schedule="wfbp", collective="bml", label="bml")


def test_an_entry_named_like_a_collective_has_it_with_other_parts_as_told(tmp_path):
    known = schemes.load(scheme_file(tmp_path, "ring: {schedule: single}\nbml: {topology: 'bcube:2,3'}\n"))
    assert (known["ring"].schedule, known["ring"].collective) == ("single", "ring")
    assert (known["bml"].schedule, known["bml"].shape(8)) == ("wfbp", (2, 2, 2))


def test_a_new_file_is_a_new_collective_and_a_scheme(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(toy_collective.TEXT)
    known = collectives.names()
    monkeypatch.setattr(collectives, "__path__", [*collectives.__path__, str(tmp_path)])
    assert collectives.names() == sorted([*known, "toy"])
    toy = schemes.load(ROOT / "config" / "schemes.yaml")["toy"]
    assert (toy.schedule, toy.collective, toy.network(3).name) == ("wfbp", "toy", "switch:3")
    plan = schemes.plan(toy, workload([400, 20], [1.0, 2.0]), COST, 3)
    check(plan)
    check(lowered(plan))  # every gradient is summed exactly once
    monkeypatch.setattr(schedules, "__path__", [*schedules.__path__, str(tmp_path)])
    with pytest.raises(InputError, match="'toy' is a schedule and a collective"):
        schemes.load(ROOT / "config" / "schemes.yaml")


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
        ("{schedule: wfbp, options: {lanes: 0}}", "option lanes=0: at least 1"),
        ("{schedule: fixed_buckets, options: {bucket_bytes: 0}}", "bucket_bytes=0"),
        ("{schedule: wfbp, topology: nosuch}", "topology 'nosuch' does not exist; there are: bcube, "),
        ("{schedule: wfbp, collective: bml, topology: 'bcube:1,2'}", "topology 'bcube:1,2': N = 1: at least 2"),
        ("{schedule: wfbp, collective: bml, topology: 'bcube:3,0'}", "topology 'bcube:3,0': K = 0: "),
        ("{schedule: wfbp, collective: bml, topology: 'bcube:3'}", "topology 'bcube:3': write bcube:N,K"),
        ("{schedule: wfbp, collective: bml, topology: 'bcube:three,2'}", "write bcube:N,K"),
        ("{schedule: wfbp, collective: bml, topology: switch}", "topology 'switch' has no links of their own"),
        ("{schedule: wfbp, collective: bml, topology: 'fat_tree:4'}", "choose one of bcube"),
        ("{schedule: wfbp, collective: bml, topology: 3}", "topology: must be text"),
        ("{schedule: wfbp, update: nosuch}", "update 'nosuch' does not exist; there are: "),
        ("{schedule: wfbp, colour: red}", "colour: no such key"),
        ("{schedule: [wfbp]}", "schedule: must be text"),
        ("wfbp", "needs keys and values"),
        ("{name: other}", "leave out the key name"),
        ("{1: 2}", "1: a key must be text"),
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


@pytest.mark.parametrize(("text", "wanted"), [("- wfbp", "needs scheme names as keys"), ("a: [", "not YAML")])
def test_a_file_that_holds_no_schemes_is_refused(tmp_path, text, wanted):
    with pytest.raises(InputError, match=wanted):
        schemes.load(scheme_file(tmp_path, text))


def test_picking_keeps_the_order_asked_for():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert [scheme.name for scheme in schemes.pick(known, ["wfbp", "naive"], "here")] == ["wfbp", "naive"]
    assert schemes.pick(known, None, "here") == list(known.values())
    assert schemes.pick(known, [], "here") == []
    native = schemes.pick(known, "native", "here")
    assert {scheme.name for scheme in native} >= set(schedules.names())
    assert not {scheme.name for scheme in native} & set(collectives.names())
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


# Collectives and topologies


def trained(plan: Plan) -> list[np.ndarray]:
    """Parameters of each rank after two turns; gradients are whole numbers, so that any order of sums is exact."""

    def gradient(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
        return np.random.default_rng((rank, turn)).integers(-9, 9, len(parameter)).astype(float)

    return [values["parameter"] for values in evaluate(plan, 2, gradient, {}, dtype="float64")]


def test_bml_on_nine_ranks_is_bcube_3_2_and_sums_what_the_backend_sums():
    net = workload([4, 68, 400, 1004], [1.0, 2.0, 3.0, 4.0])  # 1 element, fewer than the 18 pieces, no multiple of 18
    known = schemes.discovered()
    plan = schemes.plan(known["bml"], net, COST, 9)
    assert [(op.algorithm, op.shape, op.root) for op in plan.communications()] == [("bml", (3, 3), 0)] * 4
    assert plan.provenance["topology"] == "bcube:3,2"
    check(plan)
    spelled_out = lowered(plan)
    check(spelled_out)
    assert {op.rail for op in spelled_out.roles[0].flat if op.verb == "send"} == {0, 1}
    expected = trained(schemes.plan(known["wfbp"], net, COST, 9))
    for found_plan in (plan, spelled_out):
        np.testing.assert_array_equal(trained(found_plan), expected)


def test_whole_tensors_go_to_the_servers_in_turn_over_several_lanes():
    scheme = schemes.load(ROOT / "config" / "schemes.yaml")["tf_ps"]
    plan = schemes.plan(scheme, workload([400] * 10, [1.0] * 10), COST, 4)
    lanes = scheme.options["lanes"]
    assert 1 < lanes < 10
    assert [op.root for op in plan.communications()] == [number % 4 for number in range(10)]
    assert [op.lane for op in plan.communications()] == [f"network{number % lanes}" for number in range(10)]
    update = plan.roles[0].flat[-1]
    assert sorted(update.after) == [f"message{number}" for number in range(10 - lanes, 10)]  # the last of each lane
    check(plan)
    check(lowered(plan))


def test_dense_nodes_are_the_real_ones_where_they_are_known():
    scheme = schemes.discovered()["hierarchical"]
    net = workload([400, 800], [1.0, 2.0])
    for ranks, together, topology, shape in [
        (8, None, "dense_gpu:2,4", (4, 2)),
        (8, 2, "dense_gpu:4,2", (2, 4)),
        (8, 8, "dense_gpu:1,8", (8,)),
        (4, 1, "dense_gpu:4,1", (1, 4)),
        (3, 4, "dense_gpu:1,3", (3,)),
        (6, 4, "dense_gpu:2,4", (6,)),  # no whole nodes: all ranks alike
    ]:
        plan = schemes.plan(scheme, net, COST, ranks, ranks_a_node=together)
        assert plan.provenance["topology"] == topology
        assert {op.shape for op in plan.communications()} == {shape}
        check(lowered(plan))
    written = schemes.Scheme(name="hierarchical", topology="dense_gpu:2,4")
    assert written.shape(8, 2) == (4, 2)  # numbers that are written win


def test_schemes_whose_messages_cost_the_same_are_measured_once():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert {known[name].measured_as(9) for name in schedules.names()} == {""}
    assert known["bml"].measured_as(9) == "bml-3x3"
    assert known["tf_ps"].measured_as(4) == known["ps_tensor"].measured_as(4) == "ps_tensor-4"
    assert known["torus2d"].measured_as(8, 2) == "torus2d-2x4"
