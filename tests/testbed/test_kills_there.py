"""Launches on a testbed and on a disk that fills, disturbed at random moments, go on and leave nothing behind."""

from __future__ import annotations

import pytest

from gradsync.testbed import privileges
from kills.campaign import killed
from small_disk import small_disks

KILLS, SEED = 4, 3


@pytest.mark.skipif(bool(privileges.impossible()), reason=f"no testbed here: {privileges.impossible()}")
def test_killed_launches_on_a_testbed_go_on_and_leave_nothing(tmp_path):
    killed(tmp_path, ["testbed"], KILLS, SEED)


@pytest.mark.skipif(not small_disks(), reason="no small disk can be mounted here: needs root")
def test_launches_on_a_disk_that_fills_go_on_and_leave_nothing(tmp_path):
    killed(tmp_path, ["disk"], KILLS, SEED)
