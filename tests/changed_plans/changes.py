"""Changes of a plan at random: what somebody who writes a scheme may get wrong."""

from __future__ import annotations

import random

from changed_plans import coordinated, fields, loss_scales, operations, tables
from changed_plans.editing import Change
from changed_plans.fields import setting
from gradsync.plan import Collective, Local, Need, Plan, Ready, Recv, RecvAny, Reply, Send

CHANGES: dict[str, Change] = {
    "drop": operations.drop,
    "drop again": operations.drop,
    "double": operations.double,
    "move": operations.move,
    "move again": operations.move,
    "swap": operations.swap,
    "rename": operations.rename,
    "insert": operations.insert,
    "insert again": operations.insert,
    "message": operations.message,
    "lane": setting(lane=fields.lane),
    "reads": setting(reads=fields.refs_of("reads")),
    "writes": setting(writes=fields.refs_of("writes")),
    "ranges alike": fields.ranges_alike,
    "after": setting(after=fields.waits("after")),
    "after_previous": setting(after_previous=fields.waits("after_previous")),
    "buffers": tables.buffers,
    "shards": tables.shards,
    "tensors": tables.tensors,
    "ranks": tables.ranks,
    "repeat": tables.repeat,
    "kind": fields.kind,
    "algorithm": setting(Collective, algorithm=fields.algorithm),
    "levels": setting(Collective, shape=fields.shape),
    "axis": setting(Collective, over=fields.axis),
    "group": setting(Collective, ranks=fields.group),
    "root": setting(Collective, root=fields.rank),
    "tag": setting(Send, Recv, RecvAny, Reply, tag=fields.number),
    "rail": setting(Send, Recv, rail=fields.number),
    "channel": setting(Send, Recv, RecvAny, Reply, channel=fields.channel),
    "peer": setting(Send, Recv, to=fields.rank, source=fields.rank),
    "sources": setting(RecvAny, sources=fields.sources),
    "kernel": setting(Local, kernel=fields.kernel),
    "arguments": setting(Local, arguments=fields.arguments),
    "adds": setting(Ready, adds=lambda chance, op, plan: not op.adds),
    "tensor": setting(Ready, tensor=fields.tensor),
    "layer": setting(Need, layer=fields.tensor),
    **coordinated.CHANGES,
    **loss_scales.CHANGES,
}


def changed(plan: Plan, chance: random.Random, most: int = 4) -> tuple[Plan, list[str]]:
    """The plan after one change, or as often after two to `most`, and their names."""
    names = []
    for _ in range(1 if chance.random() < 0.5 else chance.randint(2, most)):
        name = chance.choice(list(CHANGES))
        names.append(name)
        plan = CHANGES[name](plan, chance)
    return plan, names
