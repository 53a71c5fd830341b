"""Table V, Fig. 6 and what contradicts the stated constants: published and simulated iterations and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.files.results import TIMED
from gradsync.papers.ascwfbp import iterations
from gradsync.papers.ascwfbp.testbed import CENTRE, FORWARD, MODELS, SCHEMES, BandPoint, Bench, bench, counted, workload
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, paired, samples, text
from gradsync.papers.table import Table, file, read

ASC = "ascwfbp"
REDUCTIONS = {"reduction_over_wfbp": "wfbp", "reduction_over_mgwfbp": "mgwfbp"}  # of exposed communication
TABLE5 = [
    *("rung", "model", "assumption", "nodes", LAUNCH, REPEATS),
    *columns("speedup", "share"),
    *("largest_speedup", "note"),
]


def table5(settings: Settings, results: Path) -> Table:
    """Table V: S_max by Eq. 41 to 43, S = P (t_f + t_b) / iteration, and their ratio; a row per model and point."""
    testbed, rows = bench(settings), []
    for model in MODELS:
        published = testbed.file.number("speedup", "value", model)
        largest = testbed.file.number("largest_speedup", "value", model)
        row = {"rung": "published", "model": model, "assumption": "", "nodes": testbed.nodes}
        row |= {"speedup": published, "largest_speedup": largest}
        rows.append({**row, "share": published / largest, "note": ""})
        for point in (BandPoint(forward=forward) for forward in FORWARD):
            largest = testbed.largest_speedup(model, point, _parameters(model, results))
            row = {"rung": "derived", "model": model, "assumption": str(point), "nodes": testbed.nodes}
            rows.append({**row, "largest_speedup": largest, "note": ""})
    iteration_rows = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    for _, iteration in iteration_rows[
        (iteration_rows.scheme == ASC) & (iteration_rows.rung != "published")
    ].iterrows():
        row = {key: iteration[key] for key in ("rung", "model", "assumption", "nodes", LAUNCH, REPEATS, "note")}
        if iteration.model in MODELS and pd.notna(iteration.iteration_seconds):
            row |= _speedups(iteration, testbed, results)
        if iteration.model in MODELS:
            rows.append(row)
    frame = pd.DataFrame(rows)
    frame = frame.reindex(columns=TABLE5).astype({LAUNCH: object})
    frame = pd.concat([frame, pd.DataFrame(_means(frame, testbed), columns=TABLE5)], ignore_index=True)
    frame = frame.fillna({"note": "", LAUNCH: ""})
    caption = (
        "Table V: the largest speed-up over one GPU that the link allows, S_max (Eq. 41 to 43, t_c_min from the "
        "parameters counted here: derived), that of ASC-WFBP, S, and S/S_max. Published: as printed; 95.4 % of "
        "ResNet-152 is of rounded values, 95.0 % of unrounded ones (ASC-E34). t_f + t_b of the other models is itself "
        "derived from S. In brackets 95 % of what was timed, pair by pair where it ran in turn in one launch. "
        "Simulated: as Table IV, at the middle of the band; above 100 % the pairwise model sends faster than the link "
        "does (ASC-E32). Emulated: S_max of its own hosts and their links, of which a ring carries (P - 1) / P of what "
        "Eq. 41 has; a host stands for four GPUs. Measured: S alone, since the rate of the links is not known."
    )
    return Table(frame, _table5_display(frame), caption)


def _speedups(iteration: pd.Series, testbed: Bench, results: Path) -> dict[str, Any]:
    """S and S_max over one GPU: those of the testbed, or of the hosts and links of the run."""
    if iteration.rung == "simulated":
        gpus = testbed.workers
        largest = testbed.largest_speedup(
            iteration.model, _point(iteration.assumption), _parameters(iteration.model, results)
        )
    elif iteration.rung == "emulated":
        gpus_per_host = testbed.workers / testbed.nodes  # a host stands for all GPUs of a node
        gpus, largest = gpus_per_host * iteration.workers, gpus_per_host * iteration.largest_speedup
    else:
        gpus, largest = iteration.workers, np.nan  # the rate of their links is not known
    speedup = gpus * iteration.computation_seconds / iteration.iteration_seconds
    row: dict[str, Any] = {"speedup": speedup, "largest_speedup": largest, "share": speedup / largest}
    seconds, alone = samples(iteration, "iteration_seconds"), samples(iteration, "computation_seconds")
    if iteration.rung == "emulated":
        alone = np.full(len(seconds), iteration.computation_seconds)  # it is replayed
    if len(alone) == len(seconds):
        row |= cells("speedup", gpus * alone / seconds) | cells("share", gpus * alone / seconds / largest)
    return row


def _means(frame: pd.DataFrame, testbed: Bench) -> Iterator[dict[str, Any]]:
    """The mean share if all models have one, as likely in its interval as that of each model in its own."""
    on_all_nodes = frame[frame.share.notna() & (frame.nodes == testbed.nodes)]
    for (rung, assumption), shares in on_all_nodes.groupby(["rung", "assumption"], sort=False):
        if len(shares) == len(MODELS):
            row = {"rung": rung, "model": "mean", "assumption": assumption, "nodes": testbed.nodes, "note": ""}
            # if an end of any interval is not known, that of the mean is not known either
            mean = shares[["share", "share_low", "share_high"]].astype(float).mean(skipna=False)
            yield row | {REPEATS: shares[REPEATS].min(skipna=False), **mean}


def _parameters(model: str, results: Path) -> float:
    """The number of parameters by the model's definition, not by Table III."""
    return counted(model, results).bytes / 4


