"""What a launch that goes on from a checkpoint tells of the machines and the other work of all of its sessions."""

from __future__ import annotations

import json

import pytest

from gradsync.runtime import sessions
from gradsync.runtime.sessions import Sessions
from gradsync.statistics import quiet

MACHINE = {"processor": "one", "cores": 4, "nodes": 1, "system": "Linux 6", "date": "2026-11-28"}


@pytest.fixture
def share(monkeypatch):
    """The share of other work since the launch went on, to be set."""
    now: dict[str, float] = {}
    monkeypatch.setattr(sessions.OtherWork, "share", lambda self: dict(now))
    return now


def test_the_busiest_session_counts(share):
    share[quiet.KEY] = 0.4
    first = Sessions(MACHINE)
    kept = json.loads(json.dumps(first.so_far()))
    assert first.provenance() == {quiet.KEY: 0.4}
    share[quiet.KEY] = 0.01
    again = Sessions({**MACHINE, "date": "2026-11-29"}, kept)
    assert again.provenance() == {quiet.KEY: 0.4}
    assert again.notes() == []
    assert [session[quiet.KEY] for session in again.so_far()] == [0.4, 0.01]
    share.clear()  # too short to be known
    assert Sessions(MACHINE, kept).provenance() == {quiet.KEY: 0.4}
    assert Sessions(MACHINE).provenance() == {}


def test_another_machine_is_told(share):
    kept = Sessions(MACHINE).so_far()
    (note,) = Sessions({**MACHINE, "processor": "another", "cores": 8}, kept).notes()
    assert "on another machine (processor: one, then another, cores: 4, then 8)" in note
