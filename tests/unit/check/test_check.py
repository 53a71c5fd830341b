"""Each kind of fault planted in a plan that is in order is found, and shown where it is."""

import dataclasses

import pytest

import tiny_plans as tiny
from changed_plans import bases
from gradsync.check import PlanError, check, grid
from gradsync.plan import (
    Buffer,
    Collective,
    Local,
    Need,
    Plan,
    Ready,
    Recv,
    Ref,
    Repeat,
    Reply,
    Role,
    Send,
    SharedAdd,
    Tensor,
)
from gradsync.rounds.lowering import lowered
from plan_edits import (
    appended,
    changed,
    index_of,
    inside,
    moved_to_front,
    setting,
    setting_inside,
    with_buffers,
    without,
)


def summed_again(body):
    ref = Ref("gradient", 5, 8)
    body.insert(-1, Collective(name="again", lane="network", reads=(ref,), writes=(ref,)))
    setting("update", after=("again",))(body)


PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SWEEP = tiny.easgd_round_robin(2)
SHARDED = tiny.sharded(2)
SPARSE = tiny.sparse(2)
BY_LAYER = bases.sparse_by_layer(2)
GROUPS = tiny.in_groups(2, 2)
TWO_LEVEL = tiny.two_level()
RINGS = tiny.synchronous(2, algorithm="ring")
RING = lowered(RINGS)
CLIPPED = bases.scheme("wfbp", 2, clip_norm=0.5)
NARROW = bases.scheme("wfbp", 2, wire="float32")
WHOLE = Ref("gradient", 0, 13)


def sent_for_nothing() -> Plan:
    """Rank 0 sends its parameters after each update, and nobody receives them."""
    plan = tiny.uneven_roles(2)
    sent = Send(name="sent", lane="network", to=1, reads=(Ref("parameter", 0, 1),), after=("update",))
    return changed(changed(plan, appended(sent)), setting("update", after_previous=("sent",)))


def waiting_for_push(body):
    setting("fetch", after=("push",))(body)


def later_sum(body):
    """What has come is added before it is received: it is that of the turn before."""
    at = index_of(body, "message0.add0.1")
    body[at - 1], body[at] = body[at], body[at - 1]


def twice_on_one_rank() -> Plan:
    """Rank 1 updates once more."""
    (role,) = PLAN.roles
    again = dataclasses.replace(role.body[-1], name="again", after=("update",))
    forward = dataclasses.replace(role.body[0], after_previous=("again",))
    other = (forward, *role.body[1:], again)
    return dataclasses.replace(PLAN, roles=(Role("one", (0,), role.body), Role("two", (1,), other)))


def decoding_its_own(body):
    setting("decode", after=("encode",))(body)


def indices_first(body):
    """The indices leave before they are there."""
    body.insert(0, body.pop(index_of(body, "gather_indices")))
    setting("gather_indices", after=(), after_previous=("decode",))(body)
    setting("encode", after=("gather_indices",))(body)


def encoded_again(body):
    """Encode a second time before anything is sent."""
    again = dataclasses.replace(body[index_of(body, "encode")], name="encode2")
    body.insert(index_of(body, "encode") + 1, again)
    for name in ("gather_values", "gather_indices"):
        setting(name, after=("encode2",))(body)


def updated_before_it_is_sent(body):
    """The worker changes its parameters, then sends them."""
    push = body.pop(index_of(body, "push"))
    body.append(dataclasses.replace(push, after=("update",)))
    setting("update", after=("centre",))(body)
    setting("forward", after_previous=("push",))(body)


def pulled_again(body):
    again = dataclasses.replace(body[index_of(body, "pull1")], name="again", after=("pull1",))
    body.insert(index_of(body, "pull1") + 1, again)
    setting("centre2", after=("again",))(body)
    setting("take2", after=("again",))(body)


def pushed_on_two_lanes(body):
    again = dataclasses.replace(body[index_of(body, "push")], name="push again", lane="other", after=("centre",))
    body.insert(index_of(body, "push") + 1, again)
    setting("update", after=("centre", "push", "push again"))(body)


