"""What tests of the command line share: a made-up workload, costs, an earlier file, a plan that fails its check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradsync.cli import main

ROOT = Path(__file__).parents[2]
# the smallest net on which Algorithm 1 is not optimal: (name, bytes, backward seconds) in backward order
ERRATUM = [("l3", 12, 5.0), ("l2", 2, 4.0), ("l1", 10, 7.0)]
LINE = "a=8,b=1"
EARLIER = "an earlier file"


def advice(capsys: Any, *arguments: object) -> dict[str, Any]:
    """What `gradsync advise --json` prints."""
    assert main(["advise", "--json", *map(str, arguments)]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def workload_json(layers: list[tuple[str, int, float]] = ERRATUM, **changes: object) -> str:
    content = {
        "version": 1,
        "name": "erratum",
        "forward_seconds": 0.0,
        "layers": [{"name": name, "bytes": size, "backward_seconds": seconds} for name, size, seconds in layers],
    }
    return json.dumps({**content, **changes})


def points_csv(sizes: list[int]) -> str:
    return "bytes,seconds\n" + "".join(f"{size},{8.0 + size}\n" for size in sizes)


def without_first_message(plan: Path) -> str:
    content = json.loads(plan.read_text())
    (role,) = content["roles"]
    body = [operation for operation in role["body"] if operation["name"] != "message0"]
    assert len(body) == len(role["body"]) - 1
    role["body"] = body
    return json.dumps(content)
