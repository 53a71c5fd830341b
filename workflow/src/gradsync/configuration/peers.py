"""Peers of the schemes: torch's own ways to train in parallel, by name, and a plan's messages as DDP's buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import names as names_of
from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import DTYPE_BYTES, Collective, Plan

MIB = 1024 * 1024


Kind = Literal["ddp", "zero", "fsdp2"]
# the keys of each kind
KEYS: dict[Kind, tuple[str, ...]] = {
    "ddp": ("bucket_mib", "gradient_as_bucket_view", "hook", "plan"),
    "zero": (),
    "fsdp2": ("reshard_after_forward",),
}


class Peer(BaseModel):
    """One way to use `DistributedDataParallel`, `ZeroRedundancyOptimizer` or `fully_shard`; defaults are torch's own.

    `bucket_mib` "best" is the fastest size of a sweep, found in iterations of their own. `plan` gives the buckets of
    the scheme of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    label: str = ""
    kind: Kind = "ddp"
    bucket_mib: float | Literal["best"] | None = Field(default=None, description="null: DDP's default, 25")
    gradient_as_bucket_view: bool = False
    hook: Literal["", "fp16", "bf16", "powersgd"] = ""
    plan: str = ""
    reshard_after_forward: bool = Field(default=True, description="false: parameters are kept until backward")

    def model_post_init(self, context: object) -> None:
        """The label's default."""
        object.__setattr__(self, "label", self.label or self.name)

    def settings(self) -> dict[str, Any]:
        """Its kind, and the keys that this kind has."""
        return {"kind": self.kind, **{key: getattr(self, key) for key in KEYS[self.kind]}}

    def refuse_replay(self) -> None:
        """Raises InputError if it can't train a model whose computation is replayed."""
        if self.kind == "fsdp2":
            raise InputError(
                f"peer {self.name!r}: fsdp2 gathers a model block by block, and a replayed model has no blocks: "
                "leave it out, or train the model itself"
            )


def load(path: str | Path) -> dict[str, Peer]:
    """All peers of a file; raises InputError with file and key."""
    entries = reading.yaml_of(path, "peers") or {}
    if not isinstance(entries, dict):
        raise InputError(f"{path}: needs names of peers as keys")
    peers = {}
    for name, entry in entries.items():
        names_of.refuse_form("peer", name, str(path))
        if not isinstance(entry, dict | None):
            raise InputError(f"{path}, peer {name!r}: needs keys and values, not {names_of.shown(entry)}")
        if "name" in (entry or {}):
            raise InputError(f"{path}, peer {name!r}: leave out the key name: {name!r} is its name")
        try:
            peer = Peer.model_validate({"name": name, **(entry or {})})
        except ValidationError as error:
            raise InputError(f"{path}, peer {name!r}: {first_problem(error, Peer)}") from None
        if others := peer.model_fields_set - {"name", "label", "kind", *KEYS[peer.kind]}:
            has = ", ".join(KEYS[peer.kind]) or "none"
            raise InputError(f"{path}, peer {name!r}: kind {peer.kind} has no key {min(others)}; it has: {has}")
        if isinstance(peer.bucket_mib, float) and not 0 < peer.bucket_mib < float("inf"):
            raise InputError(f"{path}, peer {name!r}: bucket_mib {peer.bucket_mib}: must be positive and finite")
        if peer.plan and peer.bucket_mib is not None:
            raise InputError(f"{path}, peer {name!r}: plan and bucket_mib exclude one another")
        if peer.hook == "powersgd" and (peer.plan or peer.bucket_mib is not None):
            raise InputError(f"{path}, peer {name!r}: powersgd sends one bucket: leave out plan and bucket_mib")
        peers[name] = peer
    return peers


def pick(known: dict[str, Peer], names: list[str] | None, where: str) -> list[Peer]:
    """The peers of these names (None: all); raises InputError for one that does not exist."""
    for name in names or ():
        names_of.refuse_unknown("peer", name, known, where)
    return list(known.values()) if names is None else [known[name] for name in names]


