"""Jobs of Slurm that are killed while they train go on, lose nothing and leave nothing behind.

With more kills, at any moment: `python tests/kills --kills 200`.
"""

from __future__ import annotations

import random
from typing import Any

from slurm_here import needs_slurm

from kills import subjects
from kills.campaign import BAD, Campaign, kinds, lines, patient
from kills.jobs import STEP, SUBMITTER, Jobs

pytestmark = needs_slurm
IN_TURN = [STEP, SUBMITTER]


class AtTheFirstCheckpoint(random.Random):
    """Each victim in its turn."""

    def __init__(self, victims: list[str]) -> None:
        super().__init__(0)
        self.victims = iter(victims)

    def random(self) -> float:
        return 0.0

    def choice(self, among: Any) -> Any:
        return next(self.victims) if isinstance(among[0], str) else False


def test_killed_jobs_go_on_and_leave_nothing(slurm, tmp_path):
    """Without its slurmstepd a rank ends, or srun would wait for it for ever."""
    (subject,) = subjects.every(tmp_path, ["slurm"], Jobs(slurm.folder))
    messages: list[str] = []
    campaign = patient(Campaign(subject, tmp_path, AtTheFirstCheckpoint(IN_TURN), messages.append))
    table = campaign.run(len(IN_TURN), len(IN_TURN))
    print("\n".join(lines(table)))
    assert not {kind for kind in BAD if kinds(table)[kind]}, messages
    assert table["slurm", STEP, "resumed"] == 1
    # the same command is refused, by name, while the job lives; if it has ended just before, it is done again
    assert table["slurm", SUBMITTER, "lived on"] + table["slurm", SUBMITTER, "anew"] == 1
