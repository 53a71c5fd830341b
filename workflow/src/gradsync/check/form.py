"""The form of a plan: every name resolves, every range lies in its buffer, every operation has its operands."""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import Any

from gradsync.check.grid import fail
from gradsync.collectives import ALL_TO_ALL, NATIVE, POSTCONDITION
from gradsync.errors import InputError
from gradsync.kernels import FLOATS, KERNELS, SMALLEST_SCALE, Form, _loss_scale, largest
from gradsync.plan import (
    BYTES,
    COMPUTE,
    DTYPE_BYTES,
    KEYED,
    WORLD,
    Buffer,
    Collective,
    Local,
    Plan,
    RecvAny,
    Ref,
    Reply,
    Role,
    SharedAdd,
    SharedRead,
)
from gradsync.plan.shards import parts
from gradsync.rounds import lowering

ANYWHERE = ("local", "shared_read", "shared_add")  # on any lane; need and ready compute, the others communicate
NAME = re.compile(r"[A-Za-z][A-Za-z_]*[0-9]{0,4}")  # of lanes and channels; a testbed goes by the number
MOST_LANES = 64  # and channels: each has a thread and connections of its own
MOST_TAG = 1 << 24  # collectives that are lowered take the tags above those of the plan; a tag has 32 bits
MOST_RAILS = 16
MOST_GROUPS = 512  # of ranks that a rank is in: each has connections of its own between all of them
MOST_ELEMENTS = 1 << 40
SHOWN_ENDS = 4  # of the parts of a buffer
WIDE = ("float32", "float64")  # of which a loss scale is: float16 doesn't hold the first one
# names that `lowering.lower` gives to the transfers of a collective
LOWERED = re.compile(r"(.*)\.(?:send|recv|add|copy)[0-9]+\.[0-9]+", re.DOTALL)


def refuse_form(plan: Plan) -> None:
    """Raises PlanError for the first thing that is not as a plan must be."""
    if plan.ranks < 1:
        fail(plan, f"it has {plan.ranks} ranks: at least 1")
    try:
        plan.mesh.refuse()
    except InputError as error:
        fail(plan, str(error))
    _ranks(plan)
    _buffers(plan)
    _tensors(plan)
    for role in plan.roles:
        names: set[str] = set()
        questions: set[str] = set()  # receives-from-any
        if not role.flat:
            fail(plan, f"role {role.name!r} has no operations")
        for step, op in enumerate(role.flat):
            if op.name in names:
                fail(plan, f"role {role.name!r}: two operations are named {op.name!r}", role, (step,))
            names.add(op.name)
            try:
                _operation(plan, role, op)
            except InputError as error:
                fail(plan, str(error), role, (step,))
            if isinstance(op, RecvAny):
                questions.add(op.name)
            if isinstance(op, Reply) and op.to not in questions:
                fail(plan, f"reply {op.name!r}: no receive-from-any {op.to!r} before it", role, (step,))
        _spelled_out(plan, role)
    lines = {name for role in plan.roles for op in role.flat for name in (op.lane, getattr(op, "channel", op.lane))}
    if len(lines) > MOST_LANES:
        fail(plan, f"it has {len(lines)} lanes and channels: at most {MOST_LANES}")
    channels = {
        (op.channel, getattr(op, "rail", 0)) for role in plan.roles for op in role.flat if hasattr(op, "channel")
    }
    for role in plan.roles:
        groups = {(op.lane, op.over, op.ranks) for op in role.flat if isinstance(op, Collective)}
        if (count := len(channels) + len(groups)) > MOST_GROUPS:
            problem = f"role {role.name!r} is in {count} groups of ranks, by channel and rail or by lane"
            fail(plan, f"{problem}: at most {MOST_GROUPS}")