def bucket_cap_mb_list(plan: Plan) -> list[float]:
    """A plan's messages as the argument of that name of DDP (MiB each), so that DDP fills the same buckets.

    DDP closes a bucket with the gradient that fills it, once it has seen the order in which gradients become ready.
    What it can't take over: messages that wait for the end of backward are sent as soon as they are full.
    Raises InputError for a plan whose messages are no all-reduces of all gradients in backward order, each whole.
    """
    place = 0
    ends = {tensor.stop for tensor in plan.tensors}
    sizes = []
    whole = plan.tensors[-1].stop
    gradient = plan.holding("gradient")
    unit = DTYPE_BYTES[plan.buffer[gradient].dtype] if gradient else 0
    if any(getattr(op, "kind", "") == "reduce_scatter" for op in plan.communications()):
        raise InputError(
            f"plan {plan.name!r} can't be exported into DDP: its sums are reduce-scatters, and those of DDP's buckets "
            "all-reduces"
        )
    if any(plan.buffer[ref.buffer].role == "parameter" for op in plan.communications() for ref in op.reads):
        raise InputError(
            f"plan {plan.name!r} can't be exported into DDP: it sends parameters, and DDP's buckets hold gradients"
        )
    for op in plan.communications():
        gradients = isinstance(op, Collective) and plan.buffer[op.writes[0].buffer].elements == whole
        if not gradients or op.kind != "all_reduce":
            continue
        if len(op.writes) != 1 or op.writes[0].start != place:
            break
        place = op.writes[0].stop
        if place not in ends:
            raise InputError(
                f"plan {plan.name!r} can't be exported into DDP: it splits a gradient over messages, a bucket of DDP "
                "holds whole ones"
            )
        sizes.append((op.writes[0].stop - op.writes[0].start) * unit / MIB)
    if place != whole or not unit:
        raise InputError(
            f"plan {plan.name!r} can't be exported into DDP: its messages don't cover all gradients in order"
        )
    return sizes


def wire_of(plan: Plan) -> str:
    """The one type in which all-reduces carry gradients, if it is not their own; else empty."""
    gradient = plan.holding("gradient")
    sums = [op for op in plan.communications() if isinstance(op, Collective) and op.kind == "all_reduce"]
    types = {plan.buffer[op.writes[0].buffer].dtype for op in sums}
    return types.pop() if gradient and len(types) == 1 and plan.buffer[gradient].dtype not in types else ""


def lost_in_buckets(plan: Plan, *, hooked: bool = False) -> list[str]:
    """What a plan says and sizes of DDP's buckets don't, each in words; with `hooked`, a hook carries its one wire."""
    sums = [op for op in plan.communications() if isinstance(op, Collective) and op.kind == "all_reduce"]
    lost = []
    if algorithms := sorted({op.algorithm for op in sums} - {NATIVE}):
        lost.append(f"collective {', '.join(algorithms)} is lost: DDP sums by the backend's own")
    if len(lanes := {op.lane for op in sums}) > 1:
        lost.append(f"{len(lanes)} lanes are lost: DDP sends its buckets one after the other")
    gradient = plan.holding("gradient")
    types = {plan.buffer[op.writes[0].buffer].dtype for op in sums}
    carried = {wire_of(plan)} if hooked else set()
    if gradient and (wire := sorted(types - {plan.buffer[gradient].dtype} - carried)):
        lost.append(f"messages in {', '.join(wire)} are lost: DDP sends gradients in their own type; register its hook")
    if plan.passes > 1:
        lost.append(f"{plan.passes} micro-batches a step are lost: run the first ones in DDP's no_sync()")
    if any(getattr(op, "arguments", {}).get("clip") for role in plan.roles for op in role.flat):
        lost.append("clipping is lost: call clip_grad_norm_ before the optimizer")
    return lost
