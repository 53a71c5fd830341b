"""Measure the seconds per byte that a kernel moves: all ranks at the same time, as in training.

A kernel declares how many bytes it reads and writes (`kernels/`). One that selects is timed twice, with few elements
selected and with many: each byte that it selects takes seconds besides. A sum by index is timed on a sparse message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isqrt

import numpy as np
import torch
import torch.distributed as dist

from gradsync import compressors
from gradsync.compressors import powersgd
from gradsync.errors import RunError
from gradsync.kernels import DECODE, ENCODE, KERNELS, SELECTED, Form
from gradsync.plan import Buffer, Local, Plan, Ref, Tensor
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.group import settle
from gradsync.runtime.kernels import EXECUTED
from gradsync.sparse import CODE_DTYPE

MOST_ELEMENTS = 1 << 20  # 4 MB of float32: beyond a core's own caches
FEW, MANY = 100, 5  # of so many elements a sparse message has one
WARM_UP, REPEATS = 1, 5


def _ranges(compressor: str) -> tuple[str, str]:
    """The buffers of a code, each compressor's own."""
    return f"codes_{compressor}", f"scales_{compressor}"


# name of the kernel -> (reads, writes, arguments); a range is its buffer, all of it
WITH_FACTORS = ("left", "right", "matrix_residual")
MOMENTS = (("gradient",), ("parameter", "first_moment", "second_moment"), {"lr": 1e-3, "scale": 0.5})
TRIALS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, float]]] = {
    "adam": MOMENTS,
    "adamw": MOMENTS,
    "add": (("gradient",), ("parameter",), {}),
    "average": (("gradient",), ("parameter",), {"terms": 2.0}),
    "cast": (("gradient",), ("wire",), {"scale": 0.5}),
    "copy": (("gradient",), ("parameter",), {}),
    "decode_sum": (("values", "indices"), ("gradient",), {}),
    "elastic_centre": (("parameter",), ("centre",), {"lr": 0.01, "rho": 0.1}),
    "elastic_difference": (("parameter", "centre"), ("gradient",), {"lr": 0.01, "rho": 0.1}),
    "elastic_worker": (("gradient", "centre"), ("parameter",), {"lr": 0.01, "rho": 0.1}),
    "fill": ((), ("gradient",), {}),
    "lamb": (("gradient", "ratio"), MOMENTS[1], MOMENTS[2]),
    "lamb_ratios": (("parameter", "gradient", *MOMENTS[1][1:]), ("ratio",), {"scale": 0.5}),
    "lars": (("gradient", "ratio"), ("parameter",), {"lr": 0.01, "weight_decay": 1e-4, "scale": 0.5}),
    "lars_ratios": (("parameter", "gradient"), ("ratio",), {"trust": 0.01, "weight_decay": 1e-4, "scale": 0.5}),
    "outer_nesterov": (
        ("gradient",),
        ("parameter", "centre", "first_moment"),
        {"outer_lr": 0.7, "outer_momentum": 0.9, "terms": 2.0},
    ),
    "powersgd_left": (("matrix",), WITH_FACTORS, {}),
    "powersgd_right": (("matrix",), WITH_FACTORS[:2], {}),
    "powersgd_decode": (("left",), ("right", "matrix", "matrix_residual"), {"terms": 2.0}),
    "sgd_difference": (("gradient",), ("parameter",), {"lr": 0.01}),
    **{f"{ENCODE}{name}": (("gradient",), ("values", "indices", "residual"), {}) for name in compressors.selecting()},
    **{f"{ENCODE}{name}": (("gradient",), (*_ranges(name), "residual"), {}) for name in compressors.coding()},
    **{f"{DECODE}{name}": (_ranges(name), ("gradient",), {}) for name in compressors.coding()},
}


