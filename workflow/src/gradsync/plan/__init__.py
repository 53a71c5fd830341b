"""A plan: the body of a training loop as plain, frozen, serialisable data.

A scheme never runs anything: it plans. The same plan is checked (`check/`), timed (`engine/simulate.py`),
evaluated (`engine/oracle.py`), executed (`runtime/execute.py`) and drawn (`drawing/timeline.py`).

A plan lists the *operations* of one turn of the loop in their launch order, once for each *role* of ranks: what is
computed, what is sent and received, and which ranges of which *buffers* it reads and writes. This is synchronous SGD of
one layer on two ranks:

    Need(name="forward", reads=(Ref("parameter", 0, 4),), after_previous=("update",))
    Ready(name="ready:fc", tensor="fc", reads=(Ref("parameter", 0, 4),), writes=(Ref("gradient", 0, 4),))
    Collective(name="message0", lane="network", after=("ready:fc",), reads=(Ref("gradient", 0, 4),), writes=..)
    Local(name="update", kernel="sgd", after=("message0",), reads=(Ref("gradient", 0, 4),), writes=..)

`buffers.py` holds what operations work on, `mesh.py` how ranks lie on axes, `shards.py` what a rank has of a buffer,
`operations.py` the vocabulary,
`repeats.py` spells out what a turn does several times, `loop.py` has roles and plans with their JSON: read it for the
meaning of lanes, waits and channels.
"""

from gradsync.plan.buffers import (
    BYTES,
    CLOSED,
    DTYPE_BYTES,
    KEYED,
    PASSING,
    WORLD,
    Buffer,
    BufferRole,
    Ref,
    Tensor,
    piece,
)
from gradsync.plan.loop import VERSION, Plan, Role
from gradsync.plan.mesh import Axis, Group, Mesh
from gradsync.plan.operations import (
    CHANNEL,
    COMPUTE,
    Collective,
    Kind,
    Local,
    Need,
    Operation,
    Ready,
    Recv,
    RecvAny,
    Repeat,
    Reply,
    Send,
    SharedAdd,
    SharedRead,
)

__all__ = [
    "BYTES",
    "CHANNEL",
    "CLOSED",
    "COMPUTE",
    "DTYPE_BYTES",
    "KEYED",
    "PASSING",
    "VERSION",
    "WORLD",
    "Axis",
    "Buffer",
    "BufferRole",
    "Collective",
    "Group",
    "Kind",
    "Local",
    "Mesh",
    "Need",
    "Operation",
    "Plan",
    "Ready",
    "Recv",
    "RecvAny",
    "Ref",
    "Repeat",
    "Reply",
    "Role",
    "Send",
    "SharedAdd",
    "SharedRead",
    "Tensor",
    "piece",
]