def _spelled_out(plan: Plan, role: Role) -> None:
    """Nothing has a name that a collective's transfers have once they are spelled out."""
    made_of_rounds = {op.name for op in role.flat if isinstance(op, Collective) and op.algorithm != NATIVE}
    if not made_of_rounds:
        return
    for step, op in enumerate(role.flat):
        transfer = LOWERED.fullmatch(op.name)
        if transfer and transfer[1] in made_of_rounds:
            fail(plan, f"{op.name!r} is the name of a transfer of {transfer[1]!r}: give it another one", role, (step,))
        if op.name in made_of_rounds and (name := f"scratch:{op.name}") in plan.buffer:
            fail(plan, f"{name!r} is the name of what {op.name!r} receives into: give it another", role, (step,))


def _ranks(plan: Plan) -> None:
    ranks = [rank for role in plan.roles for rank in role.ranks]
    if plan.ranks < 1 or len(ranks) != plan.ranks or sorted(ranks) != list(range(plan.ranks)):
        fail(plan, f"its roles must give each of its {plan.ranks} ranks (0 to {plan.ranks - 1}) one role")
    if len({role.name for role in plan.roles}) != len(plan.roles):
        fail(plan, "two roles have the same name")


def _buffers(plan: Plan) -> None:
    for buffer in plan.buffers:
        if buffer.dtype not in DTYPE_BYTES:
            fail(plan, f"buffer {buffer.name!r}: unknown dtype {buffer.dtype!r} (known: {', '.join(DTYPE_BYTES)})")
        if not 1 <= buffer.elements <= MOST_ELEMENTS:
            fail(plan, f"buffer {buffer.name!r} has {buffer.elements} elements: 1 to {MOST_ELEMENTS}")
        _shards(plan, buffer)
        if buffer.role in KEYED and buffer.elements != plan.elements:
            fail(
                plan,
                f"buffer {buffer.name!r} holds a {buffer.role} and has {buffer.elements} elements: all tensors "
                f"together have {plan.elements}",
            )
        if buffer.role in (*KEYED, "statistics") and buffer.dtype not in (*FLOATS, BYTES):
            fail(plan, f"buffer {buffer.name!r} holds a {buffer.role}, of floats, not of {buffer.dtype}")
        if buffer.role == "scaler" and (buffer.elements != _loss_scale.ELEMENTS or buffer.dtype not in WIDE):
            problem = f"a scaler has {_loss_scale.ELEMENTS} elements of {' or '.join(WIDE)}"
            fail(plan, f"buffer {buffer.name!r}: {problem}, not {buffer.elements} of {buffer.dtype}")
        if buffer.shared and buffer.role not in ("centre", "state"):
            fail(plan, f"buffer {buffer.name!r}, a {buffer.role}, is shared by all ranks: each must have its own")
    for role in ("statistics", "scaler"):
        if len(names := [buffer.name for buffer in plan.buffers if buffer.role == role]) > 1:
            fail(plan, f"buffers {names[0]!r} and {names[1]!r} are both of role {role}: a model has one")
    scaler, residual = plan.holding("scaler"), plan.holding("residual")
    if scaler is not None and residual is not None:
        problem = "what is kept from turn to turn would be of several loss scales, and infinite for ever"
        fail(plan, f"buffer {residual!r} keeps gradients, and {scaler!r} a loss scale: {problem}")
    if len(plan.buffer) != len(plan.buffers):
        fail(plan, "two buffers have the same name")


def _shards(plan: Plan, buffer: Buffer) -> None:
    """What ranks have pieces of is cut into parts, one after the other, over axes that there are."""
    ends = (0, *buffer.ends)
    if bool(buffer.mine) != bool(buffer.ends) or (buffer.mine and buffer.shared):
        fail(
            plan,
            f"buffer {buffer.name!r}: shards have axes (mine) and parts (ends), and are no memory that ranks share",
        )
    if not buffer.mine:
        return
    if ends[-1] != buffer.elements or any(stop <= start for start, stop in pairwise(ends)):
        fail(plan, f"buffer {buffer.name!r}: its parts end one after the other, the last at {buffer.elements}")
    try:
        _axes(plan, f"buffer {buffer.name!r} is of", parts(buffer)[0])
    except InputError as error:
        fail(plan, str(error))


