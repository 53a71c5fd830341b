"""What real ranks run in the tests; each function gets (rank, ranks) inside a process group and returns its results.

One launch runs many cases, since starting a rank takes seconds.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
import time
import traceback
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import real_models as real
import small_model
import tiny_plans as tiny
from changed_plans import bases
from gradsync import collectives, schedules
from gradsync.benchmarks import collectives_speed
from gradsync.collectives import NATIVE
from gradsync.configuration import schemes
from gradsync.configuration.peers import Peer
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError, RunError
from gradsync.plan import PASSING, Buffer, Collective, Plan, Ref, Role
from gradsync.plan.trace import Trace
from gradsync.rounds.lowering import lowered
from gradsync.runtime import conformance, data, group, models, transfers
from gradsync.runtime.alignment import offsets
from gradsync.runtime.compute import Forward, ModelCompute, bind, bind_statistics, oracle_gradient, statistics
from gradsync.runtime.contenders import Planned, gathered
from gradsync.runtime.ddp import StockDDP
from gradsync.runtime.devices import pick
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Executor, Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.replay import Replayed
from gradsync.runtime.step import Step
from gradsync.runtime.timing import all_reduce_seconds
from gradsync.schedules import Message
from queued_device import QueuedProcessor
from tiny_workloads import workload

TINY_TURNS = 5
RESUMED_TURNS = 7
LATE = 0.3  # seconds
COMPOSED_RANKS = 4  # that every collective can serve, on two levels where it has levels
HAMMER_TURNS, HAMMER_ELEMENTS = 200, 20_000


@dataclasses.dataclass
class Ended:
    """Buffers at the end and what happened on the way."""

    buffers: dict[str, np.ndarray]
    trace: Trace


# Schedules


def all_schedules(rank: int, ranks: int) -> dict[tuple[str, str], Any]:
    """Parameters after training with every schedule and every collective, two broken plans among them."""
    groups = Groups()
    found: dict[tuple[str, str], Any] = {}
    for name in schedules.names():
        for algorithm in (NATIVE, "ring"):
            try:
                found[name, algorithm] = _train(small_model.plan(name, ranks, algorithm), rank, groups)
            except Exception:  # a schedule that fails must not hide the others
                found[name, algorithm] = traceback.format_exc()
    for name, scheme in small_model.composed().items() if ranks == COMPOSED_RANKS else ():
        try:
            found["scheme", name] = _train(small_model.of_scheme(scheme, ranks), rank, groups)
        except Exception:
            found["scheme", name] = traceback.format_exc()
    found["dropped message", NATIVE] = _train(without_message(small_model.plan("wfbp", ranks), 2), rank, groups)
    plan = small_model.plan("naive", ranks)  # in naive, messages wait for nothing but the end of backward
    try:
        Executor(swapped(plan, 2, 3) if rank == 1 else plan, rank, groups)
    except RunError as error:
        found["swapped messages", NATIVE] = str(error)
    groups.close()
    return found


def queued_schedules(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every schedule on a device that queues; times of messages in teams."""
    device = QueuedProcessor()
    groups = Groups(device)
    found: dict[str, Any] = {}
    for name in schedules.names():
        try:
            found[name] = _train(small_model.plan(name, ranks), rank, groups)
        except Exception:  # a schedule that fails must not hide the others
            found[name] = traceback.format_exc()
    groups.close()
    teams = [[number] for number in range(ranks - 1)]  # the last rank is in none
    found["alone"] = all_reduce_seconds([4, 4000], 30, 0.01, device=device, teams=teams)
    found["all"] = all_reduce_seconds([4, 4000], 30, 0.01, device=device)
    return found


