"""Several messages at once, each of whole gradients, on `lanes` lanes: what the ASC-WFBP paper leaves as future work.

Under the contention of the cost (`costs/contention.py`) a message leaves once its gradients are there and a lane is
free. The layers are grouped by the best, timed exactly, of these groupings:

- `optimal`, `mgwfbp` and `wfbp`;
- the exact optimum for a link with the speed of all lanes together, if only a share of each start-up counts, since the
  transfer of other lanes hides the rest; each also with its last message, and with every message, cut into one for
  each lane;
- and what local search makes of the best of them.

The plan is never worse than `optimal` on one lane, which is among the candidates. Not in a paper.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, mgwfbp, optimal, wfbp
from gradsync.schedules._plans import Instance, Plan, first_to_end, refuse_lanes, whole
from gradsync.schedules._refined import refined

LAUNCHES = 3000  # messages that local search may time


def schedule(workload: Workload, cost: MessageCost, *, lanes: int = 2) -> tuple[Message, ...]:
    """Raises InputError for fewer than one lane."""
    refuse_lanes("kway", lanes)
    instance = Instance(workload, cost, lanes).of_whole_gradients()
    # of equals the one on a single lane
    return first_to_end(workload, cost, (optimal.alone(workload, cost), instance.messages(best(instance))))


def best(instance: Instance) -> Plan:
    """The best plan of whole gradients after local search."""
    return refined(instance, instance.best(candidates(instance)), LAUNCHES)


def candidates(instance: Instance) -> Iterator[Plan]:
    """Groupings to choose from, in whole gradients."""
    arguments = instance.workload, instance.cost
    planners = optimal.alone, mgwfbp.schedule, wfbp.schedule
    yield from (whole(message.last for message in planner(*arguments)) for planner in planners)
    for lasts in instance.groupings():
        plan = whole(lasts)
        yield from dict.fromkeys((plan, instance.cut(plan, [len(plan) - 1]), instance.cut(plan, range(len(plan)))))