@inside
def one_more_receive(body):
    more = Recv(name="more", lane="network", source=2, tag=1, writes=(Ref("incoming", 0, 13),), after=("apply",))
    body.insert(2, dataclasses.replace(more, after_previous=("give",)))


@inside
def served_twice(body):
    take = body[index_of(body, "take")]
    body.insert(1, dataclasses.replace(take, name="take2", after=("take",), after_previous=("apply",)))
    setting("apply", after=("take", "take2"))(body)


@inside
def served_for_nothing(body):
    body.append(Local(name="rest", lane="idle", kernel="join"))


@inside
def served_together(body):
    ref = (Ref("gradient", 0, 13),)
    body.append(Collective(name="sum", lane="network", reads=ref, writes=ref, after=("apply",)))


@inside
def replied_too_early(body):
    setting("give", after=(), lane="other")(body)
    setting("apply", after_previous=("give",), after=("take", "give"))(body)
    body.sort(key=lambda op: ["take", "give", "apply"].index(op.name))


def in_two_ways(then=("message3",), **values) -> Plan:
    """One of the sums is something else on rank 1, whose update waits for what `then` names."""
    (role,) = PLAN.roles
    body = list(role.body)
    setting("message1", **values)(body)
    setting("update", after=then)(body)
    return dataclasses.replace(PLAN, roles=(Role("one", (0,), role.body), Role("other", (1,), tuple(body))))


def of_two_types() -> Plan:
    """An all-reduce of float64 on rank 0 and of float32 on rank 1."""
    roles = []
    for rank, name in enumerate(("one", "two")):
        ref = (Ref(name, 0, 4),)
        roles.append(Role(name, (rank,), (Collective(name="sum", lane="network", reads=ref, writes=ref),)))
    buffers = (Buffer("one", 4, "float64", role="state"), Buffer("two", 4, "float32", role="state"))
    return Plan("types", 2, (), buffers, tuple(roles))


def of_two_ranges():
    refs = (Ref("gradient", 0, 2), Ref("gradient", 2, 5))
    return {"reads": refs, "writes": refs}


def of_spare(start: int, stop: int) -> Ref:
    return Ref("gradient", start, stop)


def needed_twice(body):
    body.insert(1, dataclasses.replace(body[0], name="again"))


def out_of_order(waits: bool) -> Plan:
    """Rank 0 sends tag 1, then tag 2 (once the first is finished where it `waits`); rank 1 receives 2, then 1."""

    def ref(name: str, number: int):
        return (Ref(name, number, number + 1),)

    one = (
        Send(name="first", lane="network", to=1, tag=1, reads=ref("out", 0)),
        Send(name="second", lane="network", to=1, tag=2, reads=ref("out", 1), after=("first",) if waits else ()),
    )
    two = (
        Recv(name="take2", lane="network", source=0, tag=2, writes=ref("in", 1)),
        Recv(name="take1", lane="network", source=0, tag=1, writes=ref("in", 0)),
    )
    return dataclasses.replace(
        exchange("send"),
        buffers=(Buffer("out", 2, role="state"), Buffer("in", 2)),
        roles=(Role("one", (0,), one), Role("two", (1,), two)),
    )


def exchange(first_of_rank_1: str) -> Plan:
    """Two ranks; rank 0 sends and then receives. Rank 1 too, or it receives and then waits for itself."""
    sends = {"lane": "network", "reads": (Ref("out", 0, 1),)}
    receives = {"lane": "network", "writes": (Ref("in", 0, 1),)}
    one = (Recv(name="recv0", source=1, **receives), Send(name="send0", to=1, after=("recv0",), **sends))
    two = [Send(name="send1", to=0, **sends), Recv(name="recv1", source=0, **receives)]
    if first_of_rank_1 == "recv":
        two.reverse()
    return Plan(
        name="exchange",
        ranks=2,
        tensors=(Tensor("layer1", 0, 1),),
        buffers=(Buffer("out", 1, role="state"), Buffer("in", 1)),
        roles=(Role("one", (0,), one), Role("two", (1,), tuple(two))),
    )


