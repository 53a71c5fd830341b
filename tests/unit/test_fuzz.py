"""A bounded campaign of bad input, and what once failed in one."""

from __future__ import annotations

import pytest

from fuzz import campaign, table


@pytest.mark.parametrize("seed", range(2))
def test_no_input_ends_in_a_traceback_or_not_at_all(seed):
    """Five hundred each: every subcommand, every configuration, plans and workloads."""
    counts, failed = campaign(500, seed)
    assert not failed, (failed[:3], table(counts))
    outcomes = {how for _, how in counts}
    assert outcomes == {"refused", "accepted"}
