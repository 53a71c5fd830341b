"""The local kernels of the plan's vocabulary: what an operation of a rank on its own buffers computes.

A kernel is one file of this folder with

    compute(reads, writes, **arguments)    flat arrays; `writes` are mutated in place
    refuse(form)                           raises InputError for operands that it can't work on
    follow(track)                          what its results hold, given what its operands hold (`plan/content.py`)
    moved(form) -> float                   bytes that it reads and writes in memory
    selected(form) -> float                optional: bytes of what it selects, which takes time of its own
    KEEPS                                  roles of buffers that kernels which name them, and nothing else, may write
    DEALT                                  optional, a number: it writes an element for each so many operands, and a
                                           rank that writes a piece takes the operands of its elements alone

A `compute` with a keyword argument `turn` is told how often the same has been done before, to the same ranges: how many
turns of its loop went before or, in a repeat, how many of its passes; one with `rank` is told whose it is. No plan
carries these.
`compute` is written with operators that NumPy and PyTorch share if that is possible, so that the oracle (NumPy, n
ranks in one process) and the executor (PyTorch, `runtime/kernels.py`) mean the same by a name. Discovery finds the
file; its name is the kernel's name. `_encode.py` and `_code.py` make kernels of each compressor, `_unscaled.py` one of
each update that can clip.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, isfinite, prod
from typing import Any, NamedTuple, NoReturn, Protocol

from gradsync import compressors
from gradsync.errors import InputError
from gradsync.names import modules_in
from gradsync.plan import BYTES, DTYPE_BYTES, Local, Mesh, Plan, Ref
from gradsync.plan.content import Content, Part, Parts, Sum

Array = Any

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32")
FACTORS = ("lr", "scale", "rho")  # arguments that are multiplied with one another
ENCODE = "encode_"  # and a compressor: the kernel that encodes what that selects
DECODE = "decode_"  # and a compressor that makes codes: the kernel that sums what they stand for
SELECTED = "/selected"  # after a kernel, in a workload: seconds for each byte that it selects, besides moving it
SCALED, UNSCALED = "_scaled", "_unscaled"  # after an update: the kernels that take a loss scale out of the gradients
TURN, RANK = "turn", "rank"  # arguments that a reader of a plan fills in
COUNTS = ("first", "longest", "levels", "bucket", "seed")  # arguments that are no factors of what is computed
SMALLEST_SCALE = 1e-18  # what is scaled by less, or by 0, is lost
# What an argument of any kernel may be: from the least to below the most
RANGES = {
    "lr": (0.0, inf),
    "momentum": (0.0, 1.0),
    "clip": (0.0, inf),
    "growth_interval": (1.0, inf),
    "trust": (0.0, inf),
    "weight_decay": (0.0, inf),
    "beta1": (0.0, 1.0),
    "beta2": (0.0, 1.0),
    "eps": (1e-30, inf),
    "rho": (0.0, inf),
    "terms": (1.0, inf),
    "outer_lr": (0.0, inf),
    "outer_momentum": (0.0, 1.0),
    "first": (0.0, 2.0**53),
    "longest": (1.0, 2.0**53),
    **{name: (float(least), most + 1.0) for name, (least, most) in compressors.LIMITS.items()},
}


def largest(dtype: str) -> float:
    """About the largest number that a type can hold; torch refuses a larger factor."""
    return 65504.0 if dtype == "float16" else 1e38


class Operand(NamedTuple):
    """A range that a kernel reads or writes; each rank takes one of so many `pieces` of its `elements`."""

    ref: Ref
    role: str
    dtype: str
    pieces: int = 1

    @property
    def elements(self) -> int:
        """The elements of the whole range."""
        return self.ref.stop - self.ref.start

    @property
    def bytes(self) -> float:
        """The bytes that a rank takes of it, on average."""
        return self.elements * DTYPE_BYTES[self.dtype] / self.pieces


class Form:
    """The operands of a local operation, before anything is computed."""

    def __init__(self, plan: Plan, op: Local):
        self.plan, self.op = plan, op
        self.reads, self.writes = ([self._operand(ref) for ref in refs] for refs in (op.reads, op.writes))

    def _operand(self, ref: Ref) -> Operand:
        buffer = self.plan.buffer[ref.buffer]
        return Operand(ref, buffer.role, buffer.dtype, self.plan.mesh.pieces(ref))

    def fail(self, problem: str) -> NoReturn:
        """Raises InputError that names operation and kernel."""
        raise InputError(f"{self.op.name!r}: kernel {self.op.kernel!r} {problem}")

    def counts(self, reads: int, writes: int) -> None:
        """Raises InputError unless it has so many operands."""
        if (len(self.reads), len(self.writes)) != (reads, writes):
            self.fail(f"reads {reads} and writes {writes} ranges, not {len(self.reads)} and {len(self.writes)}")

    def alike(self, *operands: Operand, types: Sequence[str] | None = FLOATS) -> None:
        """Raises InputError unless they are of equal length on every rank, and all of one of `types` (None: of any).

        If gradients are bytes of an unknown type, which are never computed with, these count as numbers.
        """
        shapes = {(each.elements, each.ref.mine) for each in operands}
        if len(shapes) > 1:
            self.fail(f"needs ranges of equal length: {self._described(operands)}")
        if types is None:
            return
        dtypes = {each.dtype for each in operands}
        if dtypes - set(types) - ({BYTES} if self.plan.of_bytes else set()) or len(dtypes) > 1:
            self.fail(f"needs ranges of one of the types {', '.join(types)}: {self._described(operands)}")

    def apart(self) -> None:
        """Raises InputError if a range is read and written: the kernel reads again once it has begun to write."""
        read = {each.ref for each in self.reads}
        for each in self.writes:
            if each.ref in read:
                self.fail(f"can't write what it reads: {self._described([each])}")

    def long(self, operand: Operand, elements: int) -> None:
        """Raises InputError unless the range has just so many elements on every rank."""
        if any(high - low != elements for low, high in self._bounds(operand.ref)):
            self.fail(f"needs {elements} element(s): {self._described([operand])}")

    def shorter(self, operand: Operand, other: Operand) -> None:
        """Raises InputError unless both have an element on every rank, and it no more than the other has on any."""
        lengths = [high - low for low, high in self._bounds(other.ref)]
        for rank, (low, high) in enumerate(self._bounds(operand.ref)):
            most = min(max(lengths), lengths[rank] + 1)  # pieces differ by an element: the shorter ones are padded
            if not 0 < high - low <= most or not lengths[rank]:
                self.fail(f"needs one to {most} elements on rank {rank}: {self._described([operand])}")

    def _bounds(self, ref: Ref) -> list[tuple[int, int]]:
        """What each rank takes of a range."""
        return [self.plan.mesh.bounds(ref, rank) for rank in range(self.plan.ranks)]

    def _described(self, operands: Sequence[Operand]) -> str:
        return ", ".join(
            f"{each.ref.buffer}[{each.ref.start}:{each.ref.stop}]{_mine(each.ref)} ({each.dtype})" for each in operands
        )

    def most(self, measure: Callable[[Operand], float]) -> float:
        """The sum of a measure over what is read, on the rank that has most of it: others wait for that."""
        taken = {reads_of(self.op, self.plan.mesh, rank) for rank in range(self.plan.ranks)}
        return max(sum(measure(self._operand(ref)) for ref in refs) for refs in taken)

    def argument(self, name: str) -> float:
        """The value of an argument, or its default."""
        default = arguments(self.op.kernel)[name].default
        return float(self.op.arguments.get(name, default))


def _mine(ref: Ref) -> str:
    return f" of mine over {', '.join(ref.mine)}" if ref.mine else ""


class Message(NamedTuple):
    """A sparse message of a gradient; `contained`: the tokens in it and in what it leaves.

    `lengths`: how many elements its ranges have, as values and indices, or codes and scales. `code`: what these codes
    are, or what factors are of; None of selected elements, and of factors of the gradient alone.
    """

    gradient: Parts
    lengths: tuple[int, ...]
    contained: int
    code: Any = None


class Track(Protocol):
    """What a kernel's `follow` sees of one execution on one rank."""

    op: Local
    elements: int  # of all tensors
    workers: int  # ranks that compute gradients

    @property
    def times(self) -> int:
        """How often the same has been done before, to the same ranges: what a `compute` is told as `turn`."""

    def read(self, number: int) -> Parts:
        """What an operand holds; raises if nothing has written it."""

    def held(self, number: int) -> Parts:
        """What one of `writes` held before."""

    def put(self, number: int, parts: Sequence[Part]) -> None:
        """What one of `writes` holds now."""

    def sum(self, operands: Sequence[Parts]) -> Parts:
        """Element by element; no gradient may be in it twice."""

    def dtype(self, ref: Ref) -> str:
        """The type of a range."""

    def version(self, *what: Any) -> int:
        """A number for what a value was computed from: equal numbers, equal values."""

    def follows(self, version: int, *before: Content) -> None:
        """A version of parameters or of a centre was made of others, and holds the gradients that they hold."""

    def fail(self, problem: str) -> NoReturn:
        """Raises, since the operation must not do what it does."""

    def gradients(self, gradient: Parts, *state: Parts) -> Iterator[tuple[int, int, Sum, tuple[Content, ...]]]:
        """(start, stop, the sum of gradients, the contents of `state`): what an update may apply, part by part.

        The first of `state` is what they are applied to. Raises if gradients are missing, lie in the place of
        others, or were computed with other parameters or under another loss scale.
        """

    def complete(self, summed: Sum, start: int, stop: int) -> None:
        """Raises unless these gradients of elements start .. stop are of all ranks, of each the same passes."""

    def decides(self, number: int, scaler: Content, summed: Sum) -> None:
        """Whether gradients `summed` are applied depends on their norm, the operand of that number.

        Raises unless they are of all ranks, were computed under the loss scale `scaler`, and whoever else takes that
        out of gradients, or moves it, decides by the same norm.
        """

    def applied(self, start: int, stop: int, origin: int, summed: Sum, before: Content, version: int) -> None:
        """These gradients of elements origin .. have become part of a version that follows `before`."""

    def sent(self, number: int, message: Message) -> None:
        """This operation makes a sparse message, which another decodes."""

    def message(self, number: int) -> Message:
        """The sparse message of that number."""

    def received(self, number: int) -> None:
        """This operation decodes it."""

    def synchronised(self, start: int, stop: int, summed: Content, workers: float) -> tuple[int, str]:
        """The version that the ranks' own steps began from, whose parameters are in a sum of so many; its names.

        Raises unless they are those of all ranks that compute gradients, once each, after as many steps of their own.
        """

    def averaged(self, version: int, summed: Content) -> None:
        """A version was made of the mean of a sum of parameters; what ranks keep for theirs goes on with it."""

    def kept_for(self, version: int) -> tuple[int, ...]:
        """The versions of parameters for which moments may be that are applied to this one: itself, else its parts."""

    def exchanged(self, side: str, start: int, stop: int, workers: Sequence[int], centre: int) -> None:
        """An elastic exchange of these elements, as the side `worker` or `centre` saw it.

        `workers` and `centre`: the versions of parameters and of the centre before it.
        """


