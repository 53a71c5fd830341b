"""PTO: norms of whole tensors are dealt to ranks, each is computed by one of them, and all get it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_plans as tiny
from gradsync import optimizers
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.kernels import KERNELS, reads_of
from gradsync.plan import Local, Plan, Ref
from gradsync.runtime.contenders import silent
from gradsync.transforms.pto import deal, deal_out
from tiny_workloads import workload

COUNTS = [50, 250, 1, 150, 51]  # elements of the tensors, in backward order
COST = Linear(2.0, 0.002)
OPTIMIZERS = [name for name in optimizers.names() if optimizers.get(name).ratios]
TURNS = 4


def net(**more: Any) -> Any:
    return workload([8 * count for count in COUNTS], [1.0] * len(COUNTS), update=1.0, dtype="float64", **more)


def planned(name: str, ranks: int, pto: bool = True, parts: dict[str, Any] | None = None, **how: Any) -> Plan:
    scheme = schemes.Scheme(name="mgwfbp", pto=pto, **(parts or {}))
    return schemes.plan(scheme, net(), COST, ranks, optimizer=name, **{"lr": 0.05, "weight_decay": 0.1, **how})


def trained(plan: Plan) -> list[np.ndarray]:
    first = np.linspace(-1, 1, plan.elements)
    first[: COUNTS[0]] = 0  # as a bias
    return [end["parameter"] for end in evaluate(plan, TURNS, tiny.pull, {"parameter": first})]


def operation(plan: Plan, name: str) -> Any:
    return next(op for op in plan.roles[0].flat if op.name == name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_values_are_those_of_the_serial_update(name, ranks):
    """Also if there are more ranks than tensors."""
    plan = planned(name, ranks)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    np.testing.assert_array_equal(trained(plan), trained(planned(name, ranks, pto=False)))
    of_plan, settings = optimizers.of(plan), {"lr": 0.05, "weight_decay": 0.1}
    assert of_plan == optimizers.get(name, **settings)


@pytest.mark.parametrize(
    ("parts", "how"),
    [
        ({}, {"accumulate": 3}),
        ({"wire": "float32"}, {}),
        ({"collective": "allgather_sparse", "density": 0.5}, {}),
        ({"collective": "hitopk", "density": 0.5}, {"ranks_a_node": 2}),
        ({"collective": "ring", "schedule": "wfbp"}, {}),
    ],
)
def test_it_goes_with_what_else_a_step_has(parts, how):
    plan = planned("lamb", 4, parts=parts, **how)
    check(plan)
    np.testing.assert_array_equal(trained(plan), trained(planned("lamb", 4, pto=False, parts=parts, **how)))


def test_each_tensor_is_dealt_to_one_rank_and_no_rank_has_much_more_than_another():
    plan = planned("lars", 3)
    ratios = operation(plan, "ratios")
    hands = [[ref.start for ref in reads_of(ratios, plan.mesh, rank)[::2]] for rank in range(3)]
    assert sorted(start for hand in hands for start in hand) == [tensor.start for tensor in plan.tensors]
    assert hands == [[50], [300, 301], [0, 451]]  # 250 elements; 1 and 150; 50 and 51


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 12))
def test_every_hand_is_full_and_the_last_comer_to_the_fullest_had_no_better_place(sizes, ranks):
    count = len(sizes)
    room = [(rank + 1) * count // ranks - rank * count // ranks for rank in range(ranks)]
    hands = deal_out(sizes, room)
    assert [len(hand) for hand in hands] == room
    assert sorted(item for hand in hands for item in hand) == list(range(count))
    totals = [sum(sizes[item] for item in hand) for hand in hands]
    fullest = max(range(ranks), key=totals.__getitem__)
    last = min((sizes[item] for item in hands[fullest]), default=0)
    for rank, hand in enumerate(hands):  # who had room then had at least as much
        smaller = [sizes[item] for item in hand if sizes[item] < last]
        if smaller:
            assert totals[rank] - sum(smaller) >= totals[fullest] - last


# What is refused


def edited(plan: Plan, edit: Callable[[Any], Iterator[Any]]) -> Plan:
    (role,) = plan.roles
    body = tuple(new for op in role.flat for new in edit(op))
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def changed(plan: Plan, name: str, **changes: Any) -> Plan:
    return edited(plan, lambda op: iter([dataclasses.replace(op, **changes) if op.name == name else op]))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_ratio_that_is_not_gathered_is_found(name):
    plan = planned(name, 3)
    alone = edited(plan, lambda op: iter([] if op.name == "gather_ratios" else [op]))
    with pytest.raises(PlanError, match=r"reads ratios\[\d:\d\], which nothing has written"):
        check(changed(alone, "update", after=("ratios",)))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ratios_that_every_rank_computes_and_sends_are_found(name):
    plan = planned(name, 3)
    (written,) = operation(plan, "ratios").writes
    with pytest.raises(PlanError, match="brings rank 0 a ratio that it has computed itself, of rank 1: deal each to"):
        check(changed(plan, "ratios", writes=(written._replace(mine=()),)))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_ratio_that_nobody_computes_or_two_do_is_found(name):
    plan = planned(name, 3)
    ratios, each = operation(plan, "ratios"), KERNELS[operation(plan, "ratios").kernel].dealt
    with pytest.raises(PlanError, match=f"writes 5 elements of {4 * each} ranges: {each} for each"):
        check(changed(plan, "ratios", reads=ratios.reads[each:]))
    with pytest.raises(PlanError, match="which nothing has written"):
        check(changed(plan, "ratios", reads=ratios.reads[each:], writes=(Ref("ratios", 0, 4, ("world",)),)))
    with pytest.raises(PlanError, match="needs the ratio of the parameters and of the gradients that it works on"):
        check(changed(plan, "ratios", reads=(*ratios.reads[each : 2 * each], *ratios.reads[each:])))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_stale_ratio_is_found(name):
    plan = planned(name, 3)
    late = changed(plan, "update", after=operation(plan, "ratios").after)
    body = list(late.roles[0].flat)
    gather = next(number for number, op in enumerate(body) if op.name == "gather_ratios")
    body.append(dataclasses.replace(body.pop(gather), after=("ratios", "update")))
    swapped = dataclasses.replace(late, roles=(dataclasses.replace(late.roles[0], body=tuple(body)),))
    with pytest.raises(PlanError, match="ratios"):
        check(swapped)
    early = changed(plan, "ratios", after=())  # of gradients that nobody has summed
    with pytest.raises(PlanError, match=r"race on|missing gradient"):
        check(early)


def test_what_has_no_norms_of_all_tensors_is_refused_by_name():
    with pytest.raises(InputError, match=r"'mgwfbp' deals norms .* 'sgd' takes none: choose optimizer lamb or"):
        schemes.plan(schemes.Scheme(name="mgwfbp", pto=True), net(), COST, 2)
    with pytest.raises(InputError, match=r"scheme 'bad': .* optimizer 'adam' takes none"):
        schemes.Scheme(name="bad", schedule="wfbp", pto=True, optimizer="adam").refuse_nonsense("here")
    for update in ("by_message", "sharded", "sync_easgd1"):
        schedule = "" if update.startswith("sync") else "wfbp"
        with pytest.raises(InputError, match=f"key pto: .* update '{update}' does not apply all gradients at once"):
            schemes.Scheme(name="bad", schedule=schedule, update=update, pto=True).refuse_nonsense("here")
    with pytest.raises(InputError, match="PTO deals norms of tensors to ranks, and its update takes none"):
        deal(tiny.synchronous(2))
    with pytest.raises(InputError, match="PTO needs a plan whose ranks all do the same"):
        deal(tiny.uneven_roles(2))
    by_message = {"schedule": "wfbp", "update": "by_message"}
    for plan in (tiny.dealt_ratios(2), planned("lars", 2), planned("lars", 2, False, by_message)):
        with pytest.raises(InputError, match="PTO needs one operation that computes the ratios of all tensors"):
            deal(plan)


def test_launches_without_names_of_schemes_take_it_with_an_optimizer_that_has_norms():
    known = {"dealt": schemes.Scheme(name="dealt", schedule="wfbp", pto=True)}
    assert schemes.pick(known, None, "here", 2, optimizer="lars") == list(known.values())
    assert schemes.pick(known, None, "here", 2, optimizer="sgd") == []
    with pytest.raises(InputError, match="here: scheme 'dealt' deals norms of tensors to ranks"):
        schemes.pick(known, ["dealt"], "here", 2, optimizer="sgd")


# What it takes


def test_it_takes_what_the_rank_with_most_elements_does_and_the_gather():
    free, load = Linear(0.0, 0.0), net(kernels={}).model_copy(update={"norm_seconds": 1.0})
    network = Network({"all_reduce": free, "all_gather": Linear(0.5, 0.0)})

    def period(plan: Plan) -> float:
        return simulate(plan, load, network).iteration_seconds() - load.forward_seconds - load.backward_seconds

    assert period(planned("lars", 3, pto=False)) == pytest.approx(2 * 1.0 + 5 / 5)
    assert period(planned("lars", 3)) == pytest.approx(2 * 1.0 * 250 / 502 + 0.5 + 5 / 5)
    assert period(planned("lamb", 3)) == pytest.approx(4 * 1.0 * 250 / 502 + 0.5 + 7 / 5)


def test_without_messages_every_rank_computes_all_norms_itself():
    alone = silent(planned("lars", 3))
    (ratios,) = (op for op in alone.roles[0].flat if isinstance(op, Local) and op.name == "ratios")
    assert ratios.writes == (Ref("ratios", 0, 5),)
    first = np.linspace(-1, 1, alone.elements)
    (end,) = {end["parameter"].sum() for end in evaluate(alone, 1, lambda *_: first, {"parameter": first})}
    assert np.isfinite(end)
