"""The first schemes of a ranking, measured: they train in turn on real ranks, beside stock DDP.

The model need not be at hand: ranks replay the computation of the workload, and their messages are real
(`runtime/replay.py` tells what that hides). What was not measured is corrected by the ratio that the measured ones have
to their predictions, at the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import taken
from gradsync.errors import InputError
from gradsync.experiments import train
from gradsync.lifetimes import leftovers
from gradsync.statistics.intervals import repeats_needed

if TYPE_CHECKING:
    from gradsync.experiments.advise import Candidate, Options
    from gradsync.plan import Plan

PEER = "ddp"
BLOCK = 4  # iterations before the next contender has its turn; the first is not timed
LEAST_BLOCKS, MOST_BLOCKS = repeats_needed(), 16  # of each contender
SECONDS = 60.0  # of iterations, unless so many are fewer than LEAST_BLOCKS
FAR = 1.25  # times what was predicted, or as many times less: then the costs are hardly those of this network


def measure(candidates: Sequence[Candidate], baseline: str, options: Options) -> dict[str, Any]:
    """Train the first `options.measure` candidates, the one named `baseline` and DDP; what the advice tells of it.

    Candidates of one plan are trained once. Raises InputError if none can be a contender, or ranks can't be started.
    """
    from gradsync.runtime.launch import elsewhere

    chosen, left_out, alike = _chosen(candidates, options)
    if not chosen:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise InputError(f"advise: --measure {options.measure}: none of the schemes can be trained: {reasons}")
    baseline = alike.get(baseline, baseline)
    base = next((each for each in candidates if each.scheme.name == baseline), None)
    if base is not None and not _refusal(base.plan):
        chosen = [base, *(each for each in chosen if each is not base)]
        same = [each.scheme.name for each in candidates if each not in chosen and each.plan.roles == base.plan.roles]
        alike |= dict.fromkeys(same, baseline)
    # on several nodes all of them must see it
    with leftovers.temporary_folder(Path.cwd() if elsewhere() else None) as folder:
        summaries = train.train(_training(chosen, options, folder)) or {}
    first = chosen[0].scheme.name
    predicted = {each.scheme.name: each.seconds for each in chosen}
    rows = [_row(name, summary, first, predicted.get(name)) for name, summary in summaries.items()]
    rows.sort(key=lambda row: row["over"])
    ratio = median([row["over_predicted"] for row in rows if row["over_predicted"]] or [1.0])
    return {
        "rows": rows,
        "over": first,
        "over_predicted": ratio,
        "not_told_apart": [row["scheme"] for row in rows if _reaches(row, rows[0])],
        "of_one_plan": alike,
        "left_out": left_out,
        "warnings": _warnings(ratio),
    }


def corrected(rows: Sequence[dict[str, Any]], measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a ranking with `measured_seconds` (None: it was not) and `corrected_seconds`, in the order of these.

    The first is the ratio of paired turns times the iteration of the contender that ratios are to: other work that came
    and went has disturbed both of a pair.
    """
    (over,) = (row["iteration_seconds"] for row in measured["rows"] if row["scheme"] == measured["over"])
    seconds = {row["scheme"]: row["over"] * over for row in measured["rows"]}
    seconds |= {name: seconds[other] for name, other in measured["of_one_plan"].items()}
    known = [
        {
            **row,
            "measured_seconds": seconds.get(row["scheme"]),
            "corrected_seconds": seconds.get(row["scheme"], row["iteration_seconds"] * measured["over_predicted"]),
        }
        for row in rows
    ]
    return sorted(known, key=lambda row: row["corrected_seconds"])


def _chosen(
    candidates: Sequence[Candidate], options: Options
) -> tuple[list[Candidate], dict[str, str], dict[str, str]]:
    """(the first that can be contenders; why others before the last of them are none; which of others has its plan)."""
    chosen: list[Candidate] = []
    left_out: dict[str, str] = {}
    alike: dict[str, str] = {}
    for each in candidates:
        if same := next((other for other in chosen if other.plan.roles == each.plan.roles), None):
            alike[each.scheme.name] = same.scheme.name
        elif len(chosen) == options.measure:
            continue
        elif reason := _refusal(each.plan):
            left_out[each.scheme.name] = reason
        else:
            chosen.append(each)
    return chosen, left_out, alike


def _refusal(plan: Plan) -> str:
    """Why a plan is no contender; empty if it is one."""
    from gradsync.runtime import binding

    if binding.parts_of(plan):
        return "its ranks are parts of a chip, which others are not: train it by itself"
    try:
        train.refuse_roles(plan, f"of {plan.name!r}")
    except InputError as error:
        return str(error)
    return ""


def _training(chosen: Sequence[Candidate], options: Options, folder: Path) -> train.Options:
    """The launch; writes its plans and its workload into `folder`."""
    plans = []
    for each in chosen:
        plans.append(folder / f"{each.scheme.name}.json")
        plans[-1].write_text(each.plan.to_json())
    workload = folder / "workload.json"
    workload.write_text(chosen[0].workload.to_json())
    whole = BLOCK * sum(each.seconds for each in (*chosen, chosen[0]))
    blocks = max(LEAST_BLOCKS, min(MOST_BLOCKS, round(SECONDS / whole) if whole else MOST_BLOCKS))
    return taken(
        train.Options,
        options,
        model=f"replay:{workload}",
        data="synthetic",
        size=None,
        batch=1,
        epochs=1,
        iterations=BLOCK * blocks,
        block=BLOCK,
        conformance=0,
        references=False,
        reference=chosen[0].scheme.name,
        plans=tuple(plans),
        peers=(PEER,),
        schemes=None,
        output=folder / "runs",
    )


def _row(scheme: str, summary: dict[str, float], first: str, predicted: float | None) -> dict[str, Any]:
    """What was measured of a contender, with its ratio to the first one, over pairs of turns."""
    key = f"ratio_to_{first}"
    seconds = summary["iteration_seconds"]
    return {
        "scheme": scheme,
        "iteration_seconds": seconds,
        "low_seconds": summary.get("iteration_seconds_low"),
        "high_seconds": summary.get("iteration_seconds_high"),
        "over": summary[key],
        "over_low": summary.get(f"{key}_low"),
        "over_high": summary.get(f"{key}_high"),
        "predicted_seconds": predicted,
        "over_predicted": seconds / predicted if predicted else None,
    }


def _reaches(row: dict[str, Any], fastest: dict[str, Any]) -> bool:
    """Whether a contender may be as fast as the fastest; one without an interval may."""
    low, high = row["over_low"], fastest["over_high"]
    return low is None or high is None or low <= high


def _warnings(ratio: float) -> list[str]:
    if 1 / FAR <= ratio <= FAR:
        return []
    return [
        f"measured iterations take {ratio:.2f} times what was predicted: the costs that were given are not those of "
        "the network between these ranks, or other work took their cores"
    ]
