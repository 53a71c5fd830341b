"""Launches that are killed at random moments go on, lose nothing and leave nothing behind.

The same with more kills, and below Snakemake: `python tests/kills --kills 200`.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kills import subjects
from kills.campaign import BAD, KINDS, Campaign, Table, lines

KILLS, SEED = 20, 3
# stands for a launch: a second of work, then results
LAUNCH = "sleep 1; mkdir -p FOLDER; echo '[]' >FOLDER/schemes.json"
ORPHAN = "sleep 1000 & "
FORGOTTEN = 'mktemp -p "$TMPDIR" >&2; '
OTHER = "mkdir -p FOLDER; touch FOLDER/another; "


def kinds(table: Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, _, kind), count in table.items():
        found[kind] += count
    return found


def test_killed_launches_go_on_and_leave_nothing(tmp_path):
    names = ["training", "disk", "testbed"]
    found, said = subjects.every(tmp_path, names), []
    total: Table = Counter()
    for number, subject in enumerate(found):
        share = KILLS // len(found) + (number < KILLS % len(found))
        total += Campaign(subject, tmp_path, random.Random(f"{SEED} {subject.name}"), said.append).run(share, share)
    counts = kinds(total)
    print("\n".join(lines(total)))  # shown where the test fails
    assert not {kind: counts[kind] for kind in BAD if counts[kind]}, said
    assert sum(counts[kind] for kind in KINDS) >= KILLS
    assert counts["resumed"] + counts["anew"] + counts["killed again"] > 0


@pytest.mark.parametrize("fault", ["an orphan", "a forgotten file", "another number"])
def test_the_campaign_sees_what_must_not_be(tmp_path, fault):
    """A command that leaves somebody or something behind, or ends with something else."""
    (subject,) = subjects.every(tmp_path, ["training"])
    said: list[str] = []
    program = LAUNCH.replace("FOLDER", str(subject.folder))
    subject.command = ["sh", "-c", program, "sh"]
    subject.victims = ("launcher",)
    campaign = Campaign(subject, tmp_path, random.Random(SEED), said.append)
    faults = {"an orphan": ORPHAN, "a forgotten file": FORGOTTEN, "another number": OTHER}
    subject.command[2] = faults[fault].replace("FOLDER", str(subject.folder)) + program
    campaign.seconds = 0.5
    if fault == "an orphan":  # which never ends
        campaign.ends_seconds = 1.0
    wanted = {"an orphan": "left behind", "a forgotten file": "left behind", "another number": "lost"}
    assert kinds(campaign.run(1))[wanted[fault]] == 1, said
