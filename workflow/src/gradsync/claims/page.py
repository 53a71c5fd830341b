"""The verdicts as a page for people: first the decided claims, a line each; then the undecided ones, by reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradsync.claims.by_claim import STRENGTH, Judged, by_claim, counts
from gradsync.claims.changes import Changes
from gradsync.claims.open_verdicts import open_verdicts
from gradsync.claims.remedies import Remedy
from gradsync.claims.verdicts import BROKEN, CONSTRUCTED, FAILS_AS_CHANGED, HOLDS_AS_CHANGED, UNDECIDED, Verdict

COUNTED = (
    "What holds by construction proves nothing, and what was changed after its value was seen is not what was claimed: "
    "neither is counted as confirmed. What is claimed for every input is not confirmed by those that were tried. The "
    "margin is how far the worst point of the check is from turning over, relative to what it is held against."
)
SHORT = {
    CONSTRUCTED: "by construction",
    BROKEN: "fails by construction",
    HOLDS_AS_CHANGED: "holds, changed",
    FAILS_AS_CHANGED: "fails, changed",
    UNDECIDED: "open",
}


def page(
    verdicts: Sequence[Verdict],
    remedy: Callable[[Verdict], Remedy] | None = None,
    changes: Changes | None = None,
) -> str:
    """Markdown; `remedy` gives why a verdict decides nothing and what would decide it (None: only its own reason).

    `changes` are those since the run before (None: there was none).
    """
    claims = by_claim(verdicts)
    papers: dict[str, list[Judged]] = {}
    for claim in claims:
        papers.setdefault(claim.paper, []).append(claim)
    lines = [*headline(claims), ""]
    if len(papers) > 1:
        lines += [*_counted(papers), ""]
    lines += [COUNTED, ""]
    if changes is not None:
        lines += ["## Since the run before", "", *_changed(changes), ""]
    for paper, claims_of_paper in papers.items():
        if decided := [claim for claim in claims_of_paper if claim.decided]:
            lines += [f"## {paper}: decided", "", *_decided(decided), ""]
    if open_verdicts := [verdict for verdict in verdicts if verdict.verdict == UNDECIDED]:
        lines += ["## Not decided here", "", *_undecided(claims, open_verdicts, remedy or _plain), ""]
    return "\n".join(lines).rstrip() + "\n"


def headline(claims: Sequence[Judged]) -> list[str]:
    """How many claims there are, how they were decided, and on which of them rungs disagree: a line each."""
    numbers = counts(claims)
    undecided = numbers.pop(UNDECIDED)
    kinds = ", ".join(f"{kind} {number}" for kind, number in numbers.items() if number)
    many = len({claim.paper for claim in claims}) > 1
    lines = [f"{len(claims)} claim{'' if len(claims) == 1 else 's'} of the paper{'s' if many else ''}."]
    lines.append(f"{_are(len(claims) - undecided)} decided here{': ' if kinds else ''}{kinds}.")
    lines.append(f"{_are(undecided)} decided on no rung here: last table of the page.")
    if several := [claim for claim in claims if len(claim.decided) > 1]:
        apart = [claim.verdicts[0].claim for claim in several if claim.disagree]
        named = f" ({', '.join(apart)})" if apart else ""
        lines.append(f"{_are(len(several))} decided on several rungs, which disagree on {len(apart)}{named}.")
    return lines


def _changed(changes: Changes) -> list[str]:
    """A line per verdict that changed."""
    if not changes.verdicts:
        return [f"No verdict is another one than in the run before ({changes.since})."]
    number = len(changes.verdicts)
    told = f"{number} verdict{'' if number == 1 else 's'} changed since the run before ({changes.since})."
    lines = [told, "", _line("claim", "rung", "then", "now"), "|---|---|---|---|"]
    return [*lines, *(_line(f"{c.paper}: `{c.claim}`", c.rung, c.before, c.now) for c in changes.verdicts)]


def _are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


def _counted(papers: dict[str, list[Judged]]) -> list[str]:
    """A line per paper, a column per kind of verdict that any paper has."""
    by_paper = {paper: counts(claims) for paper, claims in papers.items()}
    kinds = [kind for kind in next(iter(by_paper.values())) if any(numbers[kind] for numbers in by_paper.values())]
    kinds.sort(key=lambda kind: kind == UNDECIDED)
    lines = [_line("paper", "claims", *kinds), "|---|" + "---:|" * (len(kinds) + 1)]
    for paper, numbers in by_paper.items():
        lines.append(_line(paper, str(len(papers[paper])), *(str(numbers[kind]) for kind in kinds)))
    return lines


def _decided(claims: Sequence[Judged]) -> list[str]:
    """A line per claim, a column per rung that decides any of them; last what proves nothing, notes below."""
    rungs = [rung for rung in reversed(STRENGTH) if any(v.rung == rung for claim in claims for v in claim.decided)]
    lines = [_line("claim", "place", "what the paper says", *rungs, "values and reason")]
    lines.append("|---" * (len(rungs) + 4) + "|")
    ordered = sorted(claims, key=lambda claim: not claim.decided[0].counted)
    for claim in ordered:
        strongest = claim.decided[0]
        cells = {verdict.rung: _cell(verdict) for verdict in claim.verdicts}
        reasons = [str(strongest.compared[0])] if strongest.compared else []
        reasons += [strongest.reason] if strongest.reason else []
        if len(claim.decided) > 1:
            reasons.insert(0, f"{'RUNGS DISAGREE; ' if claim.disagree else ''}{strongest.rung}:")
        values = [cells.get(rung, "") for rung in rungs]
        lines.append(_line(_linked(strongest), strongest.place, strongest.text, *values, _joined(reasons)))
    notes: dict[str, list[str]] = {}
    for claim in ordered:
        if note := _note(claim):
            notes.setdefault(note, []).append(f"`{claim.verdicts[0].claim}`")
    return [*lines, *([""] if notes else []), *(f"- {', '.join(names)}: {note}" for note, names in notes.items())]


def _cell(verdict: Verdict) -> str:
    if verdict.verdict == UNDECIDED:
        return SHORT[UNDECIDED]
    word = SHORT.get(verdict.verdict, f"**{verdict.verdict}**")
    if verdict.margin is None or verdict.verdict == CONSTRUCTED:
        return word
    percent = 100 * verdict.margin
    exact = abs(percent) < 0.05  # 0.0: no sign
    return f"{word} 0.0 %" if exact else f"{word} {percent:+.{0 if abs(percent) >= 1000 else 1}f} %"


def _linked(verdict: Verdict) -> str:
    """The claim as a link to the table that it was decided on; the page lies in the folder above the tables."""
    return f"[`{verdict.claim}`](tables/{verdict.paper}/{verdict.table}.csv)"


def _joined(parts: list[str]) -> str:
    first, *rest = parts or [""]
    return f"{first} {'; '.join(rest)}" if first.endswith(":") else "; ".join(parts)


def _note(claim: Judged) -> str:
    """The notes of the paper file on the claim, once if rungs share one."""
    return "; ".join(dict.fromkeys(" ".join(verdict.note.split()) for verdict in claim.decided if verdict.note))


def _undecided(claims: Sequence[Judged], verdicts: Sequence[Verdict], remedy: Callable[[Verdict], Remedy]) -> list[str]:
    """A line per class of reasons and remedy, rung by rung, with its claims by id."""
    nowhere = {(claim.paper, claim.verdicts[0].claim) for claim in claims if not claim.decided}
    lines = [_line("why", "claims", "what would decide them"), "|---|---|---|"]
    for each in open_verdicts(verdicts, remedy):
        lines.append(_line(each.reason, _named(each.verdicts, nowhere), each.remedy))
    legend = "Bold: decided on no rung at all; the others are decided above, on another rung."
    if any(verdict.points > 1 for verdict in verdicts):
        legend += " In brackets: at how many points of the assumed band the check holds."
    return [legend, "", *lines]


def _named(verdicts: Sequence[Verdict], nowhere: set[tuple[str, str]]) -> str:
    """The claims of the verdicts by paper, on one line."""
    papers: dict[str, list[str]] = {}
    for verdict in verdicts:
        name = f"**`{verdict.claim}`**" if (verdict.paper, verdict.claim) in nowhere else f"`{verdict.claim}`"
        band = f" ({verdict.holds} of {verdict.points})" if verdict.points > 1 else ""
        papers.setdefault(verdict.paper, []).append(name + band)
    return "; ".join(f"{paper}: {', '.join(names)}" for paper, names in papers.items())


def _plain(verdict: Verdict) -> Remedy:
    return Remedy(f"{verdict.rung}: {verdict.reason}", "")


def _line(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
