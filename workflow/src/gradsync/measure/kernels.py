"""Measure the seconds per byte that a kernel moves: all ranks at the same time, as in training.

A kernel declares how many bytes it reads and writes (`kernels/`); a kernel whose time depends on more than that (a
selection, a sum by index) is timed on a message of its usual kind.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import torch
import torch.distributed as dist

from gradsync import compressors
from gradsync.compressors import powersgd
from gradsync.errors import RunError
from gradsync.kernels import DECODE, ENCODE, KERNELS, Form
from gradsync.plan import Buffer, Local, Plan, Ref, Tensor
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.group import settle
from gradsync.runtime.kernels import EXECUTED
from gradsync.sparse import CODE_DTYPE

MOST_ELEMENTS = 1 << 21  # 8 MB of float32: beyond a core's own caches
ELEMENTS_PER_SENT = 100  # of so many elements a sparse message has one
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


def trial(name: str, elements: int) -> tuple[Plan, Local]:
    """A plan that holds the buffers of a trial of a kernel, and the trial itself."""
    few = max(1, elements // ELEMENTS_PER_SENT)
    keyed = [Buffer(key, elements, role=key) for key in ("gradient", "parameter", "centre", "residual")]
    keyed += [Buffer(key, elements, role="momentum") for key in MOMENTS[1][1:]]
    more = [Buffer("wire", elements, "float16"), Buffer("values", few), Buffer("indices", few, "int64")]
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

    The median, on the slowest rank while all run it.
    """
    elements = min(elements, MOST_ELEMENTS)
    per_byte = {}
    for name in TRIALS:
        plan, op = trial(name, elements)
        KERNELS[name].refuse(Form(plan, op))
        buffers = {buffer.name: _drawn(buffer, elements, device) for buffer in plan.buffers}
        operands = [[buffers[ref.buffer] for ref in refs] for refs in (op.reads, op.writes)]
        marks = []
        try:
            for _ in range(WARM_UP + REPEATS):
                dist.barrier()
                start = device.mark()
                EXECUTED[name](*operands, **KERNELS[name].at(op.arguments, 0))
                marks.append((start, device.mark()))
        except RunError:  # on every rank: all have the same numbers, of which mstopk_as_printed can't select some
            continue
        settle(device)
        mine = torch.tensor([device.seconds(*pair) for pair in marks[WARM_UP:]], dtype=torch.float64)
        dist.all_reduce(mine, op=dist.ReduceOp.MAX)
        per_byte[name] = float(np.median(mine.numpy())) / KERNELS[name].moved(Form(plan, op))
    return per_byte


def _drawn(buffer: Buffer, elements: int, device: Device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(buffer.elements)
    if buffer.name == "indices":
        values = torch.randint(elements, (buffer.elements,), generator=generator)
    else:
        values = torch.rand(buffer.elements, generator=generator).to(getattr(torch, buffer.dtype))
    return values.to(device.torch_device)
