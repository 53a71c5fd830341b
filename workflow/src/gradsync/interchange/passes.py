"""The iterations in a recording: where forward, backward and update of each begin and end, and its gradients.

A backward pass is a row of functions that autograd evaluates, with no operator of forward between two of them. A
gradient is ready when `AccumulateGrad` has put it into its place. Forward needs its parameter when it begins the
operator that the function evaluated just before belongs to: both have one sequence number.

A step is what a profiler's step, or another annotation, spans; without one, it reaches from the end of one update to
the next, or of one backward to the next if no update was recorded. It has one backward. What is neither backward nor
update counts as forward if it comes before backward, and is waiting if it comes after. So is what the host spends in
calls that hand a message over, wherever they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gradsync.errors import InputError
from gradsync.interchange.recording import Event, Recording

EVALUATED = "autograd::engine::evaluate_function: "
GRADIENT = "torch::autograd::AccumulateGrad"
RECOMPUTED = "CheckpointFunctionBackward"  # reentrant: inputs get gradients in the way that parameters do
UPDATE = re.compile(r"Optimizer\.(step|zero_grad)#")
STEPPED = "Optimizer.step#"
SLACK = 1e-6  # seconds by which steps that follow one another may overlap, from rounding alone
STEP = re.compile(r"ProfilerStep#?\d+")
RECORD = (
    "record at least three steps, each with forward, backward and optimizer.step(), and call profiler.step() in each"
)


class Gradient(NamedTuple):
    """Seconds after the step's start at which a gradient is ready, and at which forward needs its parameter if known.

    `event` is what was recorded of it.
    """

    ready: float
    need: float | None
    event: Event


class Step(NamedTuple):
    """Durations in seconds; `start` on the rank's clock. `whole`: from there to the end of the step, with messages."""

    start: float
    whole: float
    forward: float
    backward: float
    update: float
    gradients: tuple[Gradient, ...]
    updated: bool  # whether an update was recorded, beyond setting gradients to zero
    functions: frozenset[str]  # names of what autograd evaluated

    @property
    def computation(self) -> float:
        """Forward, backward and update."""
        return self.forward + self.backward + self.update


class _Backward(NamedTuple):
    start: float
    end: float
    functions: list[Event]  # of autograd, each with what it evaluates inside
    gradients: list[Event]


def steps(recording: Recording, annotation: str | None = None) -> list[Step]:
    """The steps of a recording in order.

    Raises InputError if it has no gradients, or some that are not told from those of parameters, or if steps can't be
    told apart.

    `annotation` names what spans a step, instead of the profiler's own steps.
    """
    operators = recording.operators
    gradients = [event for event in operators if is_gradient(event.name)]
    if not gradients:
        raise InputError(
            f"trace {recording.where}: has no gradients: no {GRADIENT} among {len(operators)} operators: record "
            "training, with activities that include ProfilerActivity.CPU, not inference"
        )
    if any(event.name == RECOMPUTED for event in operators):
        raise InputError(
            f"trace {recording.where}: has {RECOMPUTED}, of which inputs get gradients as parameters do: record with "
            "checkpoint(.., use_reentrant=False), or without activation checkpointing"
        )
    forward = _forward(recording, _evaluated(recording))
    passes = _passes(_evaluated(recording), gradients, forward)
    windows = _annotated(recording, annotation) or _between(recording, passes, forward)
    return [step for step in (_step(recording, window, passes, forward) for window in windows) if step is not None]


def are_told(recording: Recording, annotation: str | None) -> bool:
    """Whether anything but backward itself tells steps apart."""
    return bool(_updates(recording) or _annotated(recording, annotation))


def is_gradient(name: str) -> bool:
    """Whether an operator of that name puts a gradient into its place."""
    return name.endswith(GRADIENT) and not name.startswith(EVALUATED)


def _evaluated(recording: Recording) -> list[Event]:
    """Functions that autograd evaluates, outermost ones; in recordings without them, gradients themselves."""
    functions = [event for event in recording.operators if event.name.startswith(EVALUATED)]
    functions = functions or [event for event in recording.operators if is_gradient(event.name)]
    outer: list[Event] = []
    for event in functions:
        if not outer or event.end > outer[-1].end:
            outer.append(event)
    return outer


def _forward(recording: Recording, evaluated: Sequence[Event]) -> list[Event]:
    """Operators outside of backward that have a sequence number (all, if none has), on the thread with most of them."""
    starts, ends = [event.start for event in evaluated], [event.end for event in evaluated]
    outside = []
    numbered = any(event.sequence is not None and event.sequence >= 0 for event in recording.operators)
    for event in recording.operators:
        if not numbered or (event.sequence is not None and event.sequence >= 0):
            place = bisect_right(starts, event.start) - 1
            if place < 0 or event.start >= ends[place]:
                outside.append(event)
    if not outside:
        return []
    thread = Counter(event.thread for event in outside).most_common(1)[0][0]
    return [event for event in outside if event.thread == thread]


def _passes(evaluated: Sequence[Event], gradients: Sequence[Event], forward: Sequence[Event]) -> list[_Backward]:
    """Backward passes that make gradients."""
    begins = [event.start for event in forward]
    passes: list[_Backward] = []
    for event in evaluated:
        same = passes and bisect_left(begins, passes[-1].end) == bisect_left(begins, event.start)
        if same:
            passes[-1].functions.append(event)
            passes[-1] = passes[-1]._replace(end=max(passes[-1].end, event.end))
        else:
            passes.append(_Backward(event.start, event.end, [event], []))
    starts = [each.start for each in passes]
    for gradient in gradients:
        place = bisect_right(starts, gradient.start) - 1
        if place >= 0:
            passes[place].gradients.append(gradient)
    return [each for each in passes if each.gradients]


