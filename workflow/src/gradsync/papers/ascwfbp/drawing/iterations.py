"""Table IV and Fig. 6 of the ASC-WFBP paper, and what goes beyond it, as bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.ascwfbp import iterations
from gradsync.papers.ascwfbp.testbed import MODELS, SCHEMES
from gradsync.papers.labels import labels
from gradsync.papers.table import file, read

WIDTH = 0.27
MARKS = {iterations.PAIRWISE: "v", iterations.GAMMA: "o", iterations.FULL: "s"}
CONTENTION = {
    iterations.PAIRWISE: "the paper's pairwise gamma",
    iterations.GAMMA: "a link that carries 2 / gamma messages",
    iterations.FULL: "a link that one message fills",
}
COMPUTATION, COMMUNICATION, WAITING = "#0072B2", "#D55E00", "#F2C9A9"
ON = {"emulated": "hosts", "measured": "ranks"}
SHORT = {"wfbp": "WF.", "mgwfbp": "M.W.", "ascwfbp": "ASC"}


def table4(settings: Settings, results: Path) -> Drawn:
    """Iterations of Table IV as bars, simulated ones as marks: on the left a is as stated, on the right as fitted."""
    frame = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    figure, grid = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True)
    for axes, startup in zip(grid, (iterations.STATED, iterations.FITTED), strict=True):
        for place, model in enumerate(MODELS):
            for number, scheme in enumerate(SCHEMES):
                at = frame[(frame.model == model) & (frame.scheme == scheme)]
                x = place + WIDTH * (number - 1)
                published = at[at.rung == "published"].iteration_seconds.iloc[0]
                axes.bar(x, published, 0.92 * WIDTH, color=f"C{number}", alpha=0.45, linewidth=0)
                for offset, (contention, marker) in zip((-0.085, 0.0, 0.085), MARKS.items(), strict=True):
                    point = iterations.Assumed(contention, startup, iterations.CENTRE)
                    seconds = at[at.assumption == str(point)].iteration_seconds
                    axes.plot(x + offset, seconds.iloc[0], marker, color=f"C{number}", markeredgecolor="black")
                emulated_rows = at[(at.rung == "emulated") & at.iteration_seconds.notna()]
                axes.plot(
                    [x] * len(emulated_rows),
                    emulated_rows.iteration_seconds,
                    "^",
                    color="white",
                    markeredgecolor="black",
                )
        axes.set_xticks(range(len(MODELS)), MODELS.values())
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("iteration [s]")
        axes.tick_params(labelleft=True)
        axes.set_title(f"Table IV: bars published, marks simulated; a {startup}", loc="left")
    handles: list[Patch | Line2D] = [
        Patch(color=f"C{i}", alpha=0.45, label=labels(settings)(scheme)) for i, scheme in enumerate(SCHEMES)
    ]
    mark: dict[str, Any] = {"linestyle": "", "color": "#bbbbbb", "markeredgecolor": "black"}
    handles += [Line2D([], [], marker=MARKS[kind], label=label, **mark) for kind, label in CONTENTION.items()]
    emulated = frame[(frame.rung == "emulated") & frame.iteration_seconds.notna()]
    if not emulated.empty:
        of = emulated.drop_duplicates("model").set_index("model").workers
        hosts = ", ".join(f"{of[model]:.0f}" for model in MODELS if model in of)
        mark |= {"marker": "^", "color": "white", "label": f"emulated here, on {hosts} hosts"}
        handles.append(Line2D([], [], **mark))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure, frame


def fig6(settings: Settings, results: Path) -> Drawn:
    """Computation and exposed communication: panels for published, simulated, emulated and measured iterations."""
    frame = read(file(results, "ascwfbp", "fig6"), iterations.COLUMNS)
    known = frame[frame.exposed_communication_seconds.notna() & frame.scheme.isin(SCHEMES)]
    shown = {"published": known[known.rung == "published"]}
    for contention in (iterations.PAIRWISE, iterations.FULL):
        point = str(iterations.Assumed(contention, iterations.STATED, iterations.CENTRE))
        shown[f"simulated, a stated: {CONTENTION[contention]}"] = known[known.assumption == point]
    shown |= {f"{rung} here": known[known.rung == rung] for rung in ("emulated", "measured")}
    shown = {title: part for title, part in shown.items() if not part.empty and part.computation_seconds.notna().any()}
    columns = 2
    lines = -(-len(shown) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(10.5, 0.6 + 2.7 * lines), squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, (title, part) in zip(grid.flat, shown.items(), strict=False):
        _bars(axes, part)
        axes.set_title(f"Fig. 6, {title}", loc="left")
    handles = [Patch(color=COMPUTATION, label="computation (forward and backward)")]
    if any((part.waiting_seconds > 0).any() for part in shown.values()):
        handles.append(Patch(color=WAITING, label="waiting for other ranks"))
    handles.append(Patch(color=COMMUNICATION, label="exposed communication"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    panels.left_out(
        figure, (f"{rung}: {_why(frame, rung)}" for rung in ("emulated", "measured") if f"{rung} here" not in shown)
    )
    return figure, frame


def _why(frame: pd.DataFrame, rung: str) -> str:
    """Why a rung has no bars: the note of its first row without a value."""
    notes = [note for note in frame.note[(frame.rung == rung) & frame.iteration_seconds.isna()] if note]
    return notes[0] if notes else "none of the models in this configuration"


def _bars(axes: Axes, part: pd.DataFrame) -> None:
    models = list(dict.fromkeys(part.model))
    for place, model in enumerate(models):
        for number, scheme in enumerate(SCHEMES):
            at = part[(part.model == model) & (part.scheme == scheme)]
            if at.empty:
                continue
            row, x = at.iloc[0], place + WIDTH * (number - 1)
            axes.bar(x, row.computation_seconds, 0.92 * WIDTH, color=COMPUTATION)
            exposed, waiting = row.exposed_communication_seconds, float(np.nan_to_num(row.waiting_seconds))
            axes.bar(x, waiting, 0.92 * WIDTH, bottom=row.computation_seconds, color=WAITING)
            axes.bar(x, exposed, 0.92 * WIDTH, bottom=row.computation_seconds + waiting, color=COMMUNICATION)
            axes.text(
                x, row.computation_seconds + waiting + exposed, SHORT[scheme], ha="center", va="bottom", fontsize=6.5
            )
    axes.set_xticks(range(len(models)), [_of(part[part.model == model].iloc[0]) for model in models])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("seconds")
    axes.margins(y=0.12)


def _of(row: pd.Series) -> str:
    """The model, and on how many hosts or ranks if those are not the paper's GPUs."""
    name = MODELS.get(row.model, row.model)
    return f"{name}\n{row.workers:.0f} {ON[row.rung]}" if row.rung in ON else name