def _tensors(plan: Plan) -> None:
    position = 0
    for tensor in plan.tensors:
        if tensor.start != position or tensor.stop <= tensor.start:
            fail(plan, f"tensor {tensor.name!r}: tensors must follow one another without gap from element 0")
        position = tensor.stop
    if len(plan.tensor) != len(plan.tensors):
        fail(plan, "two tensors have the same name")


def _operation(plan: Plan, role: Role, op: Any) -> None:
    """Raises InputError."""
    for ref in (*op.reads, *op.writes):
        _range(plan, op, ref)
    _lane(op)
    _peers(plan, role, op)
    _shared(plan, op)
    if isinstance(op, Local):
        if op.kernel not in KERNELS:
            raise InputError(f"{op.name!r}: unknown kernel {op.kernel!r} (known: {', '.join(KERNELS)})")
        KERNELS[op.kernel].refuse(Form(plan, op))
        if op.requires and not op.reads:
            raise InputError(f"{op.name!r} requires {op.requires!r} of gradients, and reads none")
        if op.postcondition and not op.writes:
            raise InputError(f"{op.name!r} declares {op.postcondition!r} of gradients, and writes none")
    elif isinstance(op, Collective):
        _collective(plan, role, op)
    elif op.verb in ("send", "reply", "recv", "recv_any"):
        if (op.writes if op.verb in ("send", "reply") else op.reads) or not (op.reads or op.writes):
            raise InputError(f"{op.name!r}: a {op.verb} names the ranges that it sends or receives, and no others")
        if not 0 <= op.tag < MOST_TAG or not 0 <= getattr(op, "rail", 0) < MOST_RAILS:
            raise InputError(f"{op.name!r}: tags are 0 to {MOST_TAG - 1}, rails 0 to {MOST_RAILS - 1}")
        if not NAME.fullmatch(op.channel) or op.channel == COMPUTE:
            raise InputError(f"{op.name!r}: {op.channel!r} names no channel: letters, _, and a number at the end")
        if any(ref.mine for ref in (*op.reads, *op.writes)):
            raise InputError(f"{op.name!r}: a {op.verb} names whole ranges: the other end doesn't know a rank's piece")
    _kept(plan, op)
    _overlaps(op)


def _range(plan: Plan, op: Any, ref: Ref) -> None:
    buffer = plan.buffer.get(ref.buffer)
    if buffer is None:
        raise InputError(f"{op.name!r} uses buffer {ref.buffer!r}, which the plan does not have")
    if not 0 <= ref.start < ref.stop <= buffer.elements:
        raise InputError(
            f"{op.name!r} uses {ref.buffer}[{ref.start}:{ref.stop}], the buffer has {buffer.elements} elements: a "
            "range has at least one of them"
        )
    _axes(plan, f"{op.name!r} takes", ref)
    if buffer.mine and (not isinstance(op, Local) or ref.mine != buffer.mine or not _is_part(ref, buffer)):
        taken = f" of mine over {', '.join(ref.mine)}" if ref.mine else ""
        raise InputError(
            f"{op.name!r} uses {ref.buffer}[{ref.start}:{ref.stop}]{taken}, of which a rank has its own shard alone: "
            f"a local operation takes a whole part, one that ends at {_shown_ends(buffer)}, of mine over "
            f"{', '.join(buffer.mine)}"
        )


def _axes(plan: Plan, who: str, ref: Ref) -> None:
    for axis in ref.mine:
        plan.mesh.refuse_axis(axis)
    if len(set(ref.mine)) < len(ref.mine) or (plan.axes and WORLD in ref.mine):
        raise InputError(
            f"{who} a piece of {ref.buffer}[{ref.start}:{ref.stop}] over {', '.join(ref.mine)}: name each "
            f"axis once, and in a plan with axes of its own not {WORLD!r}, whose pieces may be others"
        )


