"""Draw a trace as a timeline like the papers' schematic figures: a row per lane, a block of rows per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gradsync.check import check
from gradsync.costs import Linear, MessageCost, alpha_beta
from gradsync.drawing import style
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.kernels import KERNELS
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Layer, Workload

COLOURS = {
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "local": "#999999",
    "message": "#D55E00",
    "waiting for other ranks": "#F2C9A9",
    "shared memory": "#CC79A7",
}
KIND = {
    "need": "forward",
    "ready": "backward",
    "local": "local",
    "shared_read": "shared memory",
    "shared_add": "shared memory",
}
WAITING = "waiting for other ranks"  # the beginning of a message
NARROWEST_LABEL = 0.012  # share of the axis


def load(text: str, where: str, workload: str | None, cost: MessageCost | None) -> Trace:
    """A trace from a trace file, or from a plan file by simulating it (on unit times if no others are given).

    Raises InputError for a file that is neither, PlanError for a plan that must not run.
    """
    content = reading.parse_json(text, f"{where}: neither a plan nor a trace")
    if isinstance(content, dict) and "spans" in content:
        return Trace.from_json(text, where)
    plan = Plan.from_json(text, where)
    check(plan)
    times = Workload.load(workload) if workload else unit_workload(plan)
    message = cost or Linear(0.3, 0.8 * times.backward_seconds / times.bytes, "one unit a gradient")
    return simulate(plan, times, alpha_beta.around(message, plan.ranks))


def unit_workload(plan: Plan) -> Workload:
    """One second of backward per gradient, half of it forward; kernels take no time."""
    layers = tuple(
        Layer(name=tensor.name, bytes=4 * (tensor.stop - tensor.start), backward_seconds=1.0, forward_seconds=0.5)
        for tensor in plan.tensors
    )
    return Workload(name="units", forward_seconds=0.5 * len(layers), layers=layers, kernels=dict.fromkeys(KERNELS, 0.0))


def message_labels(plan: Plan) -> dict[str, str]:
    """Operation -> label: a message is labelled with the layers that it carries."""
    labels = {}
    for op, names in zip(plan.communications(), plan.messages(), strict=True):
        short = [name.removeprefix("layer ") for name in names]
        labels[op.name] = "+".join(short) if len(short) <= 3 else f"{short[0]}..{short[-1]}"
    return labels


def draw(trace: Trace, output: Path, *, ranks: Sequence[int] | None = None, turn: int | None = None) -> None:
    """Draw a trace into a file; raises InputError if nothing would be drawn."""
    style.use()
    shown = [rank for rank in trace.ranks if ranks is None or rank in ranks]
    spans = [span for span in trace.spans if span.rank in shown and turn in (None, span.turn)]
    if not spans:
        raise InputError(
            f"trace {trace.name!r} holds ranks {list(trace.ranks)} and {trace.turns} turns: nothing chosen"
        )
    rows = len(shown) * len(trace.lanes)
    figure, axes = plt.subplots(figsize=(8, 1.1 + 0.34 * rows))
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    panel(axes, trace, (start, end), ranks=shown, turn=turn)
    axes.set_title(", ".join(part for part in (trace.name, trace.rung, trace.note) if part))
    legend(figure, trace)
    style.save(figure, output)
    plt.close(figure)


def legend(figure: Figure, trace: Trace) -> None:
    """A legend of the colours, below all axes."""
    used = {KIND.get(span.verb, "message") for span in trace.spans if span.end > span.start + span.waited}
    used |= {WAITING for span in trace.spans if span.waited > 0}
    patches = [Patch(color=colour, label=name) for name, colour in COLOURS.items() if name in used]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))


def panel(
    axes: Axes,
    trace: Trace,
    window: tuple[float, float],
    *,
    ranks: Sequence[int] = (0,),
    turn: int | None = None,
    labels: Mapping[str, str] | None = None,
    unit: str = "s",
) -> None:
    """Draw the spans inside `window` (seconds) into `axes`; time starts at 0 there."""
    rows = [(rank, lane) for rank in ranks for lane in trace.lanes]
    place = {row: len(rows) - 1 - i for i, row in enumerate(rows)}
    width = max(window[1] - window[0], 1e-12)
    for span in trace.spans:
        if (span.rank, span.lane) not in place or turn not in (None, span.turn):
            continue
        left, right = max(span.start, window[0]), min(span.end, window[1])
        if right <= left:
            continue
        y = place[span.rank, span.lane]
        begun = min(max(span.start + span.waited, left), right)
        for colour, low, high in ((WAITING, left, begun), (KIND.get(span.verb, "message"), begun, right)):
            if high > low:
                axes.broken_barh(
                    [(low - window[0], high - low)],
                    (y - 0.36, 0.72),
                    facecolor=COLOURS[colour],
                    edgecolor="white",
                    linewidth=0.5,
                )
        label = (labels or {}).get(span.operation, _short(span.operation))
        if (right - begun) / width > NARROWEST_LABEL * max(1, len(label)):
            axes.text(
                (begun + right) / 2 - window[0],
                y,
                label,
                ha="center",
                va="center",
                fontsize=7,
                color="white",
                clip_on=True,
            )
    axes.set_yticks(
        [place[row] for row in rows], [lane if len(ranks) == 1 else f"{rank}: {lane}" for rank, lane in rows]
    )
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, width)
    axes.set_xlabel(f"time [{unit}]")
    axes.grid(axis="y", visible=False)


def _short(operation: str) -> str:
    return operation.removeprefix("ready:").removeprefix("layer ")


def period(trace: Trace, rank: int = 0) -> tuple[float, float]:
    """The steady iteration of a trace, and a little of the next."""
    start, end = trace.window(rank)
    return start, end + 0.12 * (end - start)
