"""Variants of stock DDP by name, and a plan's messages as its buckets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_plans as tiny
from gradsync import schedules
from gradsync.configuration import peers, schemes
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from tiny_workloads import costs, workload, workloads

ROOT = Path(__file__).parents[3]


def peer_file(folder: Path, text: str) -> Path:
    path = folder / "peers.yaml"
    path.write_text(text)
    return path


def plan(schedule: str, load: Workload, cost: Linear, **how: str) -> Plan:
    return schemes.plan(schemes.Scheme(name=schedule, **how), load, cost, 2)  # type: ignore[arg-type]


def test_the_projects_peers():
    known = peers.load(ROOT / "config" / "peers.yaml")
    assert known["ddp"] == peers.Peer(name="ddp", label="PyTorch DDP")  # as it comes
    assert known["ddp"].bucket_mib is None
    assert known["ddp_best"].bucket_mib == "best"
    assert known["ddp_mgwfbp"].plan == "mgwfbp"
    assert {peer.hook for peer in known.values()} == {"", "fp16", "powersgd"}
    assert {peer.kind for peer in known.values()} == {"ddp", "zero", "fsdp2"}
    assert known["fsdp2_kept"].settings() == {"kind": "fsdp2", "reshard_after_forward": False}
    assert known["ddp_fp16"].settings()["hook"] == "fp16"


def test_only_fsdp2_needs_blocks_to_gather():
    for peer in peers.load(ROOT / "config" / "peers.yaml").values():
        if peer.kind == "fsdp2":
            with pytest.raises(InputError, match=f"peer '{peer.name}': fsdp2 gathers a model block by block"):
                peer.refuse_replay()
        else:
            peer.refuse_replay()


def test_an_entry_without_keys_is_ddp_as_it_comes(tmp_path):
    loaded = peers.load(peer_file(tmp_path, "mine:\nother: {bucket_mib: 4, hook: bf16}\n"))
    assert loaded["mine"] == peers.Peer(name="mine")
    assert loaded["mine"].label == "mine"
    assert loaded["other"].bucket_mib == 4.0
    assert peers.load(peer_file(tmp_path, "# nothing\n")) == {}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{colour: red}", "colour: no such key"),
        ("{hook: fp8}", "hook: must be '', 'fp16', 'bf16' or 'powersgd'"),
        ("{bucket_mib: worst}", "bucket_mib"),
        ("{bucket_mib: 0}", "bucket_mib 0.0: must be positive"),
        ("{bucket_mib: -1}", "bucket_mib -1.0: must be positive"),
        ("{bucket_mib: .nan}", "bucket_mib: nan is no number"),
        ("{bucket_mib: .inf}", "bucket_mib: inf is no number"),
        ("{plan: mgwfbp, bucket_mib: 4}", "plan and bucket_mib exclude one another"),
        ("{plan: mgwfbp, bucket_mib: best}", "plan and bucket_mib exclude one another"),
        ("{hook: powersgd, bucket_mib: 4}", "powersgd sends one bucket"),
        ("{hook: powersgd, plan: mgwfbp}", "powersgd sends one bucket"),
        ("{gradient_as_bucket_view: perhaps}", "gradient_as_bucket_view: must be true or false"),
        ("ddp", "needs keys and values"),
        ("[1]", "needs keys and values"),
        ("{name: other}", "leave out the key name"),
        ("{kind: horovod}", "kind: must be 'ddp', 'zero' or 'fsdp2'"),
        ("{kind: zero, hook: fp16}", "kind zero has no key hook; it has: none"),
        ("{kind: fsdp2, bucket_mib: 4}", "kind fsdp2 has no key bucket_mib; it has: reshard_after_forward"),
        ("{reshard_after_forward: false}", "kind ddp has no key reshard_after_forward; it has: bucket_mib"),
    ],
)
def test_a_peer_that_makes_no_sense_is_named(tmp_path, entry, wanted):
    path = peer_file(tmp_path, f"odd: {entry}\n")
    with pytest.raises(InputError) as refused:
        peers.load(path)
    assert str(path) in str(refused.value)
    assert "odd" in str(refused.value)
    assert wanted in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("- ddp", "needs names of peers as keys"), ("a: [", "not YAML"), (b"\xff", "can't be read"), (None, "can't")],
)
def test_a_file_that_holds_no_peers_is_refused(tmp_path, text, wanted):
    path = tmp_path / "peers.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=wanted) as refused:
        peers.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_picking_keeps_the_order_asked_for():
    known = peers.load(ROOT / "config" / "peers.yaml")
    assert [peer.name for peer in peers.pick(known, ["ddp_best", "ddp"], "here")] == ["ddp_best", "ddp"]
    assert peers.pick(known, None, "here") == list(known.values())
    assert peers.pick(known, [], "here") == []
    with pytest.raises(InputError, match="here: peer 'nosuch' does not exist; there are: ddp, ddp_view"):
        peers.pick(known, ["nosuch"], "here")


# A plan's buckets


@given(workloads(most_layers=20), costs, st.sampled_from(schedules.names("ssgd")), st.sampled_from(["", "float16"]))
def test_buckets_hold_exactly_the_bytes_of_the_messages(load, cost, schedule, wire):
    """DDP takes MiB and turns them into whole bytes; what travels narrower is in its buckets as wide as it is."""
    planned = plan(schedule, load, cost, wire=wire)
    size = {layer.name: layer.bytes for layer in load.layers}
    ends = {tensor.stop for tensor in planned.tensors}
    if any(op.writes[0].stop not in ends for op in planned.communications()):
        with pytest.raises(InputError, match="splits a gradient over messages, a bucket of DDP holds whole ones"):
            peers.bucket_cap_mb_list(planned)
        return
    wanted = [sum(size[name] for name in message) for message in planned.messages()]
    assert [int(mib * 1024 * 1024) for mib in peers.bucket_cap_mb_list(planned)] == wanted


@pytest.mark.parametrize("schedule", ["dear", "pipelined"])
def test_halves_are_no_buckets(schedule):
    with pytest.raises(InputError, match="its sums are reduce-scatters"):
        peers.bucket_cap_mb_list(plan(schedule, workload([400, 400], [1.0, 1.0]), Linear(1.0, 1.0)))


@pytest.mark.parametrize("method", ["local_sgd", "diloco"])
def test_parameters_are_in_no_bucket(method):
    plan = schemes.plan(schemes.Scheme(name=method), workload([8, 8], [1.0, 1.0]), Linear(1.0, 0.0), 2)
    with pytest.raises(InputError, match="it sends parameters, and DDP's buckets hold gradients"):
        peers.bucket_cap_mb_list(plan)


def test_statistics_are_in_no_bucket():
    load = workload([400, 400], [1.0, 1.0]).model_copy(update={"statistics": 200})  # as many as gradients
    planned = plan("single", load, Linear(1.0, 1.0))
    assert "statistics" in planned.buffer
    assert [mib * peers.MIB for mib in peers.bucket_cap_mb_list(planned)] == [800]


def without_message(whole: Plan, number: int) -> Plan:
    (role,) = whole.roles
    body = tuple(op for op in role.flat if op.name != f"message{number}")
    return dataclasses.replace(whole, roles=(dataclasses.replace(role, body=body),))


def reversed_messages(whole: Plan) -> Plan:
    (role,) = whole.roles
    messages = [op for op in role.flat if op.name.startswith("message")]
    others = [op for op in role.flat if op not in messages]
    body = (*others[:-1], *messages[::-1], others[-1])
    return dataclasses.replace(whole, roles=(dataclasses.replace(role, body=body),))


NAIVE = plan("naive", workload([400, 400, 400], [1.0] * 3), Linear(1.0, 1.0))


@pytest.mark.parametrize(
    "odd",
    [
        *(without_message(NAIVE, number) for number in range(3)),
        reversed_messages(NAIVE),
        tiny.sharded(2),
        tiny.sparse(2),
        tiny.easgd_round_robin(2),
    ],
    ids=["first missing", "middle missing", "last missing", "reversed", "sharded", "sparse", "elastic"],
)
def test_a_plan_that_is_no_list_of_buckets_is_refused(odd):
    with pytest.raises(InputError, match=f"plan '{odd.name}' can't be exported into DDP"):
        peers.bucket_cap_mb_list(odd)