def gpu_schedules(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every schedule on GPUs, and with messages on two lanes; times in teams."""
    device = pick("cuda")
    groups = Groups(device)
    plans = {name: small_model.plan(name, ranks) for name in schedules.names()}
    plans["two lanes"] = small_model.two_lanes(plans["wfbp"])
    found: dict[str, Any] = {name: _train(plan, rank, groups) for name, plan in plans.items()}
    groups.close()
    found["times"] = all_reduce_seconds([4, 4_000_000], 30, 0.01, device=device)
    return found


MICRO_BATCHES: list[dict[str, Any]] = [
    {"accumulate": accumulate, "clip_norm": clip} for accumulate in (1, 3) for clip in (None, 0.3)
]


def micro_batches(rank: int, ranks: int) -> dict[tuple[str, int], Any]:
    """(schedule or DDP, number of the case) -> parameters after steps of several micro-batches, clipped and not."""
    groups, queued = Groups(), Groups(QueuedProcessor())
    found: dict[tuple[str, int], Any] = {}
    for number, case in enumerate(MICRO_BATCHES):
        for name in ("wfbp", "mgwfbp", "single"):
            found[name, number] = _train(small_model.plan(name, ranks, **case), rank, groups)
        found["ring", number] = _train(small_model.plan("mgwfbp", ranks, "ring", **case), rank, groups)
        found["queued", number] = _train(small_model.plan("mgwfbp", ranks, **case), rank, queued)
        model = small_model.build()
        forward = small_model.forward(model, rank)
        peer = StockDDP(
            *(Peer(name="ddp"), forward, lambda turn: small_model.sample(rank, turn), {}, groups),
            lr=small_model.LR,
            momentum=small_model.MOMENTUM,
            **case,
        )
        peer.run(small_model.TURNS)
        plan = small_model.plan("wfbp", ranks)
        found["ddp", number] = torch.cat([peer.parameters()[tensor.name] for tensor in plan.tensors]).numpy().copy()
        found["losses", number] = list(peer.losses)
    case = {"accumulate": 3, "clip_norm": 0.5}  # batch normalisation: its statistics are sent once a step
    plan = real.plan("mgwfbp", "resnet8", ranks, **case)
    found["resnet8", 0] = _train_real(plan, "resnet8", rank, groups, torch.float64, real.TURNS)
    network = real.build("resnet8")
    peer = StockDDP(
        *(Peer(name="ddp"), real.forward(network, rank), lambda number: real.sample("resnet8", rank, number)),
        *({}, groups),
        lr=real.LR,
        momentum=real.MOMENTUM,
        **case,
    )
    syncs, sync = [], peer.ddp._sync_buffers
    peer.ddp._sync_buffers = lambda: (syncs.append(peer.turn), sync())
    peer.run(real.TURNS)
    found["resnet8 of ddp", 0], found["resnet8 of ddp", 1] = real.trained(network), len(syncs)
    groups.close()
    queued.close()
    return found


def _train(plan: Plan, rank: int, groups: Groups) -> np.ndarray:
    executor, device = prepare(plan, rank, groups), groups.device
    model = small_model.build().to(device.torch_device)
    bind(model, plan, executor.buffers["parameter"])

    def sample(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = small_model.sample(rank, turn)
        return device.put(images), device.put(labels)

    compute = ModelCompute(small_model.forward(model, rank), sample, queued=device.queued, passes=plan.passes)
    executor.run(small_model.TURNS, compute)
    compute.settle()
    compute.close()
    return executor.buffers["parameter"].cpu().numpy().copy()


def without_message(plan: Plan, number: int) -> Plan:
    """The plan with one of its messages taken out (not the last, which the update waits for)."""
    (role,) = plan.roles
    body = tuple(op for op in role.body if op.name != f"message{number}")
    assert len(body) == len(role.body) - 1
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def swapped(plan: Plan, first: int, second: int) -> Plan:
    """The plan with two of its messages in each other's place."""
    (role,) = plan.roles
    place = {op.name: i for i, op in enumerate(role.body)}
    body = list(role.body)
    i, j = place[f"message{first}"], place[f"message{second}"]
    body[i], body[j] = body[j], body[i]
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),))


# Real models


def real_models(rank: int, ranks: int) -> dict[tuple[str, str, str], Any]:
    """(model, schedule or DDP, type) -> parameters and statistics after training; `buckets` of the exported plan."""
    groups = Groups()
    found: dict[tuple[str, str, str], Any] = {}
    for name in real.NAMES:
        for schedule in schedules.names():
            plan = real.plan(schedule, name, ranks)
            for dtype, turns in ((torch.float64, real.TURNS), (torch.float32, 1)):
                kind = str(dtype).removeprefix("torch.")
                found[name, schedule, kind] = _train_real(plan, name, rank, groups, dtype, turns)
        plan = real.plan("mgwfbp", name, ranks, "float64")
        found[name, "ddp", "float64"], found[name, "ddp", "buckets"] = _train_ddp(
            Peer(name="exported", plan="mgwfbp"), name, rank, real.TURNS, {"mgwfbp": plan}
        )
    groups.close()
    return found


