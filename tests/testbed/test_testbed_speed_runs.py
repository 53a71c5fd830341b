"""The benchmark of testbeds on a real one: messages that sum right, none faster than its links."""

from __future__ import annotations

import os

from gradsync.benchmarks import bml_speed
from gradsync.benchmarks.bml_speed import Contender
from testbeds import netns, real


@real
def test_messages_of_a_launch_are_timed_and_none_beats_the_links(tmp_path):
    small, large = 4096, 300_000
    bml = Contender("bml", "bcube:2,2")
    times = bml_speed.launched(bml, tmp_path, "config/quick.yaml", (small, large))
    assert list(times) == [small, large]
    for seconds in times.values():
        assert len(seconds) >= 2 * 5  # two blocks at least, whose first message is not timed
    # 3 %: what a bucket may give at once
    assert sum(times[large]) / len(times[large]) > 0.97 * bml_speed.line_rate_seconds(bml, large)
    assert not [name for name in netns() if name.startswith(f"gradsync-{os.getpid()}-")]
