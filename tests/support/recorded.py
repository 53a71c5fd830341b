"""Real training under PyTorch's profiler: a small net, whose gradients and steps also leave notes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function, schedule

STEPS = 4
READY = "ready:"  # what a note of a gradient begins with


def make() -> tuple[nn.Module, Callable[[Any], torch.Tensor], torch.Tensor]:
    """A model of one's own, as `--model` takes it: convolutions, batch normalisation, a linear layer."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 7 * 7, 10)),
    )
    labels = torch.arange(4) % 10
    return net, lambda output: cross_entropy(output, labels), torch.randn(4, 3, 16, 16)


def notes(net: nn.Module) -> None:
    """From now on, each gradient of the net leaves a note with its name when it is in its place."""

    def note(name: str) -> Callable[[torch.Tensor], None]:
        def noted(_: torch.Tensor) -> None:
            with record_function(f"{READY}{name}"):
                pass

        return noted

    for name, parameter in net.named_parameters():
        parameter.register_post_accumulate_grad_hook(note(name))


def train(
    net: nn.Module, trace: Path, *, steps: int = STEPS, passes: int = 1, annotated: bool = True, **options: Any
) -> None:
    """Write the trace of so many steps; without `annotated` the profiler isn't told of steps."""
    _, loss, inputs = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    told = {"schedule": schedule(wait=0, warmup=1, active=steps, repeat=1)} if annotated else {}
    given = {"record_shapes": True, **told, **options}
    with profile(
        activities=[ProfilerActivity.CPU],
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
        **given,
    ) as profiler:
        for _ in range(steps + annotated):
            optimizer.zero_grad()
            for _ in range(passes):
                loss(net(inputs)).backward()
            optimizer.step()
            if annotated:
                profiler.step()


def single(folder: Path) -> Path:
    """A trace of one process with notes of gradients, and the execution trace of the same run beside it."""
    torch.manual_seed(0)
    net = make()[0]
    notes(net)
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / "execution.json"))
    trace = folder / "single.json"
    train(net, trace, execution_trace_observer=observer)
    observer.unregister_callback()
    return trace