def quarter_models(rank: int, ranks: int) -> dict[tuple[str, str], dict[str, Any]]:
    """(model, schedule) -> how far what it has trained is from others: parameters are too large to be brought back.

    `start`, `ddp`: from those it began with, and from stock DDP's; on rank 0 also `reference` and `oracle`: with its
    statistics from plain torch on the ranks' shards in turn, and from the oracle. `statistics` of batch normalisation.
    """
    groups = Groups()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    turns = real.QUARTER_TURNS
    for name in real.QUARTERS:
        start = real.trained(real.build(name))
        others = {"ddp": _train_ddp(Peer(name="ddp"), name, rank, turns)[0]}
        if rank == 0:
            others["reference"] = real.reference(name, ranks, turns, torch.float64)
        for schedule in real.AT_ONCE:
            plan = real.plan(schedule, name, ranks, cost=real.SHARED)
            ended = _train_real(plan, name, rank, groups, torch.float64, turns)
            parameters = {tensor.name: ended[tensor.name] for tensor in plan.tensors}
            found[name, schedule] = told = {key: _apart(parameters, other) for key, other in others.items()}
            told["start"] = _apart(parameters, start)
            told["statistics"] = {key: value for key, value in ended.items() if key not in parameters}
            if rank == 0:
                told["reference"] = _apart(ended, others["reference"])
                told["oracle"] = _apart(parameters, _evaluated(plan, name, start))
    groups.close()
    return found


def _apart(ours: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(value - others[key]).max()) for key, value in ours.items())