def trial(name: str, elements: int, per_sent: int = FEW) -> tuple[Plan, Local]:
    """A plan that holds the buffers of a trial of a kernel, and the trial itself.

    A sparse message has one of `per_sent` elements.
    """
    sent = max(1, elements // per_sent)
    keyed = [Buffer(key, elements, role=key) for key in ("gradient", "parameter", "centre", "residual")]
    keyed += [Buffer(key, elements, role="momentum") for key in MOMENTS[1][1:]]
    more = [Buffer("wire", elements, "float16"), Buffer("values", sent), Buffer("indices", sent, "int64")]
    for compressor in compressors.coding():
        size = compressors.size(compressor, elements, {})
        more += [
            Buffer(buffer, length, dtype)
            for buffer, length, dtype in zip(_ranges(compressor), size, (CODE_DTYPE, "float32"), strict=True)
        ]
    matrix = powersgd.Matrix(side := max(1, isqrt(elements)), side, min(powersgd.OPTIONS["rank"], side))
    more += [Buffer("matrix", side**2, role="gradient"), Buffer("matrix_residual", side**2, role="residual")]
    more += [Buffer("left", matrix.left), Buffer("right", matrix.right, role="state")]
    tensors = Tensor("all", 0, elements), Tensor("matrix", 0, side**2)
    plan = Plan("trial", 1, tensors, (*keyed, *more, Buffer("ratio", 1)), ())
    reads, writes, arguments = TRIALS[name]
    if "longest" in KERNELS[name].arguments:
        arguments = {**arguments, "longest": float(elements)}
    refs = [tuple(Ref(key, 0, plan.buffer[key].elements) for key in keys) for keys in (reads, writes)]
    return plan, Local(name="trial", kernel=name, arguments=arguments, reads=refs[0], writes=refs[1])


def seconds_per_byte(elements: int, device: Device = PROCESSOR) -> dict[str, float]:
    """Kernel -> seconds for each byte that it moves, on float32 ranges of so many elements; collective.

    Of kernels that select, `NAME/selected` has the seconds for each byte of what they select, besides. Times are the
    median, on the slowest rank while all run it.
    """
    elements = min(elements, MOST_ELEMENTS)
    values = cache(_drawn)  # to draw them takes longer than most kernels
    per_byte: dict[str, float] = {}
    for name in TRIALS:
        few = _timed(*trial(name, elements), values, device)
        if few is None:
            continue
        form, seconds = few
        many = None if KERNELS[name].selected is None else _timed(*trial(name, elements, MANY), values, device)
        per_byte |= {name: seconds / KERNELS[name].moved(form)} if many is None else told_apart(name, few, many)
    return per_byte


def told_apart(name: str, few: tuple[Form, float], many: tuple[Form, float]) -> dict[str, float]:
    """The seconds for each byte that a kernel moves and for each that it selects, of two trials with their seconds.

    They give the first trial its own time. Neither is below 0: noise may have the larger selection take less, or so
    much more that the first trial's own selection takes all of its time, and rounding would leave less than nothing.
    """
    kernel = KERNELS[name]
    assert kernel.selected is not None
    moved, selected = kernel.moved(few[0]), kernel.selected(few[0])
    each, more = few[1] / moved, many[1] / kernel.moved(many[0])
    share, larger_share = selected / moved, kernel.selected(many[0]) / kernel.moved(many[0])
    if larger_share <= share:  # too short to tell
        return {name: each, f"{name}{SELECTED}": 0.0}
    per_selected = min(max(0.0, (more - each) / (larger_share - share)), few[1] / selected)
    return {name: max(0.0, each - per_selected * share), f"{name}{SELECTED}": per_selected}


def _timed(
    plan: Plan, op: Local, values: Callable[[int, str, int | None], torch.Tensor], device: Device
) -> tuple[Form, float] | None:
    """A trial, and the seconds that it takes; None if its kernel can't do it, which all ranks find.

    `values`: those of `_drawn`, of which the trial takes copies, as kernels change what they are given.
    """
    form, kernel = Form(plan, op), KERNELS[op.kernel]
    kernel.refuse(form)
    elements = plan.buffer["gradient"].elements
    buffers = {
        buffer.name: values(buffer.elements, buffer.dtype, elements if buffer.name == "indices" else None).to(
            device.torch_device, copy=True
        )
        for buffer in (plan.buffer[ref.buffer] for ref in (*op.reads, *op.writes))
    }
    operands = [[buffers[ref.buffer] for ref in refs] for refs in (op.reads, op.writes)]
    marks = []
    try:
        for _ in range(WARM_UP + REPEATS):
            dist.barrier()
            start = device.mark()
            EXECUTED[op.kernel](*operands, **kernel.at(op.arguments, 0))
            marks.append((start, device.mark()))
    except RunError:  # on every rank: all have the same numbers, of which mstopk_as_printed can't select some
        return None
    settle(device)
    mine = torch.tensor([device.seconds(*pair) for pair in marks[WARM_UP:]], dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return form, float(np.median(mine.numpy()))


def _drawn(elements: int, dtype: str, below: int | None) -> torch.Tensor:
    """Values between 0 and 1, or indices `below` a number."""
    generator = torch.Generator().manual_seed(elements)
    if below is not None:
        return torch.randint(below, (elements,), generator=generator)
    return torch.rand(elements, generator=generator).to(getattr(torch, dtype))