def _point(assumption: str) -> BandPoint:
    """The point of the band in a label of Table IV; rows without one are at the centre."""
    return next((each.point for each in iterations.BAND if str(each) == assumption), CENTRE)


def _table5_display(frame: pd.DataFrame) -> pd.DataFrame:
    labels = {("published", ""): "published"}
    labels |= {("simulated", str(each)): f"{each.contention}, a {each.startup}" for each in iterations.SHOWN}
    labels |= {("emulated", ""): "emulated"}
    rows = []
    for (rung, assumption), label in labels.items():
        part = frame[(frame.rung == rung) & (frame.assumption == assumption) & frame.share.notna()]
        # of several launches the one with most nodes counts
        part = part.sort_values("nodes", kind="stable", na_position="first")
        if part.empty:
            continue
        row = {"": label}
        for _, cell in part.iterrows():
            ratio = text(cell, "share", ".1%") if rung in TIMED else f"{cell.share:.1%}"
            hosts = f", {cell.nodes:.0f} hosts" if rung == "emulated" else ""
            row[MODELS.get(cell.model, cell.model)] = (
                ratio if pd.isna(cell.speedup) else f"{cell.speedup:.1f} / {cell.largest_speedup:.1f}: {ratio}{hosts}"
            )
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")


def fig6(settings: Settings, results: Path) -> Table:
    """Fig. 6: computation and exposed communication; the rows of Table IV, and by how much a scheme exposes less."""
    iteration_rows = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    frame = iteration_rows[iteration_rows.rung.ne("simulated") | iteration_rows.scheme.isin(SCHEMES)].copy()
    keys = ["rung", "launch", "model", "assumption"]
    exposed = frame.drop_duplicates([*keys, "scheme"]).set_index([*keys, "scheme"]).exposed_communication_seconds
    for name, other_scheme in REDUCTIONS.items():
        compared = exposed.reindex(pd.MultiIndex.from_frame(frame[keys].assign(scheme=other_scheme))).to_numpy()
        frame[name] = 1 - frame.exposed_communication_seconds / np.where(compared > 0, compared, np.nan)
        frame[columns(name)] = _pairs(frame, keys, name, other_scheme)
    caption = (
        "Fig. 6: computation + exposed communication of an iteration in ms, and by how much less MG-WFBP exposes than "
        "WFBP and ASC-WFBP than MG-WFBP; of what was timed, in brackets 95 %, pair by pair. Published: Table IV less "
        "t_f + t_b (ResNet-152) and what Table V gives for it (the others); the bars are only drawn. The prose has "
        "more than 65 % for MG-WFBP on the three CNNs, which would need more computation than a whole iteration of "
        "ASC-WFBP takes (ASC-E30), and 22 to 74 % for ASC-WFBP (ASC-E31). Simulated: as Table IV."
    )
    return Table(frame, _fig6_display(frame), caption)


def _pairs(frame: pd.DataFrame, keys: list[str], name: str, other_scheme: str) -> pd.DataFrame:
    """The column of a reduction with its interval and repeats, which it has if both ran in turn in one launch."""
    # of rows with the same keys the first counts
    others = {tuple(row[keys]): row for _, row in frame[frame.scheme == other_scheme].iloc[::-1].iterrows()}
    rows = []
    for _, row in frame.iterrows():
        reduction, other = {name: row[name]}, others.get(tuple(row[keys]))
        if row.rung in TIMED and other is not None:
            reduction |= cells(name, paired(_reduction, row, other, "exposed_communication_seconds"))
        rows.append(reduction)
    return pd.DataFrame(rows, columns=columns(name), index=frame.index)


