"""The real runs of a configuration, beside what was predicted of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync import schemes
from gradsync.errors import InputError
from gradsync.papers.mgwfbp.rows import TABLE
from gradsync.papers.table import Table
from gradsync.results import Result
from gradsync.settings import Settings


def training(settings: Settings, results: Path) -> Table:
    """The real runs: iteration time, ratio to WFBP, prediction, accuracy, conformance."""
    frames = []
    for job in settings.training:
        folder = results / "runs" / "train" / job.job
        known = schemes.load(settings.schemes)
        for scheme in schemes.pick(known, job.schemes, "training"):
            result = Result.load(folder / scheme.name / "result.json")
            prediction = _json(results / "plans" / job.job / f"{scheme.name}.prediction.json")
            found = result.summary
            predicted = prediction["iteration_seconds"]
            base = {"model": result.model, "nodes": result.ranks, "scheme": scheme.name, "assumption": ""}
            frames.append(
                {
                    "rung": "measured",
                    **base,
                    "messages": int(found["messages"]),
                    "iteration_seconds": found["iteration_seconds"],
                    "iteration_seconds_low": found["iteration_seconds_low"],
                    "iteration_seconds_high": found["iteration_seconds_high"],
                    "exposed_communication_seconds": found["exposed_communication_seconds"],
                    # nothing where WFBP was not among the schemes
                    "ratio_to_wfbp": found.get("ratio_to_wfbp", np.nan),
                    "ratio_to_wfbp_low": found.get("ratio_to_wfbp_low", np.nan),
                    "ratio_to_wfbp_high": found.get("ratio_to_wfbp_high", np.nan),
                    "pairs": int(found["pairs"]),
                    "predicted_over_measured": predicted / found["iteration_seconds"],
                    "accuracy": found["accuracy"],
                    "oracle_difference": result.conformance["oracle_difference"],
                    "parameters_sha256": result.conformance["parameters_sha256"],
                    "note": "; ".join(result.notes),
                }
            )
            frames.append(
                {
                    "rung": "simulated",
                    **base,
                    "messages": len(prediction["messages"]),
                    "iteration_seconds": predicted,
                    "exposed_communication_seconds": prediction["exposed_communication_seconds"],
                    "note": "; ".join(prediction["warnings"]),
                }
            )
    if not frames:
        nothing = "no training in this configuration"
        return Table(pd.DataFrame(columns=TABLE), pd.DataFrame({"model": [nothing]}), f"Real training: {nothing}.")
    frame = pd.DataFrame(frames)
    rows = []
    for _, row in frame[frame.rung == "measured"].iterrows():
        rows.append(
            {
                "model": row.model,
                "ranks": row.nodes,
                "scheme": row.scheme,
                "messages": row.messages,
                "iteration ms": f"{1e3 * row.iteration_seconds:.1f} "
                f"({1e3 * row.iteration_seconds_low:.1f} .. {1e3 * row.iteration_seconds_high:.1f})",
                "over wfbp": f"{row.ratio_to_wfbp:.3f} ({row.ratio_to_wfbp_low:.3f} .. {row.ratio_to_wfbp_high:.3f})",
                "predicted/measured": f"{row.predicted_over_measured:.2f}",
                "accuracy": f"{row.accuracy:.3f}",
                "off the oracle by": f"{row.oracle_difference:.1e}",
            }
        )
    caption = (
        "Real training on this machine: all schemes in turn in one launch. Ratios to WFBP are medians over pairs of "
        "neighbouring blocks, in brackets the 95 % interval of the median. The prediction comes from a profile of "
        "another run, in which ranks compute at the same time but do not communicate: that computation slows down "
        "while messages use the same cores is not in it. Conformance: parameters after 3 float64 steps against the "
        "oracle's."
    )
    return Table(frame, pd.DataFrame(rows), caption)


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None
