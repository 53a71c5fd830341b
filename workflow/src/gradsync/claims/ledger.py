"""The ledger: verdicts as JSON for programs and as Markdown for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from gradsync.claims.verdicts import KINDS, Verdict

VERSION = 2
COUNTED = (
    "What holds by construction proves nothing, and what was changed after its value was seen is not what was claimed: "
    "neither is counted. What is claimed for every input is not confirmed by those that were tried."
)


def ledger_json(verdicts: Sequence[Verdict]) -> str:
    """The ledger as versioned JSON."""
    ledger = {
        "version": VERSION,
        "summary": summary(verdicts),
        "verdicts": [
            {**asdict(verdict), "compared": [item._asdict() for item in verdict.compared]} for verdict in verdicts
        ],
    }
    return json.dumps(ledger, indent=1, allow_nan=False) + "\n"


def summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts of each kind."""
    times = Counter(verdict.verdict for verdict in verdicts)
    return {kind: times[kind] for kind in KINDS}


def ledger_markdown(verdicts: Sequence[Verdict]) -> str:
    """The ledger for people: a table a paper, under its key where there are several."""
    counts = ", ".join(f"{times} {kind}" for kind, times in summary(verdicts).items() if times)
    lines = [f"{len(verdicts)} verdicts: {counts}.", "", COUNTED]
    papers = list(dict.fromkeys(verdict.paper for verdict in verdicts))
    for paper in papers:
        lines += ["", *([f"## {paper}", ""] if len(papers) > 1 else [])]
        lines += _of_a_paper([verdict for verdict in verdicts if verdict.paper == paper])
    return "\n".join(lines).rstrip() + "\n"


def _of_a_paper(verdicts: Sequence[Verdict]) -> list[str]:
    """What was computed first, then what waits, the rungs of a reason in one row; notes below."""
    rows: dict[tuple[str, str, str, str], tuple[Verdict, list[str]]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: verdict.margin is None):
        rung = "" if verdict.margin is None else verdict.rung
        row = rows.setdefault((verdict.claim, rung, verdict.verdict, verdict.reason), (verdict, []))
        row[1].append(verdict.rung)
    lines = [_line("claim", "place", "what the paper says", "rung", "verdict", "margin", "values and reason")]
    lines += ["|---|---|---|---|---|---:|---|"]
    for v, rungs in rows.values():
        margin = "" if v.margin is None else f"{100 * v.margin + 0.0:+.1f} %"  # + 0.0: none is -0.0
        why = "; ".join(filter(None, (str(v.compared[0]) if v.compared else "", v.reason)))
        lines.append(_line(f"`{v.claim}`", v.place, v.text, ", ".join(rungs), f"**{v.verdict}**", margin, why))
    notes = dict.fromkeys(
        f"- `{verdict.claim}`: {' '.join(verdict.note.split())}" for verdict in verdicts if verdict.note
    )
    return [*lines, "", *notes]


def _line(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