def _reduction(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """By which share less is exposed; empty if any of the pairs exposes nothing."""
    return 1 - mine / theirs if (theirs > 0).all() else np.array([])


def _fig6_display(frame: pd.DataFrame) -> pd.DataFrame:
    shown = {str(each): f"{each.contention}, a {each.startup}" for each in iterations.SHOWN}
    known = frame[frame.exposed_communication_seconds.notna() & frame.computation_seconds.notna()]
    known = known[known.rung.ne("simulated") | known.assumption.isin(shown)]
    rows = []
    for (rung, assumption, model), part in known.groupby(["rung", "assumption", "model"], sort=False):
        row = {"model": MODELS.get(str(model), str(model)), "rung": str(rung)}
        row["assumed"] = shown.get(str(assumption), "")
        for _, cell in part[part.scheme.isin(SCHEMES)].iterrows():
            reduction = {"mgwfbp": "reduction_over_wfbp", ASC: "reduction_over_mgwfbp"}.get(cell.scheme)
            exposed, times = "exposed_communication_seconds", f"{1e3 * cell.computation_seconds:.0f} + "
            timed = cell.rung in TIMED
            times += text(cell, exposed, ".0f", 1e3) if timed else f"{1e3 * cell[exposed]:.0f}"
            if reduction is None or pd.isna(cell[reduction]):
                row[cell.scheme] = times
            else:
                less = text(cell, reduction, ".0%") if timed else f"{cell[reduction]:.0%}"
                row[cell.scheme] = f"{times}, {less} less"
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")


def constants(settings: Settings, results: Path) -> Table:
    """What a, b and t_f + t_b imply, and Table IV: the paper's constants against its own measurements."""
    testbed, rows = bench(settings), []
    for model in MODELS:
        for forward in FORWARD:
            point = BandPoint(forward=forward)
            computation = workload(model, settings, results, point)
            sizes, ready = computation.sizes(), computation.ready_seconds()
            wfbp = testbed.published("wfbp", model)
            wire = testbed.b * float(sizes.sum())
            row: dict[str, Any] = {
                "rung": "derived",
                "model": model,
                "nodes": testbed.nodes,
                "assumption": str(point),
            }
            row |= {"computation_seconds": testbed.computation(model)}
            row |= {f"published_{scheme}_seconds": testbed.published(scheme, model) for scheme in SCHEMES}
            row |= {
                "serial_seconds": testbed.a * len(sizes) + wire,  # Eq. 4
                "serial_over_wfbp": (testbed.a * len(sizes) + wire) / wfbp,
                # all gradients in one message once backward is through
                "one_message_seconds": float(ready[-1]) + testbed.a + wire,
                "mgwfbp_over_one_message": testbed.published("mgwfbp", model) / (float(ready[-1]) + testbed.a + wire),
                "largest_startup_seconds": (wfbp - float(ready[0]) - wire) / len(sizes),
                "fitted_startup_seconds": iterations.startup_of(testbed, model, computation, iterations.FITTED).a,
                "note": "",
            }
            rows.append(row)
    frame = pd.DataFrame(rows)
    middle = frame[frame.assumption == str(CENTRE)]
    display = pd.DataFrame(
        {
            "model": middle.model.map(MODELS),
            "Eq. 4, all tensors [s]": middle.serial_seconds.map("{:.3f}".format),
            "WFBP, published [s]": middle.published_wfbp_seconds.map("{:.3f}".format),
            "one message after backward [s]": middle.one_message_seconds.map("{:.3f}".format),
            "MG-WFBP, published [s]": middle.published_mgwfbp_seconds.map("{:.3f}".format),
            "over one message": middle.mgwfbp_over_one_message.map("{:.3f}".format),
            "a that WFBP allows [ms]": (1e3 * middle.largest_startup_seconds).map("{:.2f}".format),
            "a that fits WFBP [ms]": (1e3 * middle.fitted_startup_seconds).map("{:.2f}".format),
        }
    )
    caption = (
        f"The constants against Table IV: with a = {1e3 * testbed.a:g} ms and b = {1e9 * testbed.b:g} ns/B the serial "
        "communication of Eq. 4 alone is longer than the measured iteration of WFBP (ASC-E28), and one single message "
        "after backward would be faster than the measured MG-WFBP, which by its own model is no slower than that "
        "(ASC-E29); it is so close to it that it may have sent little else, which Algorithm 1 of that paper does where "
        "backward takes less than a for each tensor. A start-up that WFBP allows: nothing but the first gradient's "
        "computation before its messages."
    )
    return Table(frame, display, caption)
