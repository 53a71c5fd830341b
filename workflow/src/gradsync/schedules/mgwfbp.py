"""MG-WFBP: merge a gradient into the next one if that saves more than it waits (Algorithm 1, Theorem 1, Eq. 27).

Layer l is merged into layer l-1 iff ready[l-1] - tau_c[l] < gain, where the gain of merging is
T(m[l]) + T(m[l-1]) - T(m[l] + m[l-1]); on a linear cost that is the start-up a (Eq. 10).

Differs from the paper:
- line 9 stops at l=2 although tau_b[1] is read, and line 13 reads tau_b[0], which does not exist: here ready[l] is
  the end of backward of l, for every l (MG-E01, MG-E02);
- T takes bytes, not a number of parameters (MG-E04), and works on copies (MG-E05);
- the paper recomputes all start times after each merge, O(L^2); only the next one is ever read: O(L) here;
- optimality (Theorem 1) does not hold: the test takes for granted that layer l-1 is sent by itself, but it may be
  merged on, which delays the group (MG-E09). `optimal` is exact.

`as_printed` keeps Algorithm 1 to the letter: elements of arrays that the printed loops never set stay zero, and T takes
the parameter count.
"""

from __future__ import annotations

import numpy as np

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped


def schedule(workload: Workload, cost: MessageCost, *, as_printed: bool = False) -> tuple[Message, ...]:
    """The merged-gradient layers of Algorithm 1, as messages."""
    merged = _printed(workload, cost) if as_printed else _corrected(workload, cost)
    return grouped(i for i in range(len(workload.layers)) if i not in merged)


def _corrected(workload: Workload, cost: MessageCost) -> set[int]:
    ready, m = workload.ready_seconds(), workload.sizes()  # index i is layer l = L - i: backward order
    single = cost.seconds(m)
    merged = set()
    tau_c, pending, t_pending = ready[0], m[0], single[0]  # start, bytes, seconds of the group that ends at i
    for i in range(len(m) - 1):
        t_merged = cost.seconds(pending + m[i + 1])
        # Eq. 27:  ready[l-1] - tau_c[l] < T(m[l]) + T(m[l-1]) - T(m[l] + m[l-1])
        if ready[i + 1] - tau_c < t_pending + single[i + 1] - t_merged:
            merged.add(i)
            tau_c = max(tau_c, ready[i + 1])  # Eq. 15, with t_c[l] = 0
            pending, t_pending = pending + m[i + 1], t_merged
        else:
            tau_c = max(tau_c + t_pending, ready[i + 1])  # Eq. 7
            pending, t_pending = m[i + 1], single[i + 1]
    return merged


def _printed(workload: Workload, cost: MessageCost) -> set[int]:
    L = len(workload.layers)  # noqa: N806
    # arrays 0..L, layer 1 next to the input; p is a parameter count, as lines 6 and 20 have it
    p = np.array([0.0] + [layer.parameters for layer in reversed(workload.layers)])
    tb = np.array([0.0] + [layer.backward_seconds for layer in reversed(workload.layers)])
    tc = cost.seconds(np.maximum(p, 1e-300))  # line 6
    tau_b = np.zeros(L + 1)  # line 3
    tau_b[L] = workload.forward_seconds  # line 8
    for l in range(L - 1, 1, -1):  # noqa: E741  line 9: never reaches 1
        tau_b[l] = tau_b[l + 1] + tb[l + 1]
    a = cost.startup_seconds(p[1:].min())
    merged = set()
    tau_c = tau_b[L] + tb[L]  # line 23
    for l in range(L, 1, -1):  # noqa: E741  line 12
        # line 13; tau_c[l] is as CalculateCommStart leaves it: only the layers above l have changed it
        if tau_b[l - 2] - tau_c < a:
            tc[l] = 0.0  # line 18
            p[l - 1] += p[l]  # line 19
            tc[l - 1] = cost.seconds(p[l - 1])  # line 20
            merged.add(L - l)
        tau_c = max(tau_c + tc[l], tau_b[l - 1] + tb[l - 1])  # line 25
    return merged