def _is_part(ref: Ref, buffer: Buffer) -> bool:
    """Whether a range is a part of a buffer of shards."""
    place = bisect_left(buffer.ends, ref.stop)
    starts = (0, *buffer.ends)
    return place < len(buffer.ends) and (starts[place], buffer.ends[place]) == (ref.start, ref.stop)


def _shown_ends(buffer: Buffer) -> str:
    more = ", .." if len(buffer.ends) > SHOWN_ENDS else ""
    return ", ".join(map(str, buffer.ends[:SHOWN_ENDS])) + more


def _kept(plan: Plan, op: Any) -> None:
    """What optimizers and compressors keep for themselves, nothing else writes."""
    kept = {role for kernel in KERNELS.values() for role in kernel.keeps}
    for ref in op.writes:
        role = plan.buffer[ref.buffer].role
        if role in kept and not (isinstance(op, Local) and role in KERNELS[op.kernel].keeps):
            owners = [name for name, kernel in KERNELS.items() if role in kernel.keeps]
            raise InputError(f"{op.name!r} writes {ref.buffer!r}, a buffer of role {role}: only {', '.join(owners)} do")


def _overlaps(op: Any) -> None:
    """What is written lies apart from whatever else is read or written, or is the very range that is read."""
    for i, ref in enumerate(op.writes):
        others = [*((other, False) for other in op.writes[:i]), *((other, True) for other in op.reads)]
        for other, read in others:
            apart = ref.buffer != other.buffer or ref.stop <= other.start or other.stop <= ref.start
            if not apart and not (read and ref == other):
                raise InputError(
                    f"{op.name!r}: {ref.buffer}[{ref.start}:{ref.stop}] and {other.buffer}[{other.start}:{other.stop}] "
                    "overlap: what is written must lie apart, or be the very range that is read"
                )


def _lane(op: Any) -> None:
    if op.verb not in ANYWHERE and (op.lane == COMPUTE) != (op.verb in ("need", "ready")):
        where = f"only lane {COMPUTE!r} does" if op.lane != COMPUTE else "only the other lanes do"
        raise InputError(f"{op.name!r}: a {op.verb} on lane {op.lane!r}: {where} that")
    if not NAME.fullmatch(op.lane):
        raise InputError(f"{op.name!r}: {op.lane!r} names no lane: letters, _, and a number at the end")


def _peers(plan: Plan, role: Role, op: Any) -> None:
    peers: tuple[int, ...] = ()
    match op.verb:
        case "send":
            peers = (op.to,)
        case "recv":
            peers = (op.source,)
        case "recv_any":
            peers = tuple(op.sources)
            if not peers or len(set(peers)) < len(peers):
                raise InputError(f"{op.name!r} receives from {peers}: name each source once, at least one")
        case "collective":
            plan.mesh.refuse_axis(op.over)
            peers = (*op.ranks, *((op.root,) if op.over == WORLD else ()))
    for peer in peers:
        if not 0 <= peer < plan.ranks:
            raise InputError(f"{op.name!r} names rank {peer}, the plan has {plan.ranks}")
        if op.verb != "collective" and peer in role.ranks:
            raise InputError(
                f"{op.name!r} is a {op.verb} between rank {peer} and all ranks of its role, {role.name!r}, itself "
                "among them"
            )


