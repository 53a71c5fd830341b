"""What the refusal of a plan shows."""

from __future__ import annotations

import pytest

from gradsync.check import PlanError, check
from gradsync.plan import Plan


def marked_in_the_grid(plan: Plan) -> list[str]:
    """The cells that are marked in the grid with which the refusal of a plan ends."""
    with pytest.raises(PlanError) as caught:
        check(plan)
    _, header, *rows = str(caught.value).splitlines()
    assert "step " in header
    assert any(row.startswith("rank ") for row in rows)
    return [cell.split("<<")[0] for row in rows for cell in row.split(">>")[1:]]