class Kernel:
    """One file of this folder, or what is like one: `module`."""

    def __init__(self, name: str, module: Any):
        self.name = name
        self.compute: Callable[..., None] = module.compute
        self.follow: Callable[[Track], None] = module.follow
        self.moved: Callable[[Form], float] = module.moved
        self.selected: Callable[[Form], float] | None = getattr(module, "selected", None)
        self.keeps: tuple[str, ...] = getattr(module, "KEEPS", ())  # roles of buffers that it alone may write
        self.dealt = int(getattr(module, "DEALT", 0))
        self._refuse: Callable[[Form], None] = module.refuse

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """Its named arguments, as a plan has them."""
        return {name: each for name, each in self._named.items() if name not in (TURN, RANK)}

    @cached_property
    def _named(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.compute).parameters.values()
        return {each.name: each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

    def at(self, arguments: Mapping[str, float], turn: int, rate: float = 1.0, rank: int = 0) -> dict[str, Any]:
        """The arguments with which a rank runs it in a turn: the plan's, its learning rate times `rate`."""
        values: dict[str, Any] = dict(arguments)
        if rate != 1.0 and "lr" in values:
            values["lr"] *= rate
        filled = {TURN: turn, RANK: rank}
        return values | {name: value for name, value in filled.items() if name in self._named}

    def seconds(self, form: Form, per_byte: Mapping[str, float]) -> float:
        """What it takes, if `per_byte` has the seconds for each byte that it moves, and selects."""
        selected = self.selected(form) if self.selected is not None else 0.0
        return kernel_seconds(self.name, per_byte, self.moved(form), selected)

    def refuse(self, form: Form) -> None:
        """Raises InputError for arguments that it does not have or that make no sense, and for wrong operands."""
        values = form.op.arguments
        for name, value in values.items():
            if name not in self.arguments:
                form.fail(f"has no argument {name!r}; it has: {', '.join(self.arguments) or 'none'}")
            least, most = RANGES.get(name, (-inf, inf))
            if name in COUNTS and value % 1:
                form.fail(f"needs a whole number as {name}, not {value:g}")
            if not (isfinite(value) and least <= value and (value < most)):
                form.fail(f"needs {name} from {least:g} to below {most:g}, not {value:g}")
            if name == "scale" and abs(value) < SMALLEST_SCALE:
                form.fail(f"needs a scale of at least {SMALLEST_SCALE:g}, not {value:g}: what it scales would be lost")
        self._refuse_large(form)
        for name, parameter in self.arguments.items():
            if parameter.default is inspect.Parameter.empty and name not in values:
                form.fail(f"needs its argument {name!r}")
        self._refuse(form)
        if self.dealt and len(form.reads) != self.dealt * form.writes[0].elements:
            form.fail(f"writes {form.writes[0].elements} elements of {len(form.reads)} ranges: {self.dealt} for each")

    def _refuse_large(self, form: Form) -> None:
        """Raises InputError for arguments, or products of them, that the type of an operand can't hold."""
        values = form.op.arguments
        product = prod(max(1.0, abs(values.get(name, 1.0))) for name in FACTORS)
        greatest = max([product, *(abs(value) for name, value in values.items() if name not in COUNTS)])
        for each in (*form.reads, *form.writes):
            if greatest > largest(each.dtype):
                form.fail(
                    f"has arguments of up to {greatest:g}, and {each.dtype} holds {largest(each.dtype):g} at most"
                )


def kernel_seconds(kernel: str, per_byte: Mapping[str, float], moved: Any, selected: Any = 0.0) -> Any:
    """What a kernel takes that moves so many bytes and selects so many of them; free is what has no key."""
    return per_byte.get(kernel, 0.0) * moved + per_byte.get(f"{kernel}{SELECTED}", 0.0) * selected


def reads_of(op: Any, mesh: Mesh, rank: int) -> tuple[Ref, ...]:
    """The ranges that a rank reads: all of an operation, or if they are dealt, those of the elements that it writes."""
    reads: tuple[Ref, ...] = op.reads
    dealt = KERNELS[op.kernel].dealt if isinstance(op, Local) else 0
    if not dealt or not op.writes[0].mine:
        return reads
    first, (start, stop) = op.writes[0].start, mesh.bounds(op.writes[0], rank)
    return reads[dealt * (start - first) : dealt * (stop - first)]


def arguments(name: str) -> dict[str, inspect.Parameter]:
    """The named arguments of a kernel."""
    return KERNELS[name].arguments


def whole_passes(form: Form) -> float:
    """Bytes moved by one pass that reads all operands and writes what is written."""
    return sum(each.bytes for each in (*form.reads, *form.writes))


def _modules() -> dict[str, Any]:
    """Name -> the file, or what stands for one."""
    files = {name: importlib.import_module(f"{__name__}.{name}") for name in modules_in(__path__)}
    for room in ("_encode", "_code", "_unscaled"):
        files |= importlib.import_module(f"{__name__}.{room}").kernels()
    return files


KERNELS: dict[str, Kernel] = {name: Kernel(name, module) for name, module in sorted(_modules().items())}