def shared_link(settings: Settings, results: Path) -> Drawn:
    """Iterations over the model's bound on a shared link, a panel per kind of contention."""
    frame = read(file(results, "ascwfbp", "shared_link"), ["model", "scheme", "assumption", "over_model_bound"])
    kinds = (iterations.GAMMA, iterations.FULL)
    known = frame[~frame.scheme.isin(["wfbp", "single"])]  # far beyond the axis: they are in the table
    schemes = list(dict.fromkeys(known.scheme))
    figure, grid = plt.subplots(1, len(kinds), figsize=(11, 4.0), sharey=True)
    width = 0.85 / len(schemes)
    for axes, kind in zip(grid, kinds, strict=True):
        point = str(iterations.Assumed(kind, iterations.STATED, iterations.CENTRE))
        part = known[known.assumption == point].set_index(["model", "scheme"]).over_model_bound
        for number, scheme in enumerate(schemes):
            places = np.arange(len(MODELS)) + width * (number - (len(schemes) - 1) / 2)
            axes.bar(places, [part[model, scheme] for model in MODELS], 0.92 * width, color=f"C{number}")
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(MODELS)), MODELS.values())
        axes.set_ylim(0.95)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("iteration / model bound")
        axes.tick_params(labelleft=True)
        axes.set_title(f"simulated, a stated: {CONTENTION[kind]}", loc="left")
    handles = [Patch(color=f"C{i}", label=labels(settings)(scheme)) for i, scheme in enumerate(schemes)]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure, frame
