"""A plan run through without time: everything finishes, every message is received, every content is what it must be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gradsync.check.channels import served
from gradsync.check.contents import ContentError, Run
from gradsync.check.few_passes import on_few_passes
from gradsync.check.few_ranks import on_few_ranks
from gradsync.check.finish import refuse_unfinished
from gradsync.check.grid import PlanError, fail
from gradsync.engine.progress import Clock, Cost, Event, Progress
from gradsync.plan import Plan, RecvAny, Reply, Send, SharedAdd

TURNS = 3  # the first, one after it, and one of which all that lies before is as in any later one
ORDERS = 3  # in which messages come to who takes them from anybody


class _Chance(Clock):
    """Every operation takes a time of its own, so that what is left to timing comes in another order."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def local(self, rank: int, operation: Any) -> float:
        return self.random.random()

    def message(self, operation: Any) -> Cost:
        return Cost(self.random.random(), 0.0)


def refuse_runs(plan: Plan) -> None:
    """Raises PlanError if a run of `TURNS` turns doesn't come to its end, or to the values that it should."""
    plan = on_few_passes(plan)
    few = on_few_ranks(plan)
    _follow(plan, few, _run(plan, Progress(plan, TURNS, Clock(), (0,) if plan.symmetric else None)))
    if any(isinstance(op, Send | Reply) for role in plan.roles for op in role.flat):
        # a plan that ends if messages wait in between can still hang if sends wait for their receives
        _run(plan, Progress(plan, TURNS, Clock(), rendezvous=True), " (a send is finished only when it is received)")
    if any(isinstance(op, RecvAny | SharedAdd) for role in plan.roles for op in role.flat):
        for seed in range(ORDERS):
            events = _run(plan, Progress(plan, TURNS, _Chance(seed), rendezvous=bool(seed % 2)))
            _follow(plan, plan, events)


def _follow(plan: Plan, few: Plan, events: Sequence[Event]) -> None:
    """Follow the contents of `few`, which stands for `plan`, through events of all ranks, or of one for all."""
    run = Run(few, TURNS)
    try:
        for event in events:
            for rank in range(few.ranks) if plan.symmetric else (event.rank,):
                run.follow(event._replace(rank=rank))
        refuse_unfinished(run)
    except ContentError as error:
        raise PlanError(plan, error.problem, {(error.rank, error.step): "!"}) from None


def _run(plan: Plan, progress: Progress, how: str = "") -> list[Event]:
    """Runs `progress` and gives its events; if it does not end, raises PlanError with what each rank waits at."""
    outcome = progress.run()
    if outcome.stuck:
        first: dict[int, tuple[int, int]] = {}
        for rank, turn, index in outcome.stuck:
            if (rank, turn, index) in progress.started and (rank not in first or (turn, index) < first[rank]):
                first[rank] = (turn, index)
        waiting = ", ".join(
            f"rank {rank} at {plan.role_of[rank].flat[index].name!r}" for rank, (_, index) in sorted(first.items())[:4]
        )
        where = {(rank, index): "waits" for rank, (_, index) in first.items()}
        raise PlanError(plan, f"deadlock{how}: {waiting or 'nothing can start'}", where)
    for (source, to, _, _, tag), messages in progress.inbox.items():
        if messages:
            role = plan.role_of[source]
            steps = [step for step, op in enumerate(role.flat) if isinstance(op, Send | Reply) and op.tag == tag]
            problem = (
                f"unmatched send: rank {to} never receives {len(messages)} message(s) of rank {source} (tag {tag})"
            )
            fail(plan, problem, role, steps)
    _refuse_unfinished_service(plan, outcome.events)
    return outcome.events


def _refuse_unfinished_service(plan: Plan, events: Sequence[Event]) -> None:
    """Who serves others has done whole passes, as many as real ranks do."""
    for role in plan.roles:
        if not role.until_stopped:
            continue
        expected = TURNS * served(plan, role)
        done = {rank: [0] * len(role.flat) for rank in role.ranks}
        for event in events:
            if event.rank in done:
                done[event.rank][event.step] += 1
        for rank, times in done.items():
            for step, count in enumerate(times):
                if count != expected:
                    problem = (
                        f"{role.flat[step].name!r} of rank {rank} runs {count} times in {TURNS} turns of those that it "
                        f"serves: {expected} passes are whole"
                    )
                    raise PlanError(plan, problem, {(rank, step): "!"})