FAULTS = {
    # waits
    "race": (changed(PLAN, setting("update", after=())), r"race on gradient\[.*'message0' and .* neither waits"),
    "race with the next turn": (
        changed(SHARDED, setting("forward:layer2", after_previous=())),
        r"race on parameter\[.*'gather:layer2' and 'forward:layer2' \(of the next turn\)",
    ),
    "race with a send that is only posted": (
        changed(SERVER, setting("forward", after_previous=("fetch",)), role=1),
        r"race on gradient\[.*'push'",
    ),
    "waits for a later operation": (
        changed(PLAN, moved_to_front("message3")),
        r"'message3' waits for 'ready:layer1', which the launch order puts after it: a deadlock",
    ),
    "waits for nobody": (changed(PLAN, setting("message0", after=("ready:x",))), r"waits for 'ready:x', which role"),
    "waits for nobody of the turn before": (
        changed(PLAN, setting("forward", after_previous=("x",))),
        r"waits for 'x', which role",
    ),
    # gradients
    "dropped message": (
        changed(PLAN, without("message1")),
        r"missing gradient: 'layer3' reaches 'update' without the gradients of rank",
    ),
    "half a message": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 4),), writes=(Ref("gradient", 0, 4),))),
        r"missing gradient: 'layer4' reaches 'update' without the gradients of rank",
    ),
    "gradient that nobody makes": (
        changed(PLAN, without("ready:layer3")),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that nobody makes ready": (
        changed(changed(PLAN, without("ready:layer3")), setting("message1", after=())),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that nobody uses": (
        changed(PLAN, setting("update", reads=(Ref("gradient", 0, 12),), writes=(Ref("parameter", 0, 12),))),
        r"missing gradient: 'layer1' is made ready and reaches no update",
    ),
    "parameters sent as gradients": (
        changed(changed(SERVER, setting("push", reads=(Ref("parameter", 0, 13),)), role=1), waiting_for_push, role=1),
        r"'apply' missing gradient: it takes gradients and finds parameter",
    ),
    "gradient in the place of others": (
        changed(PLAN, setting("ready:layer4", writes=(Ref("gradient", 5, 10),))),
        r"'ready:layer4': a gradient has its place: backward reads parameter\[0:5\], writes gradient\[0:5\]",
    ),
    "gradient of another tensor": (
        changed(PLAN, setting("ready:layer3", tensor="layer2")),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that is nowhere": (changed(PLAN, setting("ready:layer4", writes=())), r"a gradient has its place"),
    "gradient of the turn before": (
        changed(RING, later_sum, role=0),
        r"'message0.add0.1' reads scratch:message0\[.*, which nothing has written",
    ),
    "update done twice": (twice_on_one_rank(), r"'again' applies gradients of .* to other parameters than they were"),
    "update of the gradient": (
        changed(PLAN, setting("update", writes=(WHOLE,))),
        r"'update' applies gradients of .* to gradient",
    ),
    "update with the norm of a part": (
        changed(CLIPPED, setting("norm", reads=(Ref("gradient", 0, 12),))),
        r"'update' clips with the norm of something else",
    ),
    "update with a norm that nobody computes": (
        changed(changed(CLIPPED, without("norm")), setting("update", after=("message3",))),
        r"'update' reads norm\[0:1\], which nothing has written",
    ),
    "norm of float64 in float32": (
        dataclasses.replace(
            CLIPPED,
            buffers=tuple(dataclasses.replace(b, dtype="float32") if b.name == "norm" else b for b in CLIPPED.buffers),
        ),
        r"'norm': kernel 'norm' of float64 is not a float32",
    ),
    "sums that were scaled differently": (
        changed(changed(NARROW, setting("narrow0", arguments={"scale": 1.0})), lambda body: None),
        r"takes gradients that were scaled differently",
    ),
    "ranks that drift apart": (
        changed(SHARDED, setting("gather:layer3", kind="broadcast", postcondition="copy")),
        r"'update:layer.' .*(drifted apart|as they were before another update, which is lost)",
    ),
    "a gather that gathers nothing": (
        changed(SHARDED, setting("gather:layer3", kind="reduce_scatter", postcondition="shard")),
        r"'gather:layer3' puts sum of several in parameter\[5:6\], a buffer for parameter",
    ),
    "both gathers of a sparse sum missing": (
        changed(changed(changed(SPARSE, without("gather_values")), without("gather_indices")), decoding_its_own),
        r"'decode' reads values\[3:6\], which nothing has written",
    ),
    "values of one turn with indices of another": (
        changed(SPARSE, indices_first),
        r"'gather_indices' reads indices\[0:3\], which nothing has written",
    ),
    "gradients encoded twice": (
        changed(SPARSE, encoded_again),
        r"'encode.' encodes gradients a second time, which are in the residual already",
    ),
    "an elastic update that came first": (
        changed(SWEEP, updated_before_it_is_sent, role=1),
        r"pulls .* with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "a centre that takes a difference twice": (
        changed(SWEEP, pulled_again, role=0),
        r"(a second time|that the other side of the exchange never has)",
    ),
    "message that nobody decodes": (
        changed(BY_LAYER, lambda body: [without("decode0")(body), setting("update", after=("decode1",))(body)]),
        r"missing gradient: 'layer2' reaches 'update' without 'sparse_sum'",
    ),
    "sent before it is ready": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 8),), writes=(Ref("gradient", 0, 8),))),
        r"'message0' sends gradients that are not ready before it|race on gradient",
    ),
    "summed twice": (changed(PLAN, summed_again), r"'again' sums 'layer3' a second time"),
    "sparse sum missing": (
        changed(changed(SPARSE, without("decode")), setting("update", after=("gather_values", "gather_indices"))),
        r"missing gradient: .* without 'sparse_sum'",
    ),
    "shard taken for a sum": (
        changed(SHARDED, setting("update:layer3", reads=(tiny.place("gradient", SHARDED.tensors[1]),))),
        r"'update:layer3': kernel 'sgd' needs ranges of equal length: gradient\[5:8\].*of mine",
    ),
    # messages between ranks
    "unmatched send": (changed(SWEEP, without("take2"), role=0), r"waits for 'take2'"),
    "send that nobody receives": (sent_for_nothing(), r"unmatched send: rank 1 never receives 3"),
    "receive that nobody sends": (
        changed(SWEEP, without("push"), role=1),
        r"waits for 'push'",
    ),
    "wrong tag": (changed(SERVER, setting("push", tag=7), role=1), r"brings 0 for 1 of 'take'"),
    "reply that nobody receives": (
        changed(changed(SERVER, without("fetch"), role=1), setting("forward", after_previous=("push",)), role=1),
        r"unmatched send: rank 1 never receives 3 message\(s\) of rank 0 \(tag 2\)",
    ),
    "deadlock across ranks": (exchange("recv"), r"deadlock: rank 0 at 'recv0', rank 1 at 'recv1'"),
    "a send that waits for a receive": (out_of_order(waits=True), r"only when it is received\): rank 0 at 'first'"),
    "receive longer than its send": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 0, 9),)), role=1),
        r"'push' of rank 1 sends 9 float64, and 'take1' of rank 0 receives 13 float64",
    ),
    "receive of another type than its send": (
        dataclasses.replace(
            SWEEP,
            buffers=tuple(
                dataclasses.replace(b, dtype="float32") if b.name == "incoming" else b for b in SWEEP.buffers
            ),
        ),
        r"'pull1': kernel 'elastic_centre' needs ranges of one of the types",
    ),
    "send on another rail": (
        changed(SWEEP, setting("push", rail=1), role=1),
        r"deadlock: rank 0 at 'centre1', rank 0 at 'take1'|deadlock: rank 0 at 'take1'",
    ),
    "send over another channel": (
        changed(SWEEP, setting("push", channel="own"), role=1),
        r"deadlock: rank 0 at 'take1'",
    ),
    "messages in an order that only timing decides": (
        changed(changed(SWEEP, setting("push", tag=3), role=1), pushed_on_two_lanes, role=1),
        r"rank 1 sends 'push' and 'push again' on channel 'network', rail 0, tag 3 from two lanes",
    ),
    "a message that a receive-from-any takes from another receive": (
        changed(changed(SERVER, one_more_receive, role=0), setting("push", tag=1), role=1),
        r"'take' receives from anybody on channel 'network', rail 0, tag 1, as 'more' receives",
    ),
    "a message of a rank that is no source": (
        changed(SERVER, setting_inside("take", sources=(1,))),
        r"'push' of rank 2 comes to 'take' of rank 0 .*, which receives from ranks 1 only",
    ),
    "a server that takes two messages a pass of three": (
        changed(tiny.async_server(3), served_twice),
        r"a whole number of passes receives, and brings 3 for 2 of 'take'",
    ),
    "a server that receives nothing": (
        changed(SERVER, served_for_nothing),
        r"its lane 'idle' neither receives anything nor waits for what does: it would never end",
    ),
    "a server in a collective": (
        changed(SERVER, served_together),
        r"'sum': a role that serves until others stop takes part in no collective",
    ),
    "a reply that doesn't wait for its question": (
        changed(SERVER, replied_too_early),
        r"reply 'give' doesn't wait for the receive-from-any 'take'",
    ),
    "a collective on two lanes": (
        in_two_ways(then=("message1", "message3"), lane="other"),
        r"collective 'message1' has other lane in role 'other'",
    ),
    "a collective of two kinds": (
        in_two_ways(kind="broadcast", postcondition="copy"),
        r"collective 'message1' has other kind in role 'other'",
    ),
    "a collective of two algorithms": (
        in_two_ways(algorithm="ring"),
        r"collective 'message1' has other algorithm in role 'other'",
    ),
    "a collective of two lengths": (
        in_two_ways(reads=(Ref("gradient", 5, 7),), writes=(Ref("gradient", 5, 7),)),
        r"collective 'message1' has other ranges in role 'other'",
    ),
    "a collective of two types": (of_two_types(), r"collective 'sum' has other ranges in role 'two'"),
    # form
    "a send to oneself": (changed(SWEEP, setting("push", to=1), role=1), r"between rank 1 and all ranks of its role"),
    "a receive from nobody": (changed(SERVER, setting_inside("take", sources=())), r"name each source once"),
    "a tag of 33 bits": (changed(SWEEP, setting("push", tag=1 << 33), role=1), r"tags are 0 to 16777215"),
    "a rail below 0": (changed(SWEEP, setting("push", rail=-1), role=1), r"rails 0 to 15"),
    "a channel without a name": (changed(SWEEP, setting("push", channel=""), role=1), r"'' names no channel"),
    "a lane without a name": (changed(PLAN, setting("message0", lane="a b")), r"'a b' names no lane"),
    "an empty message": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 4, 4),)), role=1),
        r"a range has at least one",
    ),
    "a send of a piece": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 0, 13, True),)), role=1),
        r"'push': a send names whole ranges",
    ),
    "a copy to a range that overlaps": (
        changed(PLAN, appended(Local(name="c", kernel="copy", reads=(of_spare(0, 3),), writes=(of_spare(1, 4),)))),
        r"'c': gradient\[1:4\] and gradient\[0:3\] overlap",
    ),
    "an all-reduce to a range that overlaps": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 4),), writes=(Ref("gradient", 1, 5),))),
        r"'message0': gradient\[1:5\] and gradient\[0:4\] overlap",
    ),
    "a ring of two ranges": (
        changed(RINGS, setting("message0", **of_two_ranges())),
        r"only an all-reduce of one range",
    ),
    "a gather by ring": (
        changed(SHARDED, setting("gather:layer3", algorithm="ring")),
        r"only an all-reduce of one range over all ranks can be lowered, and 'ring' is made of rounds",
    ),
    "an algorithm that doesn't exist": (
        changed(PLAN, setting("message0", algorithm="magic")),
        r"'magic' does not exist",
    ),
    "levels that an algorithm refuses": (
        changed(tiny.synchronous(4), setting("message0", algorithm="bml", shape=(1, 4))),
        r"collective 'bml' needs levels of one size, not 1 x 4",
    ),
    "a group that is not in order": (
        changed(tiny.sharded(4), setting("gather:layer3", ranks=(0, 3, 1, 2))),
        r"name each once, in rising order",
    ),
    "a layer that doesn't exist": (changed(SHARDED, setting("forward:layer2", layer="x")), r"each of its layers once"),
    "a layer needed twice": (changed(PLAN, needed_twice), r"each pass needs the whole model once"),
    "forward that needs half of the model": (
        changed(PLAN, setting("forward", reads=(Ref("parameter", 0, 6),))),
        r"'forward': forward reads parameter\[0:13\]",
    ),
    "a pass without backward": (
        changed(PLAN, lambda body: body.insert(0, dataclasses.replace(body[0], name="look"))),
        r"each pass needs the whole model once",
    ),
    "a kernel without its argument": (
        changed(PLAN, setting("update", arguments={})),
        r"'update': kernel 'sgd' needs its argument 'lr'",
    ),
    "a kernel with an argument that it doesn't have": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "nesterov": 1.0})),
        r"kernel 'sgd' has no argument 'nesterov'",
    ),
    "a kernel with an argument that is no number": (
        changed(PLAN, setting("update", arguments={"lr": float("nan")})),
        r"kernel 'sgd' needs lr from 0 to below inf, not nan",
    ),
    "momentum without its buffer": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "momentum": 0.5})),
        r"kernel 'sgd' reads 1 and writes 2 ranges, not 1 and 1",
    ),
    "momentum that something else writes": (
        changed(
            with_buffers(PLAN, Buffer("momentum", 13, "float64", role="momentum")),
            appended(Local(name="forget", kernel="fill", after=("update",), writes=(Ref("momentum", 0, 13),))),
        ),
        r"'forget' writes 'momentum', a buffer of role momentum: only sgd, sgd_scaled do",
    ),
    "momentum that ranks share": (
        with_buffers(PLAN, Buffer("momentum", 13, "float64", shared=True, role="momentum")),
        r"buffer 'momentum', a momentum, is shared by all ranks",
    ),
    "a gradient that ranks share": (
        dataclasses.replace(PLAN, buffers=(dataclasses.replace(PLAN.buffers[0], shared=True), PLAN.buffers[1])),
        r"buffer 'gradient', a gradient, is shared by all ranks",
    ),
    "a buffer of less than nothing": (with_buffers(PLAN, Buffer("spare", -1)), r"buffer 'spare' has -1 elements"),
    "momentum of another length": (
        with_buffers(PLAN, Buffer("momentum", 12, "float64", role="momentum")),
        r"buffer 'momentum' holds a momentum and has 12 elements: all tensors together have 13",
    ),
    "no parameters": (
        dataclasses.replace(PLAN, buffers=(PLAN.buffers[0], dataclasses.replace(PLAN.buffers[1], role="state"))),
        r"it computes, and has 0 buffers of role parameter instead of one",
    ),
    "a scaler of four": (with_buffers(PLAN, Buffer("scaler", 4, role="scaler")), r"a scaler has 3 elements"),
    "message on the compute lane": (
        changed(PLAN, setting("message0", lane="compute")),
        r"a collective on lane 'compute'",
    ),
    "forward on another lane": (changed(PLAN, setting("forward", lane="network")), r"a need on lane 'network'"),
    "gather that claims a sum": (
        changed(SPARSE, setting("gather_values", postcondition="sum")),
        r"postcondition of all_gather is 'gather', not 'sum'",
    ),
    "collective of other ranks": (changed(PLAN, setting("message0", ranks=(0,))), r"'message0' is for ranks \(0,\)"),
    "levels of other ranks": (
        changed(PLAN, setting("message0", algorithm="ring", shape=(2, 2))),
        r"'message0' is for 2 ranks, not for levels of 2 x 2",
    ),
    "root that is not there": (
        changed(GROUPS, setting("message0", kind="broadcast", postcondition="copy", root=2)),
        r"'message0' is for ranks \(0, 1\): its root",
    ),
    "collective of pieces": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 6, True),))),
        r"'gather_values': a collective reads and writes whole ranges",
    ),
    "collective of unequal ranges": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 4),))),
        r"whole ranges of equal lengths",
    ),
    "two roles for a rank": (
        dataclasses.replace(SERVER, roles=(*SERVER.roles, dataclasses.replace(SERVER.roles[1], name="more"))),
        r"each of its 3 ranks \(0 to 2\) one role",
    ),
    "a rank without a role": (dataclasses.replace(PLAN, ranks=3), r"each of its 3 ranks \(0 to 2\) one role"),
    "a role that does nothing": (changed(PLAN, list.clear), r"role 'worker' has no operations"),
    "no ranks": (dataclasses.replace(PLAN, ranks=0, roles=()), r"0 ranks"),
    "send to a rank that is not there": (
        changed(SWEEP, setting("push", to=9), role=1),
        r"'push' names rank 9",
    ),
    "unknown kernel": (changed(PLAN, setting("update", kernel="adagrad")), r"unknown kernel 'adagrad' \(known: add"),
    "unknown buffer": (changed(PLAN, setting("update", writes=(Ref("weights", 0, 1),))), r"uses buffer 'weights'"),
    "out of bounds": (
        changed(PLAN, setting("update", reads=(Ref("gradient", 0, 14),))),
        r"gradient\[0:14\].* 13 ",
    ),
    "unknown dtype": (
        dataclasses.replace(PLAN, buffers=(*PLAN.buffers, Buffer("more", 1, "float12"))),
        r"unknown dtype 'float12'",
    ),
    "equal names": (changed(PLAN, setting("message1", name="message0")), r"two operations are named 'message0'"),
    "equal buffers": (dataclasses.replace(PLAN, buffers=(*PLAN.buffers, PLAN.buffers[0])), r"two buffers"),
    "equal roles": (
        dataclasses.replace(SERVER, roles=tuple(dataclasses.replace(role, name="all") for role in SERVER.roles)),
        r"two roles",
    ),
    "gap between tensors": (dataclasses.replace(PLAN, tensors=PLAN.tensors[1:]), r"without gap"),
    "reply to nobody": (
        changed(PLAN, appended(Reply(name="answer", lane="network", to="question", reads=(WHOLE,)))),
        r"reply 'answer': no receive-from-any 'question'",
    ),
    "shared add to a private buffer": (
        changed(tiny.hogwild(2), setting("push", writes=(Ref("parameter", 0, 13),), reads=(WHOLE,))),
        r"'push': shared_add to 'parameter', which is not a shared buffer",
    ),
}


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        SERVER,
        SWEEP,
        SHARDED,
        SPARSE,
        GROUPS,
        TWO_LEVEL,
        tiny.hogwild(2),
        exchange("send"),
        out_of_order(waits=False),
    ],
)
def test_plans_in_order_pass(plan):
    check(plan)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_THE_GRID = {
    "race": ["ready:layer4", "message0"],
    "waits for a later operation": ["message3", "ready:layer1"],
    "dropped message": ["update"],
    "summed twice": ["again"],
    "deadlock across ranks": ["recv0", "recv1"],
    "reply that nobody receives": ["give"],
    "unknown kernel": ["update"],
    "send to a rank that is not there": ["push"],
    "gradient that nobody uses": ["ready:layer1"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    with pytest.raises(PlanError) as caught:
        check(FAULTS[fault][0])
    _, header, *rows = str(caught.value).splitlines()
    assert "step " in header
    assert any(row.startswith("rank ") for row in rows)
    marked = [cell for row in rows for cell in row.split(">>")[1:]]
    assert any(name in cell.split("<<")[0] for name in IN_THE_GRID[fault] for cell in marked)


def test_the_grid_of_a_large_plan_stays_small_and_shows_the_rank_at_fault():
    plan = tiny.synchronous(40)
    picture = grid(plan, {(37, 8): "here"})
    assert ">>" in next(line for line in picture.splitlines() if line.startswith("rank 37"))
    assert len(picture.splitlines()) <= 18
    assert "(24 more ranks)" in picture


def test_two_collectives_in_opposite_order_on_two_ranks_are_a_deadlock():
    def both_at_the_end(*order: str):
        def edit(body):
            setting("message0", after=("ready:layer1",))(body)
            setting("update", after=("message0", "message1"))(body)
            for name in order:
                body.insert(-1, body.pop(index_of(body, name)))

        return edit

    plan = tiny.synchronous(2, messages=[tiny.Message(0, 1), tiny.Message(2, 3)])
    bodies = [
        changed(plan, both_at_the_end(*order)).roles[0].body
        for order in (("message0", "message1"), ("message1", "message0"))
    ]

    def of_two_roles(first, second):
        return dataclasses.replace(plan, roles=(Role("one", (0,), first), Role("other", (1,), second)))

    check(of_two_roles(bodies[1], bodies[1]))
    with pytest.raises(PlanError, match="deadlock: rank 0 at 'message0', rank 1 at 'message1'"):
        check(of_two_roles(*bodies))


def test_a_repeat_that_cannot_be_spelled_out_is_refused():
    broken = changed(
        PLAN, lambda body: body.append(Repeat(name="more", count=0, body=(Local(name="x", kernel="join"),)))
    )
    with pytest.raises(Exception, match="repeat 'more'"):
        check(broken)


def test_gradients_alone_are_not_enough_without_an_update():
    body = tuple(
        dataclasses.replace(op, after_previous=()) for op in PLAN.roles[0].body if isinstance(op, Need | Ready)
    )
    broken = dataclasses.replace(PLAN, roles=(dataclasses.replace(PLAN.roles[0], body=body),))
    with pytest.raises(PlanError, match=r"lost gradient|reaches no update"):
        check(broken)


def test_a_shared_buffer_takes_unlocked_adds():
    plan = tiny.hogwild(3, locked=False)
    assert any(isinstance(op, SharedAdd) and not op.locked for op in plan.roles[0].body)
    check(plan)


def lowered_without(number: int):
    """A ring of three whose sums of one round are left out on rank 1."""
    plan = lowered(tiny.synchronous(3, algorithm="ring"))
    roles = [
        dataclasses.replace(
            role,
            body=tuple(op for op in role.body if role.ranks != (1,) or not op.name.startswith(f"message0.add{number}")),
        )
        for role in plan.roles
    ]
    return dataclasses.replace(plan, roles=tuple(roles))


def test_a_missing_message_across_groups_is_found_with_the_ranks_that_it_would_have_brought():
    body = TWO_LEVEL.roles[0].body
    role = dataclasses.replace(TWO_LEVEL.roles[0], body=tuple(op for op in body if op.name != "message1"))
    peer = TWO_LEVEL.roles[2]
    other = dataclasses.replace(peer, body=tuple(op for op in peer.body if op.name != "message1"))
    roles = (role, TWO_LEVEL.roles[1], other, TWO_LEVEL.roles[3])
    with pytest.raises(PlanError, match=r"without the gradients of rank\(s\) 2, 3"):
        check(dataclasses.replace(TWO_LEVEL, roles=roles))


def test_a_sum_left_out_of_a_lowered_collective_is_found():
    check(lowered(tiny.synchronous(3, algorithm="ring")))
    with pytest.raises(PlanError, match="missing gradient"):
        check(lowered_without(0))


def test_a_group_that_sums_twice_is_found():
    roles = []
    for role in TWO_LEVEL.roles:
        pair = (role.ranks[0] // 2 * 2, role.ranks[0] // 2 * 2 + 1)
        body = [dataclasses.replace(op, ranks=pair) if op.name == "message0" else op for op in role.body]
        roles.append(dataclasses.replace(role, body=tuple(body)))
    # the second sum of message 0 is again within the pair, under one name for each pair
    renamed = [
        dataclasses.replace(
            role,
            body=tuple(
                dataclasses.replace(
                    op,
                    name=f"{op.name}.{role.ranks[0] // 2}" if op.name == "message0" else op.name,
                    after=tuple(f"{name}.{role.ranks[0] // 2}" if name == "message0" else name for name in op.after),
                )
                for op in role.body
            ),
        )
        for role in roles
    ]
    with pytest.raises(PlanError, match="a second time"):
        check(dataclasses.replace(TWO_LEVEL, roles=tuple(renamed)))