def _evaluated(plan: Plan, name: str, start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the oracle says that rank 0 has in the end, by tensor."""
    model = real.build(name)
    gradient = oracle_gradient(
        lambda rank: real.forward(model, rank, name), plan, lambda rank, number: real.sample(name, rank, number)
    )
    begin = np.concatenate([start[tensor.name].reshape(-1) for tensor in plan.tensors])
    flat = evaluate(plan, real.QUARTER_TURNS, gradient, {"parameter": begin}, dtype="float64")[0]["parameter"]
    return {tensor.name: flat[tensor.start : tensor.stop].reshape(start[tensor.name].shape) for tensor in plan.tensors}


def _train_ddp(
    peer: Peer, name: str, rank: int, turns: int, plans: dict[str, Plan] | None = None
) -> tuple[dict[str, np.ndarray], list[int]]:
    """Parameters and statistics after training with stock DDP, and its buckets."""
    model = real.build(name)
    ddp = StockDDP(
        *(peer, real.forward(model, rank, name), lambda turn: real.sample(name, rank, turn), plans or {}),
        lr=real.LR,
        momentum=real.MOMENTUM,
    )
    ddp.run(turns)
    return real.trained(model), ddp.buckets()


def _train_real(
    plan: Plan, name: str, rank: int, groups: Groups, dtype: torch.dtype, turns: int
) -> dict[str, np.ndarray]:
    executor = Executor(plan, rank, groups, dtype=dtype)
    model = real.build(name, dtype)
    bind(model, plan, executor.buffers["parameter"])
    if "statistics" in executor.buffers:
        bind_statistics(model, executor.buffers["statistics"])
    compute = ModelCompute(
        *(real.forward(model, rank, name), lambda number: real.sample(name, rank, number, dtype)), passes=plan.passes
    )
    executor.run(turns, compute)
    compute.close()
    return real.trained(model)


# Tiny plans


def tiny_cases(ranks: int) -> dict[str, Plan]:
    """Every tiny plan that this number of ranks can run."""
    cases = {
        "two lanes": tiny.two_lanes(ranks),
        "repeated": tiny.repeated(ranks, 3),
        "uneven roles": tiny.uneven_roles(ranks),
        "sparse": tiny.sparse(ranks),
        "split norms": tiny.split_norms(ranks),
        "sharded": tiny.sharded(ranks),
        "hogwild": tiny.hogwild(ranks),
        "easgd": tiny.easgd_round_robin(ranks - 1),
        "server": tiny.async_server(ranks - 1),
    }
    if ranks % 2 == 0:
        cases["in groups"] = tiny.in_groups(2, ranks // 2)
    for algorithm in collectives.names():
        try:
            plan = tiny.synchronous(ranks, algorithm=algorithm, shape=tiny.levels(algorithm, ranks))
            cases[f"{algorithm} spelled out"] = lowered(plan)
            cases[f"{algorithm} lowered when executed"] = plan
        except InputError:
            continue
    return cases


def pull_of(case: str) -> Any:
    """Where ranks race for one buffer, only gradients that do not depend on it have one right result."""
    return tiny.fixed_pull if case == "hogwild" else tiny.pull


def all_tiny_plans(rank: int, ranks: int) -> dict[str, Ended]:
    """Every tiny plan executed."""
    groups = Groups()
    found = {}
    for name, plan in tiny_cases(ranks).items():
        executor = Executor(plan, rank, groups)
        for buffer in ("parameter", "centre"):
            if buffer in executor.buffers:
                executor.buffers[buffer].copy_(torch.from_numpy(tiny.start(plan.tensors[-1].stop)))
        dist.barrier()  # shared buffers have their first values
        executor.run(TINY_TURNS, _compute(executor, pull_of(name)))
        dist.barrier()
        found[name] = Ended({key: value.numpy().copy() for key, value in executor.buffers.items()}, executor.trace())
    hammer = tiny.hogwild(ranks, [HAMMER_ELEMENTS])
    found["hammer"] = _hammer(rank, groups, hammer)
    found["hammer on two lanes"] = _hammer(rank, groups, _on_two_lanes(hammer))
    groups.close()
    return found


def _hammer(rank: int, groups: Groups, plan: Plan) -> Ended:
    """All ranks add ones to the shared buffer as fast as they can."""
    executor = Executor(plan, rank, groups)
    dist.barrier()
    executor.run(HAMMER_TURNS, _compute(executor, lambda rank, turn, parameter: np.ones_like(parameter)), record=False)
    dist.barrier()
    return Ended({"centre": executor.buffers["centre"].numpy().copy()}, executor.trace())


def _on_two_lanes(plan: Plan) -> Plan:
    """What a rank adds, it adds on another lane too, at the same time."""
    (role,) = plan.roles
    *body, push = role.body
    *_, ready = body
    again = dataclasses.replace(push, name="again", lane="other", after=(ready.name,))
    waiting = dataclasses.replace(ready, after_previous=("again",))
    role = dataclasses.replace(role, body=(*body[:-1], waiting, push, again))
    return dataclasses.replace(plan, roles=(role,))


def _compute(executor: Executor, pull: Any) -> Any:
    def compute(turn: int, step: Step) -> None:
        for layer in step.needs:
            step.need(layer)
        gradient = torch.from_numpy(pull(executor.rank, turn, executor.buffers["parameter"].numpy()))
        step.backward()
        for tensor in executor.plan.tensors[::-1]:  # not the order of the plan: that must not matter
            step.ready(tensor.name, gradient[tensor.start : tensor.stop])

    return compute


# Collectives, executed

CHUNK = 4000  # bytes: so that messages of a few thousand elements are cut
MESSAGES = (1, 7, 1000, 4099)  # elements; all but the last fit into a chunk
TYPES = (torch.float64, torch.float32)


def messages(algorithm: str, ranks: int) -> Plan:
    """Messages one after another on a lane, and on another lane one that is larger than a chunk."""
    sizes = (*MESSAGES, 3 * CHUNK)
    body: list[Any] = []
    start = 3
    for number, size in enumerate(sizes):
        ref = Ref("gradient", start, start + size)
        start += size
        body.append(
            Collective(
                name=f"message{number}",
                lane="first" if number < len(MESSAGES) else "second",
                algorithm=algorithm,
                shape=tiny.levels(algorithm, ranks),
                root=number % ranks,
                reads=(ref,),
                writes=(ref,),
            )
        )
    buffers = (Buffer("gradient", sum(sizes) + 5, "float64"),)
    return Plan("messages", ranks, (), buffers, (Role("worker", tuple(range(ranks)), tuple(body)),))


def all_collectives(rank: int, ranks: int) -> dict[tuple[str, str], Any]:
    """(collective, type) -> the largest error of any turn against the sum in float64, and the trace."""
    transfers.CHUNK_BYTES = CHUNK
    found: dict[tuple[str, str], Any] = {}
    groups = Groups()
    for algorithm in collectives.names():
        for dtype in TYPES:
            plan = messages(algorithm, ranks)
            executor = Executor(plan, rank, groups, dtype=dtype)
            gradient, errors = executor.buffers["gradient"], []
            for turn in range(2):
                drawn = [np.random.default_rng((peer, turn)).normal(size=len(gradient)) for peer in range(ranks)]
                every = [torch.from_numpy(values).to(dtype).double() for values in drawn]
                total = torch.stack(every).sum(0)
                total[:3], total[-2:] = every[rank][:3], every[rank][-2:]  # of no message
                gradient.copy_(every[rank])
                executor.run(1)
                errors.append(float((gradient.double() - total).abs().max()))
            executor.run(2)  # without a pause: what is summed twice more
            total[3:-2] *= ranks**2
            errors.append(float((gradient.double() - total).abs().max()) / ranks**2)
            found[algorithm, str(dtype).removeprefix("torch.")] = max(errors), executor.trace()
    groups.close()
    return found


def ring_benchmark(rank: int, ranks: int) -> tuple[list[dict[str, Any]], str]:
    """Rows of a small benchmark, and what it says of a collective that sums nothing."""
    rows = collectives_speed.ring_against_native(rank, ranks, sizes=(64, 40_000), pairs=3)
    carry, transfers.Transfers.run = transfers.Transfers.run, lambda self: None
    try:
        collectives_speed.ring_against_native(rank, ranks, sizes=(64,), pairs=1)
    except RunError as error:
        return rows, str(error)
    finally:
        transfers.Transfers.run = carry
    return rows, ""


# Checkpoints


def resumed(rank: int, ranks: int) -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str]]]:
    """Plan -> (buffers that last after turns without a break, after a checkpoint in between, those saved for all)."""
    plans = {
        "alike": bases.with_momentum(tiny.synchronous(ranks)),
        "sharded": bases.sharded_model(ranks),
        "sparse": bases.with_momentum(tiny.sparse(ranks)),
        "elastic": tiny.easgd_round_robin(ranks - 1),
    }
    found = {}
    for name, plan in plans.items():
        groups = Groups()
        whole = _planned(plan, rank, groups)
        whole.run(RESUMED_TURNS)
        broken = _planned(plan, rank, groups)
        broken.run(RESUMED_TURNS // 2)
        alike, own = copy.deepcopy(broken.state())
        told = [alike]
        dist.broadcast_object_list(told, 0)  # as a checkpoint: rank 0's for all
        again = _planned(plan, rank, groups)
        again.restore(told[0], own)
        again.run(RESUMED_TURNS - RESUMED_TURNS // 2)
        kept = [buffer.name for buffer in plan.buffers if buffer.role not in PASSING]
        ended = [{key: each.executor.buffers[key].numpy().copy() for key in kept} for each in (whole, again)]
        found[name] = ended[0], ended[1], [key for key in alike if key in kept]
        groups.close()
    return found


def _planned(plan: Plan, rank: int, groups: Groups) -> Planned:
    sizes = [4 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    model = Replayed(workload(sizes, [0.0] * len(sizes)), pace=0.0)
    forward = Forward(model, lambda loss, labels: loss, rank)

    def sample(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.from_numpy(np.random.default_rng((rank, number)).normal(size=5))
        return images, torch.zeros(1)

    return Planned(plan, forward, sample, groups, Pool())


# Stragglers


def straggling(rank: int, ranks: int) -> tuple[list[Any], Trace]:
    """Clocks that differ by an hour, and a rank that comes late to every message: (offsets, trace of all ranks)."""
    shift = 3600.0 * rank
    found = offsets(lambda: time.perf_counter() + shift, [f"node {rank}" for rank in range(ranks)])
    groups, plan = Groups(), tiny.synchronous(ranks, messages=[Message(0, 3)])
    executor = Executor(plan, rank, groups)
    pull = _compute(executor, tiny.pull)

    def late(number: int, step: Step) -> None:
        time.sleep(LATE * (rank == 1))
        pull(number, step)

    executor.run(4, late)
    trace = gathered(plan, executor.trace(), rank, 4)
    groups.close()
    return found, trace


# Conformance


def held_against_the_oracle(rank: int, ranks: int) -> dict[str, Any]:
    """What is said of a plan in order, and of one that loses something small on one rank; in both types."""
    found: dict[str, Any] = {}
    groups = Groups()
    loaded = data.load("synthetic", model="resnet18", size=16, batch=4, ranks=ranks, seed=0)
    model = models.build("resnet18", 0)
    layers = [(name, parameter.numel()) for name, parameter in model.named_parameters()][::-1]
    load = workload([4 * n for _, n in layers], [1e-3] * len(layers), names=[name for name, _ in layers])
    load = load.model_copy(update={"statistics": sum(buffer.numel() for buffer in statistics(model))})
    plan = schemes.plan(schemes.Scheme(name="mgwfbp"), load, real.COST, ranks, lr=0.05, momentum=0.9)
    kept = conformance.prepare
    for largest in (conformance.LARGEST_IN_FLOAT64, 0):
        conformance.LARGEST_IN_FLOAT64 = largest
        for fault in ("", "parameter", "momentum", "statistics", "other rank's"):
            held = conformance.Held(loaded, model, models.get("resnet18").loss, 0, rank, groups, 3)
            conformance.prepare = partial(_losing, fault, kept)
            try:
                found[held.name, fault] = held.against_oracle(plan)
            except RunError as error:
                found[held.name, fault] = str(error)
    conformance.prepare = kept
    groups.close()
    return found


def _losing(fault: str, kept: Any, plan: Plan, rank: int, groups: Groups, **how: Any) -> Executor:
    """An executor that loses what became of the last bias: on rank 1, or in its parameters on all ranks."""
    executor = kept(plan, rank, groups, **how)
    name = fault if fault in executor.buffers else "parameter"
    run, buffer = executor.run, executor.buffers[name]
    bias = plan.tensor["fc.bias"]
    part = buffer[:64] if name == "statistics" else buffer[bias.start : bias.stop]

    def lossy(*arguments: Any, **more: Any) -> None:
        before = part.clone()
        run(*arguments, **more)
        if fault and (rank == 1 or fault == "other rank's"):
            part.copy_(before)

    executor.run = lossy
    return executor


# Failures


def killed_worker(rank: int, ranks: int) -> None:
    """Rank 1 of an asynchronous server is killed while the server waits for anybody."""
    _die(tiny.async_server(ranks - 1), rank)


def killed_in_a_ring(rank: int, ranks: int) -> None:
    """Rank 1 is killed in the middle of synchronous training."""
    _die(lowered(tiny.synchronous(ranks, algorithm="ring")), rank)


def killed_in_a_collective(rank: int, ranks: int) -> None:
    """The same where the executor carries the messages."""
    _die(tiny.synchronous(ranks, algorithm="ring"), rank)


def _die(plan: Plan, rank: int) -> None:
    executor = Executor(plan, rank, Groups())
    pull = _compute(executor, tiny.pull)

    def compute(turn: int, step: Step) -> None:
        if rank == 1 and turn == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        pull(turn, step)

    executor.run(10_000, compute)


def limits(rank: int, ranks: int) -> tuple[float, str]:
    """A rank that is late for a meeting is waited for, one that is late for a message is not: (seconds, words)."""
    group.MESSAGE_SECONDS = 1.0
    groups, plan = Groups(), tiny.synchronous(ranks)
    executor = Executor(plan, rank, groups)
    late = 3.0 * (rank == 1)
    time.sleep(late)
    began = time.monotonic()
    dist.barrier()
    met = time.monotonic() - began
    time.sleep(late)
    try:
        executor.run(1, _compute(executor, tiny.pull))
    except RunError as error:
        return met, str(error)
    return met, ""


# A cluster


def cluster_teams(rank: int, ranks: int) -> Any:
    """All-reduces of the layouts of two nodes of two ranks; what each layout's own ranks summed is not looked at."""
    from gradsync.measure import cluster_links, cluster_nodes
    from gradsync.runtime.devices import PROCESSOR

    placement = cluster_nodes.Placement([[0, 1], [2, 3]], ["a", "b"], [])
    layouts = cluster_links.layouts(placement)
    return [(layout, cluster_links.measure(layout, 400, 40_000, PROCESSOR)) for layout in layouts]
