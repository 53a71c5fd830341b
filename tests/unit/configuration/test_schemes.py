"""Schemes are discovered, merged with those of the file, picked and planned; nonsense is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import toy_collective
from configurations import ROOT, parse, scheme_file
from gradsync import collectives, compressors, schedules, sparse, updates
from gradsync.check import check
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError
from gradsync.plan import Collective, Plan
from gradsync.rounds.lowering import lowered
from tiny_workloads import workload

pytestmark = pytest.mark.usefixtures("in_the_project")


COST = Linear(1.0, 0.1)


def test_the_project_names_every_schedule_and_collective_as_a_scheme():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert {*schedules.names(), *collectives.names(), *sparse.names(), *compressors.names()} <= set(known)
    for name in collectives.names():
        assert (known[name].schedule, known[name].collective) == ("wfbp", name)
        assert known[name].paper
    assert known["horovod_buckets"].schedule == "fixed_buckets"
    assert known["mgwfbp_as_printed"].options == {"as_printed": True}
    assert known["wfbp"].label == "WFBP"


@pytest.mark.parametrize("ranks", [4, 9])  # that every collective can serve
def test_every_scheme_of_the_project_can_be_planned(ranks):
    net = workload([400, 800, 1200], [1.0, 2.0, 3.0], shapes=[(10, 10), (200,), (20, 3, 5)])
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    for scheme in (scheme for scheme in known.values() if not scheme.phases):  # whose schemes are planned
        plan = schemes.plan(scheme, net, COST, ranks, optimizer="lars" if scheme.pto else "sgd")
        check(plan)
        assert plan.name == scheme.name
        assert plan.provenance["schedule"] == scheme.schedule
        assert plan.provenance["topology"] == scheme.network(ranks).name
        shape = () if scheme.algorithm == "native" else scheme.shape(ranks)
        collective = [(op.algorithm, op.shape) for op in plan.communications() if isinstance(op, Collective)]
        assert {*collective} == ({(scheme.algorithm, shape)} if scheme.averaged or collective else set())
        assert (plan.holding("residual") is not None) is bool(scheme.compressor and scheme.error_feedback)


def test_entries_and_discovered_schedules_are_merged(tmp_path):
    known = schemes.load(
        scheme_file(tmp_path, "wfbp: {label: Wait-free}\nmine: {schedule: fixed_buckets, options: {bucket_bytes: 8}}\n")
    )
    summed = (*schedules.names(), *collectives.names(), "native_by_level")
    parts = (*summed, *sparse.names(), *compressors.names(), *updates.methods())
    assert set(known) == {*parts, "mine"}
    assert list(known)[:2] == ["wfbp", "mine"]  # the file's order first
    assert known["wfbp"].label == "Wait-free"
    assert known["mine"].schedule == "fixed_buckets"
    assert known["optimal"] == schemes.Scheme(name="optimal", schedule="optimal", label="optimal")


def test_without_entries_every_schedule_collective_and_method_is_a_scheme(tmp_path):
    known = schemes.load(scheme_file(tmp_path, "# nothing\n"))
    summed = [*schedules.names(), *collectives.names(), "native_by_level"]
    assert list(known) == [*summed, *sparse.names(), *compressors.names(), *updates.methods()]
    assert (known["native_by_level"].schedule, known["native_by_level"].collective) == ("optimal", "native_by_level")
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
    with pytest.raises(InputError, match="'toy' is the name of two parts"):
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
        (
            "{schedule: wfbp, collective: hitopk, density: 0}",
            "density 0: a share of the elements, above 0 and at most 1",
        ),
        ("{schedule: wfbp, collective: hitopk, density: 1.01}", "density 1.01: a share of the elements"),
        ("{schedule: wfbp, compressor: nosuch}", "compressor 'nosuch' does not exist; there are: "),
        (
            "{schedule: wfbp, density: 0.1}",
            "key density: only with a collective of sparse messages (allgather_sparse, ",
        ),
        ("{schedule: wfbp, error_feedback: false}", "key error_feedback: only with a collective of sparse messages"),
        ("{schedule: wfbp, collective: ring, compressor: exact_topk}", "key compressor: only with a collective of"),
        ("{schedule: wfbp, collective: hitopk, wire: float16}", "key wire: values of sparse messages travel in the"),
        ("{schedule: pipelined, collective: hitopk}", "update 'sharded' needs reduce-scatters: choose update "),
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
    known_alike = [scheme for scheme in known.values() if scheme.averaged and not scheme.compressor]
    alike = [scheme for scheme in known_alike if not (scheme.phases or scheme.in_memory or scheme.by_level)]
    assert schemes.pick(known, None, "here") == alike
    in_memory = {scheme.name for scheme in known.values() if scheme.in_memory}
    assert in_memory == {"shared_tree", "chip_parts", "hogwild_sgd", "hogwild_easgd"}
    assert [scheme.name for scheme in schemes.pick(known, ["hitopk"], "here")] == ["hitopk"]
    assert schemes.pick(known, [], "here") == []
    native = schemes.pick(known, "native", "here")
    assert {scheme.name for scheme in native} >= set(schedules.names())
    assert not {scheme.name for scheme in native} & set(collectives.names())
    with pytest.raises(InputError, match="here: scheme 'nosuch' does not exist; there are: naive, wfbp"):
        schemes.pick(known, ["nosuch"], "here")


def test_a_method_of_its_own_is_no_contender_unless_asked_for():
    known = schemes.discovered()
    names = set(updates.methods())
    assert names
    for every in (None, "native"):
        assert not {scheme.name for scheme in schemes.pick(known, every, "here")} & names
    with pytest.raises(InputError, match=r"here: scheme 'sync_easgd3': .* no contender beside schemes that do"):
        schemes.pick(known, ["sync_easgd3"], "here")
    assert schemes.pick(known, ["sync_easgd3"], "here", methods=True) == [known["sync_easgd3"]]
    with pytest.raises(InputError, match="which clipping and a loss scale"):
        schemes.pick(known, ["sync_easgd3"], "here", scaled=True, methods=True)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("schedule: wfbp", "schedule 'wfbp' belongs to sums of gradients"),
        ("collective: ring", "collective 'ring' has no reduce on 2 ranks"),
        ("collective: binary_tree, topology: bcube", "topology 'bcube' belongs to sums of gradients"),
        ("topology: bcube", "topology 'bcube' belongs to sums of gradients"),
        ("wire: float16", "wire 'float16' belongs to sums of gradients"),
        ("update_options: {tau: 2}", "update 'sync_easgd1' has no option 'tau'; it has: rho"),
        ("update_options: {rho: fast}", "option rho needs a value like 0.5, not 'fast'"),
    ],
)
def test_parts_that_a_method_can_not_have_are_refused_by_name(tmp_path, entry, text):
    with pytest.raises(InputError, match=text):
        schemes.load(scheme_file(tmp_path, f"sync_easgd1: {{{entry}}}\n"))


def test_options_of_a_scheme_reach_its_update():
    load = workload([400, 400], [1.0] * 2)
    scheme = schemes.Scheme(name="softer", update="sync_easgd2", update_options={"rho": 0.25})
    plan = schemes.plan(scheme, load, COST, 2, lr=0.5)
    assert plan.role_of[0].flat[-1].arguments == {"lr": 0.5, "rho": 0.25, "terms": 2.0}


def test_a_method_with_a_master_needs_a_worker_too():
    scheme = schemes.discovered()["sync_easgd1"]
    assert scheme.workers(4) == 3
    with pytest.raises(InputError, match=r"scheme 'sync_easgd1': 1 rank.*rank 0 is the master: at least 2"):
        schemes.plan(scheme, workload([4], [1.0]), COST, 1)


def test_a_compressor_is_a_scheme_and_parts_of_sparse_messages_have_defaults(tmp_path):
    text = "one: {schedule: single, compressor: exact_topk}\ntwo: {collective: hitopk, schedule: wfbp, density: 0.5}\n"
    known = schemes.load(scheme_file(tmp_path, text))
    parts = {
        name: (each.schedule, each.collective, each.compressor, each.density, each.error_feedback)
        for name, each in known.items()
    }
    assert parts["one"] == ("single", "allgather_sparse", "exact_topk", 0.01, True)
    assert parts["two"] == ("wfbp", "hitopk", "exact_topk", 0.5, True)
    assert parts["exact_topk"] == ("wfbp", "allgather_sparse", "exact_topk", 0.01, True)
    assert parts["wfbp"] == ("wfbp", "native", "", None, None)


def test_sparse_between_nodes_needs_whole_nodes():
    scheme = schemes.discovered()["hitopk"]
    assert [(axis.name, axis.size) for axis in scheme.axes(8)] == [("node", 2), ("local", 4)]
    assert [axis.size for axis in scheme.axes(8, 2)] == [4, 2]
    with pytest.raises(InputError, match="needs 2 levels that ranks fill whole, and 6 rank"):
        scheme.refuse_ranks(6, 4)
    with pytest.raises(InputError, match=r"don't on topology 'switch:4': choose dense_gpu"):
        scheme.model_copy(update={"topology": "switch"}).refuse_ranks(4)


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
