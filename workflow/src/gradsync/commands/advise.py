"""`gradsync advise`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import advise
from gradsync.statistics.intervals import NONE


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, advise.Options)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Rank all schemes by the predicted iteration of a model on a network, and tell why.

    What is not told is measured here: layers of --model, and all-reduces between --ranks if no option gives their cost.
    Stock DDP with its default buckets is the line that others are compared with. With --explain it also tells which
    messages computation waits for, and what faster links or faster computation would change.
    """
    chosen = parsing.read(advise.Options, options)
    if chosen.picture:
        from gradsync.drawing import ranking, style

        style.refuse(chosen.picture)
    advice = advise.advise(chosen)
    if chosen.picture:
        ranking.draw(advice, chosen.picture)
    if options.json:
        return advice
    print("\n".join(_lines(advice)))
    return None


def _lines(advice: dict[str, Any]) -> list[str]:
    rows = advice["ranking"]
    lines = [
        f"{advice['workload']}: {advice['tensors']} gradient tensors, {advice['bytes'] / 1e6:.1f} MB, "
        f"{_ms(advice['computation_seconds'])} of computation; {advice['ranks']} ranks on {advice['topology']}",
        *([f"network: {advice['network']['text']} (described; sources: --json)"] if "network" in advice else []),
        f"all-reduce: {advice['all_reduce']}",
        "",
        *_table(rows),
        "",
    ]
    alike = advice["not_told_apart"]
    fastest, *_ = _predicted_order(rows)
    first = fastest["scheme"]
    if len(alike) > 1:
        lines.append(f"not told apart from {first} by this prediction: {', '.join(alike[1:])}")
    for tie in advice["ties"]:
        if tie["schemes"][0] != first:
            lines.append(f"not told apart from one another: {', '.join(tie['schemes'])}")
        lines += [f"  the plans of {', '.join(names)} are one and the same" for names in tie["of_one_plan"]]
    if fastest["over_baseline"] is not None:
        lines.append(f"{first} takes {fastest['over_baseline']:.3f} of the iteration of stock DDP (fixed_buckets)")
    on_gpus = [row for row in _predicted_order(rows) if row["on_gpus"]]
    if on_gpus and not fastest["on_gpus"] and on_gpus[0]["scheme"] not in alike:
        other = on_gpus[0]
        compared = "" if other["over_baseline"] is None else f", {other['over_baseline']:.3f} of stock DDP"
        lines.append(
            f"{first} is made of transfers, which only CPUs execute: of what GPUs execute the fastest is "
            f"{other['scheme']}{compared}"
        )
    if "measured" in advice:
        lines += ["", *_measured(advice["measured"])]
    if advice["other_training"]:
        told = "synchronised once a period, which sends less and trains another thing (seconds of an iteration, too):"
        lines += ["", told, *_table(advice["other_training"]), ""]
    for reason in dict.fromkeys(advice["left_out"].values()):
        names = [name for name, why in advice["left_out"].items() if why == reason]
        lines.append(f"left out: {', '.join(names)}: {reason}")
    lines += [f"warning: {warning}" for warning in advice["warnings"]]
    if "why" in advice:
        lines += ["", *_explained(advice)]
    return lines


def _predicted_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as they were before any was measured."""
    return sorted(rows, key=lambda row: (row["iteration_seconds"], row["messages"]))


def _measured(measured: dict[str, Any]) -> list[str]:
    """What was trained, the fastest first."""
    over = f"over {measured['over']}"
    cells: list[tuple[str, ...]] = [("scheme", "iteration", "interval", over, "interval", "over predicted")]
    for row in measured["rows"]:
        known = row["over_predicted"]
        cells.append(
            (
                row["scheme"],
                _ms(row["iteration_seconds"]),
                _interval(row["low_seconds"], row["high_seconds"], 1e3, 1),
                f"{row['over']:.3f}",
                _interval(row["over_low"], row["over_high"], 1.0, 3),
                "" if known is None else f"{known:.3f}",
            )
        )
    alike = measured["not_told_apart"]
    first = f"fastest when measured: {alike[0]}" + (f"; not told apart: {', '.join(alike[1:])}" if alike[1:] else "")
    return [
        "measured on real ranks that replay computation, in turns:",
        *_aligned(cells),
        first,
        *(f"{scheme} has the plan of {other}" for scheme, other in measured["of_one_plan"].items()),
        *(f"not measured: {scheme}: {reason}" for scheme, reason in measured["left_out"].items()),
        *(f"warning: {warning}" for warning in measured["warnings"]),
    ]


def _interval(low: float | None, high: float | None, scale: float, digits: int) -> str:
    return NONE if low is None or high is None else f"{scale * low:.{digits}f} - {scale * high:.{digits}f}"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    titles = ("iteration", "interval", "over DDP", "exposed", "messages", "over bound", "MB a rank", "changes training")
    corrected = "corrected_seconds" in rows[0]
    cells = [("scheme", *(["corrected"] if corrected else []), *titles)]
    for row in rows:
        over = row["over_baseline"]
        cells.append(
            (
                row["scheme"],
                *([_ms(row["corrected_seconds"])] if corrected else []),
                _ms(row["iteration_seconds"]),
                f"{1e3 * row['low_seconds']:.1f} - {1e3 * row['high_seconds']:.1f}",
                "" if over is None else f"{over:.3f}",
                _ms(row["exposed_communication_seconds"]),
                str(row["messages"]),
                "" if row["over_bound"] is None else f"{row['over_bound']:.3f}",
                f"{row['buffer_bytes'] / 1e6:.1f}",
                row["changes_training"] or "no",
            )
        )
    return _aligned(cells)


def _aligned(cells: list[tuple[str, ...]]) -> list[str]:
    """Columns of one width each; the first and the last begin at their left."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    first, *numbers, last = widths
    return [
        "  ".join(
            (line[0].ljust(first), *map(str.rjust, line[1:-1], numbers), line[-1].ljust(last)),
        ).rstrip()
        for line in cells
    ]


def _explained(advice: dict[str, Any]) -> list[str]:
    why = advice["why"]
    lines = [
        f"{why['scheme']} computes for {_ms(why['computation_seconds'])}; for "
        f"{_ms(why['exposed_communication_seconds'])} a message is under way and nothing is computed:"
    ]
    for each in why["exposed_messages"]:
        carried = " .. ".join(each["tensors"])
        lines.append(f"  {_ms(each['exposed_seconds'])}  {each['message']}" + (f" ({carried})" if carried else ""))
    lines.append("planned anew, of the first schemes:")
    for each in advice["elsewhere"]:
        change = "" if each["ratio"] is None else f" ({each['ratio'] - 1:+.1%})"
        lines.append(
            f"  {each['what']}: {_ms(each['iteration_seconds'])}"
            f"{change}; fastest there is "
            f"{each['fastest']}, {_ms(each['fastest_seconds'])}"
        )
    first = [row["scheme"] for row in _predicted_order(advice["ranking"]) if row["planned"]][:2]
    for change in advice["order_changes"]:
        lines.append(
            f"  at {change['bandwidth_ratio']:.3g} times the bandwidth the order of {' and '.join(first)} changes: "
            f"above it, {change['fastest_above']} is faster"
        )
    if len(first) == 2 and not advice["order_changes"]:
        lines.append(f"  from 1/32 to 32 times the bandwidth, the order of {' and '.join(first)} does not change")
    return lines


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"