def _shared(plan: Plan, op: Any) -> None:
    """Only shared reads and adds touch what all ranks share."""
    shared = [plan.buffer[ref.buffer].shared for ref in (*op.reads, *op.writes)]
    if not isinstance(op, SharedRead | SharedAdd):
        if any(shared):
            raise InputError(f"{op.name!r}: a {op.verb} on a buffer that ranks share: only shared_read and shared_add")
        return
    if len(op.reads) != 1 or len(op.writes) != 1 or any(ref.mine for ref in (*op.reads, *op.writes)):
        raise InputError(f"{op.name!r}: a {op.verb} reads and writes one whole range")
    (read, written), (source, target) = (op.reads[0], op.writes[0]), shared
    if isinstance(op, SharedRead) and (not source or target):
        raise InputError(f"{op.name!r}: shared_read from {read.buffer!r}, which is not a shared buffer, or to one")
    if isinstance(op, SharedAdd) and (source or not target):
        raise InputError(f"{op.name!r}: shared_add to {written.buffer!r}, which is not a shared buffer, or from one")
    if isinstance(op, SharedAdd) and not SMALLEST_SCALE <= abs(op.scale) <= largest(plan.buffer[written.buffer].dtype):
        raise InputError(f"{op.name!r}: a scale of {op.scale:g} adds nothing, or too much")
    _same(plan, op, "needs ranges of equal length and type")


def _same(plan: Plan, op: Any, wanted: str) -> None:
    described = [
        [(ref.stop - ref.start, plan.buffer[ref.buffer].dtype) for ref in refs] for refs in (op.reads, op.writes)
    ]
    if described[0] != described[1]:
        raise InputError(f"{op.name!r}: a {op.verb} {wanted}")


def _collective(plan: Plan, role: Role, op: Collective) -> None:
    if op.postcondition != POSTCONDITION[op.kind]:
        raise InputError(
            f"{op.name!r}: the postcondition of {op.kind} is {POSTCONDITION[op.kind]!r}, not {op.postcondition!r}"
        )
    _over_axis(plan, op)
    members = {*role.ranks, *((op.root,) if op.kind in ("broadcast", "reduce") else ())}
    if op.ranks and not members <= set(op.ranks):
        raise InputError(f"{op.name!r} is for ranks {op.ranks}: its root and the ranks of its role must be among them")
    if list(op.ranks) != sorted(set(op.ranks)):
        raise InputError(f"{op.name!r} is for ranks {op.ranks}: name each once, in rising order")
    if not op.writes:
        raise InputError(f"{op.name!r}: a collective reads and writes at least one range")
    _same(plan, op, "reads and writes ranges of equal lengths and types")
    if op.kind == ALL_TO_ALL:
        _equal_pieces(plan, op)
    lowering.refuse(op, plan.group_size(op))


def _equal_pieces(plan: Plan, op: Collective) -> None:
    """Pieces that change places are equally long."""
    for ref in op.writes:
        if (ref.stop - ref.start) % (count := plan.group_size(op) * plan.mesh.pieces(ref)):
            raise InputError(
                f"{op.name!r} exchanges pieces of {ref.stop - ref.start} elements of {ref.buffer!r}, which are no "
                f"{count} equal pieces: take a multiple"
            )


def _over_axis(plan: Plan, op: Collective) -> None:
    """All of a group have the same piece of what they sum or gather, and cut it further along their axis alone."""
    if op.over != WORLD and (op.ranks or not 0 <= op.root < plan.mesh.size(op.over)):
        raise InputError(f"{op.name!r} is over axis {op.over!r}: it names no ranks, and a root that is a place on it")
    if op.kind in ("reduce_scatter", "all_gather") and plan.axes and op.over == WORLD and not op.ranks:
        raise InputError(
            f"{op.name!r} cuts a range over {WORLD!r}, and the plan has axes of its own, whose pieces may be others: "
            "cut it over one axis after the other"
        )
    for ref in (*op.reads, *op.writes):
        if ref.mine and (op.over == WORLD or op.over in ref.mine):
            raise InputError(
                f"{op.name!r} is over {op.over!r}, and its ranks have other pieces of {ref.buffer}: they exchange one "
                "range, or one piece over other axes"
            )
