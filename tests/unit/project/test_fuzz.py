"""A bounded campaign of bad input, what once failed in one, and that no subcommand is left out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from fuzz.campaign import Campaign, corpus, tried
from fuzz.commands import BASES, places
from fuzz.guard import StartedError, guarded
from gradsync.testbed import privileges

INPUTS, SEED = 600, 0


@pytest.fixture(scope="module")
def campaign() -> Iterator[Campaign]:
    with Campaign().prepared() as prepared:
        yield prepared


def test_every_subcommand_has_a_command_line_that_is_tried():
    actions_of = places()
    assert set(actions_of) == set(BASES)
    assert all(BASES.values())
    assert {"--accumulate", "--turns", "--largest"} <= {
        option for every in actions_of.values() for action in every for option in action.option_strings
    }


@pytest.mark.skipif(not shutil.which("slurmctld") or bool(privileges.impossible()), reason="no Slurm or testbed here")
def test_what_is_changed_is_right_as_it_stands(campaign):
    """Else all that is made of it is refused for the same reason, and nothing is tried."""
    # what this machine lacks, Slurm, testbeds or third-party logs, and the results of a whole run: a refusal names it
    lacks = [
        "install ",
        "third-party logs: no folder named",
        "results/claims.json: can't be read",
        "nothing in them was timed",
        *filter(None, [privileges.impossible()]),
    ]
    wrong = [(case, end) for case, end in campaign.warm_up() if not any(reason in end.message for reason in lacks)]
    assert wrong == []


def test_what_once_failed_does_not(campaign):
    ended = {name: tried(case) for name, case in corpus().items()}
    assert ended
    assert {name: ending for name, ending in ended.items() if ending.how not in ("refused", "accepted")} == {}


@pytest.mark.deep
def test_no_input_is_accepted_wrongly_or_ends_in_a_traceback_or_not_at_all(campaign):
    """Hypothesis draws the same ones in every run; `python tests/fuzz --seed` draws others."""
    campaign.run(INPUTS, SEED)
    assert not campaign.failed, (campaign.failed[:3], campaign.table())
    outcomes = {how for _, how in campaign.counts}
    assert {"refused", "accepted"} <= outcomes


def test_nothing_is_started_meanwhile():
    import subprocess

    with pytest.raises(StartedError), guarded():
        subprocess.run(["true"], check=False)
