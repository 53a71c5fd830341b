"""Section 6.2: a chip in parts, each with its own copy of weights and data in fast memory. Fig. 12.

Measured are the launches of `elastic` by the scheme `chip_parts`: each worker is a part of this machine, bound to cores
of its own, and gradients are summed in shared memory.

Simulated is the paper's KNL: p parts have 68/p cores each. Forward and backward of one batch on c cores take s +
(1 - s)/c of what they take on one core (Amdahl); a part's batch is a whole one or 1/p of one. The accuracy takes as
many samples, or as many iterations, however many parts there are. Times are in proportion to the 1605 s of one part.

Differs from the paper: simulated, the tree that sums the parts' gradients takes no time, since the iterations to the
accuracy, and so the seconds of one, are not published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.clusters import chip
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.easgd_knl.names import CHIP_PARTS, TARGETS_OF_PARTS
from gradsync.papers.easgd_knl.testbed import bench, label, points
from gradsync.papers.easgd_knl.training_runs import OBSERVED, Run, longest, runs
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, text
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed

PARTS = (1, 4, 8, 16)
ONE_MORE = 17  # copies that fit as well (EA-E06)
BAND = ("serial", "progress", "batch_of_a_part")
FITTED = "fitted"
MEASURED = ("iterations", "iteration_seconds", "seconds")
COLUMNS = [
    *("rung", "scheme", "model", "parts", "assumption", "data", LAUNCH, REPEATS, "accuracy"),
    *columns(*MEASURED),
    *(f"{OBSERVED}{column}" for column in MEASURED[1:]),
    "note",
]


def copies(settings: Settings, results: Path) -> Table:
    """A row per number of copies: their bytes, and whether the fast memory holds them."""
    file = bench(settings)
    a_copy = file.number("weights_bytes", "value", "alexnet") + file.number("cifar_copy_bytes", "value")
    memory = file.number("knl", "mcdram_bytes", "value")
    rows: list[dict[str, Any]] = [
        {
            "rung": "derived",
            "parts": parts,
            "bytes": parts * a_copy,
            "fits": int(_fits(parts, file)),
            "published_seconds": file.number("fig12_seconds", "value", parts) if parts in PARTS else None,
            "note": "" if parts in PARTS else "the paper has no time of so many parts",
        }
        for parts in (*PARTS, ONE_MORE)
    ]
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "copies": frame.parts,
            "bytes [GB]": (frame.bytes / 1e9).map("{:.3f}".format),
            "in fast memory": frame.fits.map({1: "yes", 0: "no"}),
            "published time [s]": frame.published_seconds.map(lambda each: "-" if pd.isna(each) else f"{each:g}"),
        }
    )
    caption = (
        f"Section 6.2: copies of AlexNet's weights and of the Cifar data, each as large as the paper says, in the "
        f"{memory / 1e9:g} GB of MCDRAM. {ONE_MORE} fit as well (EA-E06)."
    )
    return Table(frame, display, caption)


def _fits(parts: int, file: Testbed) -> bool:
    weights, data = file.number("weights_bytes", "value", "alexnet"), file.number("cifar_copy_bytes", "value")
    try:
        chip.refuse_copies(parts, weights, data, file.number("knl", "mcdram_bytes", "value"), "knl")
    except InputError:
        return False
    return True


def fig12(settings: Settings, results: Path) -> Table:
    """A row per number of parts as published, one at each point of the band, and one of each launch."""
    file = bench(settings)
    base = {"data": "cifar10", "accuracy": file.number("target_accuracy", "value", "fig12")}
    base |= {"iterations": None, "iteration_seconds": None}  # not published
    rows: list[dict[str, Any]] = [
        {"rung": "published", "parts": parts, **base, "seconds": file.number("fig12_seconds", "value", parts)}
        for parts in PARTS
    ]
    for point in points(file, *BAND):
        for parts in PARTS:
            seconds = _seconds(parts, file, point)
            rows.append({"rung": "simulated", "parts": parts, "assumption": label(**point), **base, "seconds": seconds})
    rows += map(_measured, longest(runs(settings, results, [CHIP_PARTS], "cifar10")))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["assumption"] = frame.assumption.fillna("")
    simulated = frame[frame.rung == "simulated"]
    table = simulated.assign(shown=simulated.seconds.map("{:.0f}".format))
    display = table.pivot_table(index="assumption", columns="parts", values="shown", aggfunc="first", sort=False)
    as_published = frame[frame.rung == "published"].set_index("parts").seconds.map("{:.0f}".format)
    display = pd.concat([as_published.rename("published").to_frame().T, display]).rename(columns="{} parts".format)
    measured = frame[frame.rung == "measured"]
    if len(measured):
        cells_of = {row.parts: _seconds_shown(row) for _, row in measured.iterrows()}
        display = pd.concat([display, pd.Series(cells_of, name="measured").rename("{} parts".format).to_frame().T])
        display = display[sorted(display.columns, key=lambda name: int(str(name).split()[0]))]
    caption = (
        f"Fig. 12: seconds to an accuracy of {base['accuracy']:g} on Cifar by parts of the chip, simulated in "
        "proportion to the published time of one part. serial: the share of forward and backward of a batch that more "
        "cores do not speed up. The sum of the parts' gradients takes no time there."
        + (f" Measured here: to an accuracy of {measured.accuracy.iloc[0]:g}." if len(measured) else "")
    )
    return Table(frame, display.fillna("-").reset_index(names="assumption"), caption)


def _measured(run: Run) -> dict[str, Any]:
    """The row of a launch whose workers are the parts; a seed that does not get there leaves its times empty.

    A plan divides the sum of the gradients by the number of parts. At p times the rate of one part the sum is applied,
    as in the paper (EA-E07), so launches of one rate of a part are compared.
    """
    parts, batch = run.launch.workers, run.launch.batch
    target = TARGETS_OF_PARTS[run.launch.data]
    row = {key: value for key, value in run.keys.items() if key in COLUMNS}
    row |= {"parts": parts, "accuracy": target}
    row["assumption"] = label(learning_rate_of_a_part=f"{run.launch.lr / parts:g}", batch_of_a_part=f"{batch}")
    row |= run.timed("iteration_seconds", run.result.samples["iteration_seconds"])
    there = [each for each in run.reached(1 - target) if each is not None]
    if len(there) < len(run.seeds):
        return row | {"note": f"{len(there)} of {len(run.seeds)} seeds get to an accuracy of {target:g}"}
    row |= cells("iterations", [iterations for iterations, _ in there])
    return row | run.timed("seconds", (seconds for _, seconds in there))


def _seconds_shown(row: pd.Series) -> str:
    seen = row[f"{OBSERVED}seconds"]
    return f"[{seen:.1f}]" if pd.isna(row.seconds) and pd.notna(seen) else text(row, "seconds", ".1f")


def _seconds(parts: int, file: Testbed, point: dict[str, str]) -> float:
    """Time to the accuracy: iterations times the time of one, in proportion to those of one part."""
    serial = file.number("serial", "fitted_share") if point["serial"] == FITTED else float(point["serial"])
    cores = file.positive("knl", "cores", "value")
    samples = 1.0 if point["batch_of_a_part"] == "whole" else 1 / parts  # of a part, in batches
    iterations = 1 / (parts * samples) if point["progress"] == "samples" else 1.0
    # s + (1 - s) / c
    iteration, alone = samples * (serial + (1 - serial) * parts / cores), serial + (1 - serial) / cores
    return file.number("fig12_seconds", "value", 1) * iterations * iteration / alone
