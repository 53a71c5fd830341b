"""Recordings of several ranks of one training: which rank each is, how far their clocks differ, what they wait for.

All ranks leave a collective at about the same time, so the median difference of these moments is that of the clocks.
The rank that comes to a collective last waits for nobody: the shortest of the ranks' durations is that of the message,
and needs no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gradsync.errors import InputError
from gradsync.interchange.calls import calls
from gradsync.interchange.passes import Step
from gradsync.interchange.recording import Message, Recording


class Rank(NamedTuple):
    """A rank's recording with its steps, those of the warm-up left out."""

    number: int
    recording: Recording
    steps: list[Step]


class Clocks(NamedTuple):
    """Seconds by which each rank's clock is ahead of the first rank's, and how far ranks come apart to a message.

    None if there is no message that all ranks recorded.
    """

    offsets: list[float]
    arrival_seconds: float | None


def arranged(recorded: Sequence[tuple[Recording, list[Step]]], warm_up: int) -> list[Rank]:
    """The ranks in order; raises InputError if two are the same, or their steps or gradients differ."""
    numbers = _numbers([recording for recording, _ in recorded])
    for recording, steps in recorded:
        if len(steps) < 2 or len(steps) <= warm_up:
            raise InputError(
                f"trace {recording.where}: has {len(steps)} step(s) with a backward pass, of which {warm_up} "
                "(--warm-up) are left out: record at least two more than that"
            )
    ranks = [Rank(n, recording, steps) for n, (recording, steps) in zip(numbers, recorded, strict=True)]
    ranks.sort(key=lambda rank: rank.number)
    first_rank = ranks[0]
    for rank in ranks:
        if len(rank.steps) != len(first_rank.steps):
            raise InputError(
                f"trace {rank.recording.where} has {len(rank.steps)} steps, and {first_rank.recording.where} "
                f"{len(first_rank.steps)}: record the same steps on all ranks"
            )
    ranks = [rank._replace(steps=rank.steps[warm_up:]) for rank in ranks]
    for rank in ranks:
        _refuse_accumulated(rank, warm_up)
    expected = _gradients(first_rank.steps[-1])
    for rank in ranks:
        if apart := sorted(rank.steps[-1].functions ^ first_rank.steps[-1].functions):
            raise InputError(
                f"traces {first_rank.recording.where} and {rank.recording.where}: backward of one of them alone has "
                f"{apart[0]}: all ranks must be of one model that takes the same way"
            )
        for number, step in enumerate(rank.steps, warm_up):
            _refuse_others(rank, number, _gradients(step), expected, first_rank)
    return ranks


def _numbers(recordings: Sequence[Recording]) -> list[int]:
    """The rank of each, its place if none tells one; raises InputError if they are not of one training."""
    first = recordings[0]
    told = [each for each in recordings if each.rank is not None]
    if told and len(told) < len(recordings):
        other = next(each for each in recordings if each.rank is None)
        raise InputError(
            f"trace {other.where} doesn't tell its rank (distributedInfo), and {told[0].where} does: give traces of "
            "one training"
        )
    for each in recordings:
        if each.ranks != first.ranks:
            raise InputError(
                f"trace {each.where} is of a training of {each.ranks} ranks, and {first.where} of {first.ranks}: give "
                "traces of one training"
            )
    if not told and len(recordings) > 1:
        for each in recordings:
            if not (each.messages or calls(each.operators)):
                raise InputError(
                    f"trace {each.where}: tells no rank and has no message to others: give several traces only of "
                    "ranks that train together"
                )
    numbers = [place if each.rank is None else each.rank for place, each in enumerate(recordings)]
    places: dict[int, Recording] = {}
    for number, each in zip(numbers, recordings, strict=True):
        if number in places:
            raise InputError(
                f"traces {places[number].where} and {each.where} are both of rank {number}: give one trace per rank"
            )
        same = next((one for one in places.values() if one.operators == each.operators), None)
        if same is not None:
            raise InputError(f"traces {same.where} and {each.where} are of the same rank: give one trace per rank")
        places[number] = each
    return numbers


def _refuse_accumulated(rank: Rank, warm_up: int) -> None:
    """Raises InputError if some steps have an update and others have none: their mean would be of no step."""
    updated = [step.updated for step in rank.steps]
    if any(updated) and not all(updated):
        raise InputError(
            f"trace {rank.recording.where}: step {warm_up + updated.index(False)} has no Optimizer.step, and step "
            f"{warm_up + updated.index(True)} has one: they are micro-batches, or an update was left out: record steps "
            "with one backward and one update each, or annotate each forward with its backward alone, and name the "
            "annotation by --step-annotation"
        )


def _gradients(step: Step) -> list[object]:
    """What must be the same of the gradients of two steps: their shapes, if they were recorded, in order."""
    return [str(gradient.event.shapes[:1]) for gradient in step.gradients]


def _refuse_others(rank: Rank, number: int, given: list[object], expected: list[object], first: Rank) -> None:
    if given == expected:
        return
    other = "the last step" if rank.number == first.number else f"trace {first.recording.where}"
    what = f"{len(given)} gradients, and {other} {len(expected)}"
    if len(given) == len(expected):
        place = next(i for i, pair in enumerate(zip(given, expected, strict=True)) if pair[0] != pair[1])
        what = f"a gradient {place} of shape {given[place]}, and {other} one of {expected[place]}"
    raise InputError(
        f"trace {rank.recording.where}: step {number} has {what}: all steps of all ranks must be of one model that "
        "takes the same way"
    )


def matched(ranks: Sequence[Rank]) -> list[list[Message]]:
    """The messages that all ranks recorded, each with what every rank recorded of it; in order, without the warm-up's.

    Messages of one kind and group are matched by their number in the recording; kinds and groups of which ranks
    recorded different numbers are left out.
    """
    by_rank = []
    for rank in ranks:
        kinds: dict[tuple[str, str], list[Message]] = defaultdict(list)
        for message in rank.recording.messages:
            kinds[message.kind, message.group].append(message)
        by_rank.append(kinds)
    common = []
    for key, messages in by_rank[0].items():
        if all(len(kinds[key]) == len(messages) for kinds in by_rank[1:]):
            common += [list(each) for each in zip(*(kinds[key] for kinds in by_rank), strict=True)]
    begin = ranks[0].steps[0].start
    return sorted((each for each in common if each[0].start >= begin), key=lambda each: each[0].start)


def clocks(ranks: Sequence[Rank]) -> Clocks:
    """How the clocks of ranks differ, and how far apart ranks come to a message once that is taken out."""
    origins = [float(rank.recording.source.get("origin_seconds", 0.0)) for rank in ranks]
    common = matched(ranks)
    if len(ranks) < 2 or not common:
        return Clocks([0.0] * len(ranks), None)
    ends = [[message.end for message in of_rank] for of_rank in zip(*common, strict=True)]
    apart = [median(mine - first for mine, first in zip(end, ends[0], strict=True)) for end in ends]
    spread = []
    for each in common:
        starts = [message.start - ahead for message, ahead in zip(each, apart, strict=True)]
        spread.append(max(starts) - min(starts))
    offsets = [ahead + origin - origins[0] for ahead, origin in zip(apart, origins, strict=True)]
    return Clocks(offsets, sum(spread) / len(spread))
