"""The plan of parts of a chip is one like any other: checked, lowered, simulated, refused on other machines' memory."""

from __future__ import annotations

import dataclasses

import pytest

from configurations import parse as configured
from gradsync import collectives
from gradsync.check import check
from gradsync.check.grid import PlanError
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Local, Plan, Ref, Role, Send
from gradsync.plan.workload import Layer, Workload
from gradsync.rounds import flow_level
from gradsync.rounds.lowering import lowered
from gradsync.topologies import Speeds, parse

WORKLOAD = Workload(
    name="tiny",
    forward_seconds=1.0,
    layers=tuple(Layer(name=name, bytes=4 * 50, backward_seconds=0.5) for name in ("second", "first")),
)
SCHEME = schemes.Scheme(name="parts", schedule="single", collective="shared_tree")


def planned(parts: int = 4) -> Plan:
    return schemes.plan(SCHEME, WORKLOAD, Linear(0.0, 1e-9), parts, lr=0.1)


def edited(plan: Plan, change: object) -> Plan:
    """Every role with each operation as `change` leaves it; None: without it."""
    roles = [Role(role.name, role.ranks, tuple(filter(None, map(change, role.flat)))) for role in plan.roles]
    return dataclasses.replace(plan, roles=tuple(roles))


def test_it_is_checked_also_spelled_out():
    check(planned())
    check(lowered(planned()))
    assert planned().provenance["topology"] == "numa:4"


def test_a_sum_that_is_read_before_it_is_complete_is_refused():
    def hasty(op):
        return dataclasses.replace(op, after=()) if isinstance(op, Local) and op.name == "update" else op

    with pytest.raises(PlanError, match=r"race on gradient.*'message0' and 'update'"):
        check(edited(planned(), hasty))


def test_a_sum_that_lacks_a_gradient_is_refused():
    def without_the_first(op):
        whole = (Ref("gradient", 0, 50),)
        return dataclasses.replace(op, reads=whole, writes=whole) if op.verb == "collective" else op

    with pytest.raises(PlanError, match="missing gradient: 'first' reaches 'update' without the gradients of"):
        check(edited(planned(), without_the_first))


def test_a_sum_that_lacks_a_part_is_refused():
    """The tree spelled out, in which part 3 adds nothing: its send is gone, and so is what part 2 receives."""
    whole = lowered(planned())
    (first,) = [op.name for op in whole.role_of[3].flat if isinstance(op, Send)]

    gone = (first, "message0.recv0.3", "message0.add0.3")

    def alone(op):
        after = tuple(each if each not in gone else "ready:first" for each in op.after)
        after += ("ready:first",) * op.name.startswith("message0.send")  # which waited for what is gone
        return None if op.name in gone else dataclasses.replace(op, after=after)

    with pytest.raises(PlanError, match=r"missing gradient: .* without the gradients of rank\(s\) 3"):
        check(edited(whole, alone))


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_the_sum_takes_two_rounds_for_each_level_of_the_tree(parts):
    speeds, m = Speeds(0.125, 4.0), 400
    seconds = flow_level.cost("shared_tree", parse(f"numa:{parts}"), speeds).seconds(m)
    assert seconds == pytest.approx(2 * (parts - 1).bit_length() * (0.125 + m / 4.0))
    costs = Network({"all_reduce": Linear(seconds, 0.0)})
    assert simulate(planned(parts), WORKLOAD, costs).iteration_seconds() == pytest.approx(1.0 + 1.0 + seconds)


def test_it_is_no_contender_unless_asked_for_and_no_emulated_hosts_can_run_it():
    known = schemes.discovered()
    assert "shared_tree" not in {each.name for each in schemes.pick(known, None, "here", 4)}
    assert [each.name for each in schemes.pick(known, ["shared_tree"], "here", 4)] == ["shared_tree"]
    assert collectives.shape_on("shared_tree", parse("numa:6"), 6) == (6,)
    with pytest.raises(InputError, match="only device cpu executes"):
        known["shared_tree"].refuse_device("cuda")


@pytest.mark.parametrize("topology", ["switch", "switch:4", "dense_gpu:2,2", "bcube:2,2"])
def test_it_is_refused_on_a_network_between_hosts(topology):
    own = f"collective 'shared_tree' sums in memory that all ranks share, and topology '{topology}'"
    with pytest.raises(InputError, match=own):
        SCHEME.model_copy(update={"topology": topology}).refuse_nonsense("here")
    with pytest.raises(InputError, match="sums in memory that all ranks share"):
        SCHEME.model_copy(update={"topology": topology}).refuse_ranks(4)


@pytest.mark.usefixtures("in_the_project")
@pytest.mark.parametrize("scheme", ["chip_parts", "shared_tree"])
def test_hosts_of_a_testbed_share_no_memory(scheme):
    launch = {"model": "lenet5", "ranks": 4, "topology": "switch", "dilation": 16, "schemes": [scheme]}
    with pytest.raises(InputError, match=rf"emulated\.0\.schemes: {scheme} has memory that all ranks share"):
        configured(emulated=[launch])
    configured(emulated=[{**launch, "schemes": ["ring"]}])
