"""Local search: a plan is changed at one message at a time as long as that lets the last message end sooner."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.schedules._plans import BETTER, Instance, Plan


def refined(instance: Instance, plan: Plan, launches: int) -> Plan:
    """The plan after all changes that help, or after those found by timing so many messages.

    Changes of the last messages come first: they decide most, and only what follows a change is timed anew.
    """
    states = instance.states(plan)
    shortest = states[-1].drained()
    most_launches = instance.launches + launches
    improved = True
    while improved and shortest > instance.enough:
        improved = False
        number = len(plan) - 1
        while number >= 0:
            for begin, changed in _changes(instance, plan, number):
                if instance.launches >= most_launches:
                    return plan
                changed_states = instance.states(changed, begin, states)
                seconds = changed_states[-1].drained()
                if seconds < shortest * BETTER:
                    plan, states, shortest, improved = changed, changed_states, seconds, True
                    number = min(number + 1, len(plan))  # again from this message on
                    break
            number -= 1
    return plan


def _changes(instance: Instance, plan: Plan, number: int) -> Iterator[tuple[int, Plan]]:
    """Plans that differ from this one in a message or where it ends, each with the first message that differs."""
    first = plan[number - 1][0] + 1 if number else 0
    last, pieces = plan[number]
    for count in range(1, instance.most_pieces(first, last) + 1):
        if count != pieces:
            yield number, (*plan[:number], (last, count), *plan[number + 1 :])
    if number + 1 < len(plan):
        end, pieces_after = plan[number + 1]
        step = max(last - first, end - last - 1)
        while step >= 1:
            for moved in (last - step, last + step):
                if first <= moved < end:
                    yield number, (*plan[:number], (moved, 1), (end, 1), *plan[number + 2 :])
                    if (pieces, pieces_after) != (1, 1):
                        left = min(pieces, instance.most_pieces(first, moved))
                        right = min(pieces_after, instance.most_pieces(moved + 1, end))
                        yield number, (*plan[:number], (moved, left), (end, right), *plan[number + 2 :])
            step //= 2
        yield number, (*plan[:number], (end, 1), *plan[number + 2 :])
        if instance.most_pieces(first, end) > 1:
            yield number, (*plan[:number], (end, instance.most_pieces(first, end)), *plan[number + 2 :])
    if last > first:
        middle = instance.position[first] + (instance.position[last + 1] - instance.position[first]) / 2
        border = min(range(first, last), key=lambda i: abs(instance.position[i + 1] - middle))
        yield number, (*plan[:number], (border, 1), (last, 1), *plan[number + 1 :])
