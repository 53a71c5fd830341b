"""Launches that are killed at random moments go on, lose nothing and leave nothing behind.

On full disks and testbeds: `tests/testbed/test_kills_there.py`. With more kills, and below Snakemake:
`python tests/kills --kills 200`.
"""

from __future__ import annotations

import random

import pytest

from kills import subjects
from kills.campaign import Campaign, killed, kinds

KILLS, SEED = 2, 3
# stands for a launch: a second of work, then results
LAUNCH = "sleep 1; mkdir -p FOLDER; echo '[]' >FOLDER/schemes.json"
ORPHAN = "sleep 1000 & "
FORGOTTEN = 'mktemp -p "$TMPDIR" >&2; '
OTHER = "mkdir -p FOLDER; touch FOLDER/another; "


@pytest.mark.deep
def test_killed_launches_go_on_and_leave_nothing(tmp_path):
    killed(tmp_path, ["training"], KILLS, SEED)


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["an orphan", "a forgotten file", "another number"])
def test_the_campaign_sees_what_must_not_be(tmp_path, fault):
    """A command that leaves somebody or something behind, or ends with something else."""
    (subject,) = subjects.every(tmp_path, ["training"])
    messages: list[str] = []
    program = LAUNCH.replace("FOLDER", str(subject.folder))
    subject.command = ["sh", "-c", program, "sh"]
    subject.victims = ("launcher",)
    campaign = Campaign(subject, tmp_path, random.Random(SEED), messages.append)
    faults = {"an orphan": ORPHAN, "a forgotten file": FORGOTTEN, "another number": OTHER}
    subject.command[2] = faults[fault].replace("FOLDER", str(subject.folder)) + program
    campaign.seconds = 0.5
    campaign.ends_seconds = 1.0  # an orphan never ends
    wanted = {"an orphan": "left behind", "a forgotten file": "left behind", "another number": "lost"}
    assert kinds(campaign.run(1))[wanted[fault]] == 1, messages
