"""Made-up profiles in the form of Kineto's, with times that are easy to add up; microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FORWARD, BACKWARD, PLACED, UPDATE = 100, 200, 10, 50  # of one operator, function, gradient, step of the optimizer
MESSAGE = 400
ZEROED = 70  # of setting gradients to zero
GAP = 5  # before each step
LAUNCH = 2  # of a kernel


def profile(
    shapes: Sequence[Sequence[int]] = ((10,), (10, 20)),
    *,
    steps: int = 4,
    rank: int | None = None,
    ranks: int = 2,
    begins: float = 1e6,
    slower: float = 1.0,
    late: float = 0.0,
    device: bool = False,
    zeroed: bool = False,
) -> dict[str, Any]:
    """A profile of a net whose parameters have these shapes, in the order in which their gradients are ready.

    With `rank`, a message of all gradients follows each backward, in which that rank comes `late` microseconds before
    the others. `slower`: by how much its computation takes longer. With `device`, every function is a kernel that the
    host launches, and that takes twice the host's time. With `zeroed`, gradients are set to zero between forward and
    backward.
    """
    made = _Made(begins, slower, device, zeroed)
    for number in range(steps):
        made.step(number, shapes, rank is not None, late)
    told: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": made.events}
    if rank is not None:
        told["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": ranks}
    return told


class _Made:
    def __init__(self, begins: float, slower: float, device: bool, zeroed: bool):
        self.now, self.slower, self.device, self.zeroed = begins, slower, device, zeroed
        self.free = begins  # when the device has done what was launched
        self.events: list[dict[str, Any]] = []

    def add(self, name: str, kind: str, start: float, duration: float, **arguments: Any) -> None:
        self.events.append(
            {
                **{"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration},
                "args": {key.replace("_", " "): value for key, value in arguments.items()},
            }
        )

    def spend(self, name: str, seconds: float, *, kind: str = "cpu_op", **arguments: Any) -> None:
        """Something that the host computes, or launches."""
        spent = LAUNCH if self.device else seconds * self.slower
        self.add(name, kind, self.now, spent, **arguments)
        if self.device:
            number = len(self.events)
            self.add("cudaLaunchKernel", "cuda_runtime", self.now + 0.5, 1, correlation=number)
            start = max(self.free, self.now + 1)
            self.free = start + 2 * seconds * self.slower
            self.add(f"kernel of {name}", "kernel", start, self.free - start, correlation=number, stream=7)
        self.now += spent

    def step(self, number: int, shapes: Sequence[Sequence[int]], distributed: bool, late: float) -> None:
        self.now += GAP
        begun = self.now
        sequence = 100 * number
        for place in reversed(range(len(shapes))):
            self.spend("aten::linear", FORWARD, **{"Sequence number": sequence + len(shapes) - place})
        if self.zeroed:
            self.spend("Optimizer.zero_grad#SGD.zero_grad", ZEROED, kind="user_annotation")
        for place, shape in enumerate(shapes):
            functions = {"Sequence number": sequence + len(shapes) - place, "Fwd thread id": 1}
            start = self.now
            self.spend("AddmmBackward0", BACKWARD, **functions)
            self.add("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", start, self.now - start)
            start = self.now
            known = {"Input Dims": [list(shape)], "Input type": ["float"]}
            self.spend("torch::autograd::AccumulateGrad", PLACED, **known)
            name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
            self.add(name, "cpu_op", start, self.now - start)
        elements = sum(_product(shape) for shape in shapes)
        if distributed and self.device:
            known = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "BFloat16", "Group size": 8}
            self.add("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "kernel", self.free, MESSAGE, **known)
            self.add("nccl:all_reduce", "user_annotation", self.now, 1)
            self.free += MESSAGE  # what is launched next waits for it
        elif distributed:
            known = {"Input Dims": [[elements]], "Input type": ["float"]}
            self.add("gloo:all_reduce", "user_annotation", self.now, MESSAGE + late, **known)
            self.now += MESSAGE + late
        self.spend("Optimizer.step#SGD.step", UPDATE, kind="user_annotation")
        self.add(f"ProfilerStep#{number}", "user_annotation", begun, self.now - begun)


def _product(shape: Sequence[int]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product