def _annotated(recording: Recording, annotation: str | None) -> list[tuple[float, float]]:
    """What the steps span that were annotated, in order."""
    spans = [event for event in recording.annotations if _is_step(event.name, annotation)]
    if annotation is not None and not spans:
        names = sorted({re.sub(r"\d+", "0", event.name) for event in recording.annotations})
        known = ", ".join(names[:8]) or "none"
        raise InputError(
            f"trace {recording.where}: --step-annotation {annotation}: no such annotation; it has: {known}"
        )
    for before, after in pairwise(spans):
        if after.start < before.end - SLACK:
            raise InputError(
                f"trace {recording.where}: annotations {before.name} and {after.name} overlap, and each is to be a "
                "step: name what spans one step each by --step-annotation"
            )
    return [(event.start, event.end) for event in spans]


def _is_step(name: str, annotation: str | None) -> bool:
    if annotation is None:
        return STEP.fullmatch(name) is not None
    return name == annotation or (name.startswith(annotation) and name[len(annotation) :].lstrip("# ").isdecimal())


def _between(recording: Recording, passes: Sequence[_Backward], forward: Sequence[Event]) -> list[tuple[float, float]]:
    """From the end of what came before to the end of each update: a step has all passes until then.

    If no optimizer's step was recorded, setting gradients to zero tells steps apart; without that, each pass is a step.
    """
    updates = _updates(recording)
    apart = [event.start for event in updates if event.name.startswith(STEPPED)] or [each.start for each in updates]
    begins = [event.start for event in _beside(forward, updates)]
    starts = [each.start for each in passes]
    windows: list[tuple[float, float]] = []
    begun = min([*starts[:1], *begins[:1]], default=0.0)
    for each, following in zip(passes, [*starts[1:], float("inf")], strict=True):
        if apart and bisect_left(apart, each.start) == bisect_left(apart, following):
            continue  # its update has not come yet
        place = bisect_left(begins, each.end)
        until = min(begins[place], following) if place < len(begins) else following
        end = max([each.end, *(u.end for u in updates if each.end <= u.start and u.end <= until)])
        windows.append((begun, end))
        begun = end
    return windows


def _updates(recording: Recording) -> list[Event]:
    """What optimizers did, in order; of a step in another's, as of an optimizer that wraps one, the outer one."""
    outer: list[Event] = []
    for event in recording.annotations:
        if UPDATE.match(event.name) and (not outer or event.end > outer[-1].end):
            outer.append(event)
    return outer


def _beside(forward: Sequence[Event], updates: Sequence[Event]) -> list[Event]:
    """Operators of forward that belong to no update."""
    return [each for each in forward if not any(update.start <= each.start < update.end for update in updates)]


def _step(
    recording: Recording, window: tuple[float, float], passes: Sequence[_Backward], forward: Sequence[Event]
) -> Step | None:
    """The step in a window; None if no backward pass begins there, as in the last one of a recording."""
    start, end = window
    inside = [each for each in passes if start <= each.start < end]
    if not inside:
        return None
    if len(inside) > 1:
        raise InputError(
            f"trace {recording.where}: the step {start:.6f} to {end:.6f} s has {len(inside)} backward passes "
            "(micro-batches, or several losses): a workload is of one: annotate each forward with its backward, and "
            "name the annotation by --step-annotation"
        )
    (backward,) = inside
    updates = [event for event in _updates(recording) if start <= event.start < end]
    # zero_grad() may lie before forward, or between forward and backward, as in many loops; it is part of neither
    before = [each for each in updates if each.end <= backward.start]
    first = next((each.start for each in _beside(forward, before) if each.start >= start), backward.start)
    begin = recording.clock.reached(max([start, *(each.end for each in before if each.start <= first)]))
    between = sum(
        recording.clock.reached(each.end) - recording.clock.begun(each.start, each.end)
        for each in before
        if each.start > first
    )
    middle = recording.clock.reached(backward.start)
    needs = _needs(recording, backward, forward, start)
    ready = [
        Gradient(recording.clock.reached(event.end), need, event)
        for event, need in zip(backward.gradients, needs, strict=True)
    ]
    ready.sort(key=lambda gradient: gradient.ready)
    return Step(
        start=start,
        whole=end - start,
        forward=middle - begin - between,
        backward=ready[-1].ready - middle,
        update=sum(recording.clock.reached(each.end) - recording.clock.begun(each.start, each.end) for each in updates),
        gradients=tuple(
            Gradient(each.ready - begin, None if each.need is None else each.need - begin, each.event) for each in ready
        ),
        updated=any(event.name.startswith(STEPPED) for event in updates),
        functions=frozenset(event.name.removeprefix(EVALUATED) for event in backward.functions),
    )


def _needs(recording: Recording, backward: _Backward, forward: Sequence[Event], start: float) -> list[float | None]:
    """When forward needs the parameter of each gradient; None if the recording doesn't join it with an operator."""
    begun: dict[int, float] = defaultdict(float)
    for event in forward:
        if start <= event.start < backward.start and event.sequence is not None:
            begun[event.sequence] = max(begun[event.sequence], event.start)  # the innermost operator makes the function
    inside = [
        event
        for event in recording.operators
        if event.sequence is not None and event.sequence >= 0 and backward.start <= event.start <= backward.end
    ]
    starts = [event.start for event in inside]
    needs: list[float | None] = []
    for gradient in backward.gradients:
        place = bisect_left(starts, gradient.start) - 1
        sequence = inside[place].sequence if place >= 0 else None
        needs.append(recording.clock.reached(begun[sequence]) if sequence is not None and sequence in begun else None)
    return needs
