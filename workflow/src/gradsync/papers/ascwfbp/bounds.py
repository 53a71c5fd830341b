"""Table V, Fig. 6 and what the stated constants can't give: published and simulated iterations against their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.files.results import TIMED
from gradsync.papers.ascwfbp import iterations
from gradsync.papers.ascwfbp.testbed import CENTRE, FORWARD, MODELS, SCHEMES, Bench, Point, bench, counted, workload
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
    """Table V: S_max by Eq. 41 to 43, S = P (t_f + t_b) / iteration, and their ratio; a row a model and point."""
    testbed, rows = bench(settings), []
    for model in MODELS:
        published = testbed.file.number("speedup", "value", model)
        largest = testbed.file.number("largest_speedup", "value", model)
        row = {"rung": "published", "model": model, "assumption": "", "nodes": testbed.nodes}
        row |= {"speedup": published, "largest_speedup": largest}
        rows.append({**row, "share": published / largest, "note": ""})
        for point in (Point(forward=forward) for forward in FORWARD):
            largest = testbed.largest_speedup(model, point, _parameters(model, results))
            row = {"rung": "derived", "model": model, "assumption": str(point), "nodes": testbed.nodes}
            rows.append({**row, "largest_speedup": largest, "note": ""})
    found = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    for _, at in found[(found.scheme == ASC) & (found.rung != "published")].iterrows():
        row = {key: at[key] for key in ("rung", "model", "assumption", "nodes", LAUNCH, REPEATS, "note")}
        if at.model in MODELS and pd.notna(at.iteration_seconds):
            row |= _speedups(at, testbed, results)
        if at.model in MODELS:
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


def _speedups(at: pd.Series, testbed: Bench, results: Path) -> dict[str, Any]:
    """S and S_max over one GPU: those of the testbed, or of the hosts and links that something ran on."""
    if at.rung == "simulated":
        gpus = testbed.workers
        largest = testbed.largest_speedup(at.model, _point(at.assumption), _parameters(at.model, results))
    elif at.rung == "emulated":
        a_host = testbed.workers / testbed.nodes  # which stands for all GPUs of a node
        gpus, largest = a_host * at.workers, a_host * at.largest_speedup
    else:
        gpus, largest = at.workers, np.nan  # nobody tells the rate of their links
    speedup = gpus * at.computation_seconds / at.iteration_seconds
    found: dict[str, Any] = {"speedup": speedup, "largest_speedup": largest, "share": speedup / largest}
    seconds, alone = samples(at, "iteration_seconds"), samples(at, "computation_seconds")
    if at.rung == "emulated":
        alone = np.full(len(seconds), at.computation_seconds)  # is replayed
    if len(alone) == len(seconds):
        found |= cells("speedup", gpus * alone / seconds) | cells("share", gpus * alone / seconds / largest)
    return found


def _means(frame: pd.DataFrame, testbed: Bench) -> Iterator[dict[str, Any]]:
    """The mean share of the models where all of them have one, as likely in its interval as each of them in its own."""
    as_there = frame[frame.share.notna() & (frame.nodes == testbed.nodes)]
    for (rung, assumption), at in as_there.groupby(["rung", "assumption"], sort=False):
        if len(at) == len(MODELS):
            row = {"rung": rung, "model": "mean", "assumption": assumption, "nodes": testbed.nodes, "note": ""}
            # an end of any that is not known leaves that of the mean unknown
            mean = at[["share", "share_low", "share_high"]].astype(float).mean(skipna=False)
            yield row | {REPEATS: at[REPEATS].min(skipna=False), **mean}


def _parameters(model: str, results: Path) -> float:
    """Of the definition, not of Table III."""
    return counted(model, results).bytes / 4


def _point(assumption: str) -> Point:
    """The point of the band in a label of Table IV; rows without one are at the centre."""
    return next((each.point for each in iterations.BAND if str(each) == assumption), CENTRE)


def _table5_display(frame: pd.DataFrame) -> pd.DataFrame:
    labels = {("published", ""): "published"}
    labels |= {("simulated", str(each)): f"{each.contention}, a {each.startup}" for each in iterations.SHOWN}
    labels |= {("emulated", ""): "emulated"}
    rows = []
    for (rung, assumption), label in labels.items():
        at = frame[(frame.rung == rung) & (frame.assumption == assumption) & frame.share.notna()]
        at = at.sort_values("nodes", kind="stable", na_position="first")  # of several the one with most nodes
        if at.empty:
            continue
        row = {"": label}
        for _, cell in at.iterrows():
            ratio = text(cell, "share", ".1%") if rung in TIMED else f"{cell.share:.1%}"
            hosts = f", {cell.nodes:.0f} hosts" if rung == "emulated" else ""
            row[MODELS.get(cell.model, cell.model)] = (
                ratio if pd.isna(cell.speedup) else f"{cell.speedup:.1f} / {cell.largest_speedup:.1f}: {ratio}{hosts}"
            )
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")


def fig6(settings: Settings, results: Path) -> Table:
    """Fig. 6: computation and exposed communication; rows of Table IV, and by how much a scheme exposes less."""
    found = read(file(results, "ascwfbp", "table4"), iterations.COLUMNS)
    frame = found[found.rung.ne("simulated") | found.scheme.isin(SCHEMES)].copy()
    keys = ["rung", "launch", "model", "assumption"]
    exposed = frame.drop_duplicates([*keys, "scheme"]).set_index([*keys, "scheme"]).exposed_communication_seconds
    for name, over in REDUCTIONS.items():
        other = exposed.reindex(pd.MultiIndex.from_frame(frame[keys].assign(scheme=over))).to_numpy()
        frame[name] = 1 - frame.exposed_communication_seconds / np.where(other > 0, other, np.nan)
        frame[columns(name)] = _pairs(frame, keys, name, over)
    caption = (
        "Fig. 6: computation + exposed communication of an iteration in ms, and by how much less MG-WFBP exposes than "
        "WFBP and ASC-WFBP than MG-WFBP; of what was timed, in brackets 95 %, pair by pair. Published: Table IV less "
        "t_f + t_b (ResNet-152) and what Table V gives for it (the others); the bars are only drawn. The prose has "
        "more than 65 % for MG-WFBP on the three CNNs, which would need more computation than a whole iteration of "
        "ASC-WFBP takes (ASC-E30), and 22 to 74 % for ASC-WFBP (ASC-E31). Simulated: as Table IV."
    )
    return Table(frame, _fig6_display(frame), caption)


def _pairs(frame: pd.DataFrame, keys: list[str], name: str, over: str) -> pd.DataFrame:
    """The column of a reduction with its interval and repeats, which it has where both ran in turn in one launch."""
    others = {tuple(row[keys]): row for _, row in frame[frame.scheme == over].iloc[::-1].iterrows()}  # the first counts
    rows = []
    for _, row in frame.iterrows():
        found, other = {name: row[name]}, others.get(tuple(row[keys]))
        if row.rung in TIMED and other is not None:
            found |= cells(name, paired(_reduction, row, other, "exposed_communication_seconds"))
        rows.append(found)
    return pd.DataFrame(rows, columns=columns(name), index=frame.index)


def _reduction(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """By which share less is exposed; of pairs of which one exposes nothing there is none."""
    return 1 - mine / theirs if (theirs > 0).all() else np.array([])


def _fig6_display(frame: pd.DataFrame) -> pd.DataFrame:
    shown = {str(each): f"{each.contention}, a {each.startup}" for each in iterations.SHOWN}
    known = frame[frame.exposed_communication_seconds.notna() & frame.computation_seconds.notna()]
    known = known[known.rung.ne("simulated") | known.assumption.isin(shown)]
    rows = []
    for (rung, assumption, model), at in known.groupby(["rung", "assumption", "model"], sort=False):
        row = {"model": MODELS.get(str(model), str(model)), "rung": str(rung)}
        row["assumed"] = shown.get(str(assumption), "")
        for _, cell in at[at.scheme.isin(SCHEMES)].iterrows():
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
    """What a, b and t_f + t_b imply beside Table IV: the paper's constants against its own measurements."""
    testbed, rows = bench(settings), []
    for model in MODELS:
        for forward in FORWARD:
            point = Point(forward=forward)
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
