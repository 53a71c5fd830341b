"""What changed between two runs: kept when claims are decided again, in the ledger, on its page and on the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync import claims, cli
from gradsync.claims import CONFIRMED, REFUTED, UNDECIDED, Change, Changes, Origin, Verdict, kept

MONDAY, TUESDAY, FRIDAY = (Origin(f"2026-11-{day}T10:00:00+00:00", f"c{day}") for day in (23, 24, 27))
ROOT = Path(__file__).parents[3]


def verdict(claim: str, rung: str, kind: str, margin: float = 0.5) -> Verdict:
    return Verdict("p", claim, "Fig. 1", "it is fast", "fig1", rung, kind, "", True, margin=margin)


FIRST = [verdict("a", "measured", CONFIRMED), verdict("b", "measured", REFUTED), verdict("c", "derived", CONFIRMED)]
SECOND = [verdict("a", "measured", UNDECIDED), verdict("b", "measured", REFUTED), verdict("a", "emulated", REFUTED)]
CHANGED = (
    Change("p", "a", "measured", CONFIRMED, UNDECIDED),
    Change("p", "a", "emulated", "-", REFUTED),
    Change("p", "c", "derived", CONFIRMED, "-"),
)


def test_what_changed_is_told_by_claim_and_rung_with_what_is_new_and_gone():
    assert claims.changed(FIRST, SECOND) == CHANGED
    assert [change.kind for change in CHANGED] == ["changed", "new", "gone"]
    assert claims.changed(FIRST, FIRST) == ()


def test_the_ledger_of_the_run_before_is_kept(tmp_path):
    assert claims.keep(tmp_path, FIRST, MONDAY) is None
    assert claims.keep(tmp_path, SECOND, TUESDAY) == Changes(MONDAY, CHANGED)
    # deciding the same tables again is no other run
    assert claims.keep(tmp_path, SECOND, FRIDAY) == Changes(MONDAY, CHANGED)
    # the same verdicts on other values are one
    other_values = [verdict("a", "measured", UNDECIDED, margin=0.25), *SECOND[1:]]
    assert claims.keep(tmp_path, other_values, FRIDAY) == Changes(FRIDAY, ())


@pytest.mark.parametrize("content", ["{", '{"version": 1, "verdicts": []}'])
def test_a_kept_ledger_that_cannot_be_read_counts_as_none(tmp_path, content):
    claims.keep(tmp_path, FIRST, MONDAY)
    (tmp_path / kept.FOLDER / kept.LATEST).write_text(content)
    assert claims.keep(tmp_path, SECOND, TUESDAY) is None


def test_a_ledger_is_read_back_with_its_changes(tmp_path):
    changes = Changes(MONDAY, CHANGED)
    (tmp_path / "claims.json").write_text(claims.ledger_json(SECOND, TUESDAY, changes))
    assert claims.load(tmp_path / "claims.json") == claims.Ledger(SECOND, TUESDAY, changes)


def test_the_page_lists_changes_or_says_that_there_are_none():
    page = claims.page(SECOND, changes=Changes(MONDAY, CHANGED))
    assert "3 verdicts changed since the run before (2026-11-23T10:00:00+00:00 by c23)." in page
    assert "| p: `a` | measured | confirmed | not decidable here |" in page
    assert "| p: `c` | derived | confirmed | - |" in page
    assert "No verdict is another one" in claims.page(SECOND, changes=Changes(MONDAY, ()))
    assert "run before" not in claims.page(SECOND)


def test_the_command_keeps_the_ledger_though_its_outputs_are_deleted_before_it_runs(tmp_path, monkeypatch, capsys):
    """As Snakemake deletes them; the ledger before had a claim that is gone."""
    monkeypatch.chdir(ROOT)
    results = tmp_path / "dear"
    (results / "tables" / "dear").mkdir(parents=True)
    config = tmp_path / "dear.yaml"
    config.write_text("version: 1\nname: dear\npapers: {dear: {}}\n")
    command = ["claims", "--config", str(config), "--results", str(results)]
    assert cli.main(command) == 0
    assert "\nchanged: " not in capsys.readouterr().out
    for name in ("claims.json", "claims.md"):
        (results / name).unlink()
    (results / kept.FOLDER / kept.LATEST).write_text(
        claims.ledger_json(
            [*claims.load(results / kept.FOLDER / kept.LATEST).verdicts, verdict("old", "derived", CONFIRMED)], MONDAY
        )
    )
    assert cli.main(command) == 0
    assert "\nchanged: 1\n" in capsys.readouterr().out
    ledger = claims.load(results / "claims.json")
    assert ledger.changes == Changes(MONDAY, (Change("p", "old", "derived", CONFIRMED, "-"),))
    assert "p: `old`" in (results / "claims.md").read_text()
