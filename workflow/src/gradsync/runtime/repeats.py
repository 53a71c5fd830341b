"""The repeats of a launch: one value per block of each contender, in the order of the blocks.

Contenders take turns in blocks, A B C .. C B A, so that value i of one and value i of another are a pair:
a slow moment of the machine falls on both. Turns of one block are no repeats of one another: its median counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from gradsync.files.results import OPERATION
from gradsync.runtime.contenders import NO_COMMUNICATION, ONE_RANK, Record


def repeats(records: Mapping[str, Record], name: str, ranks: int) -> dict[str, list[float]]:
    """Repeats of contender `name` by quantity: seconds of an iteration and, with references, comparisons with them."""
    record = records[name]
    iteration = np.array(record.blocks)
    quantities = {"iteration_seconds": iteration}
    if {ONE_RANK, NO_COMMUNICATION} <= records.keys() and name not in (ONE_RANK, NO_COMMUNICATION):
        alone, computing = (np.array(records[each].blocks) for each in (ONE_RANK, NO_COMMUNICATION))
        quantities |= {"speedup": ranks * alone / iteration, "efficiency": alone / iteration}
        quantities |= {"computation_seconds": computing, "over_no_communication_seconds": iteration - computing}
    if record.exposed and name != NO_COMMUNICATION:
        quantities["exposed_communication_seconds"] = _by_block(record, record.exposed)
        quantities["waiting_seconds"] = _by_block(record, record.waiting)
        quantities["busy_computation_seconds"] = _by_block(record, record.computation)
    # operations of two phases may have one name
    operations = {} if record.phases else record.operations
    of_all_blocks = {name: each for name, each in operations.items() if len(each) == len(iteration)}
    quantities |= {f"{OPERATION}{name.replace(':', '_')}": np.array(each) for name, each in of_all_blocks.items()}
    if record.reading:
        quantities["io_seconds"], quantities["exposed_io_seconds"] = np.array(record.reading).T
    return {key: values.tolist() for key, values in quantities.items()}


def of_phases(record: Record) -> dict[str, float]:
    """What each phase took, of a training with one seed: its iterations, and their seconds (the whole, and of one).

    An iteration counts with the median of its block, so that the first of a block, which isn't timed, has its share.
    `switch_seconds` is the median time between two phases, in which no iteration runs.
    """
    turns = Counter(block for _, _, block, _, _ in record.rows)
    seeds = len({seed for seed, *_ in record.rows})
    summary: dict[str, float] = {}
    for phase in sorted(set(record.phases)):
        blocks = [number for number, of_block in enumerate(record.phases) if of_block == phase]
        iterations = sum(turns[block] for block in blocks)
        seconds = sum(turns[block] * record.blocks[block] for block in blocks)
        summary |= {
            f"phase{phase}_iterations": iterations / seeds,
            f"phase{phase}_seconds": seconds / seeds,
            f"phase{phase}_iteration_seconds": float(np.median([record.blocks[block] for block in blocks])),
        }
    if record.switches:
        summary["switch_seconds"] = float(np.median([seconds for _, _, seconds in record.switches]))
    return summary


def to_accuracy(record: Record, target: float) -> dict[str, float]:
    """Seconds of iterations and switches until a test accuracy was reached, the median over seeds that have reached it.

    They are those of the contender alone, without evaluations; an iteration that isn't timed counts with the median of
    its block. `reached_target` is the number of these seeds.
    """
    taken = []
    for seed in dict.fromkeys(each for each, _, _ in record.accuracy):
        ended = next((turn for each, turn, accuracy in record.accuracy if each == seed and accuracy >= target), None)
        if ended is not None:
            turns = (
                record.blocks[block] if seconds is None else seconds
                for each, turn, block, _, seconds in record.rows
                if each == seed and turn <= ended
            )
            between = (seconds for each, turn, seconds in record.switches if each == seed and turn <= ended)
            taken.append(sum(turns) + sum(between))
    reached = {"reached_target": float(len(taken))}
    return reached | ({"seconds_to_accuracy": float(np.median(taken))} if taken else {})


def _by_block(record: Record, by_turn: Sequence[float]) -> np.ndarray:
    """Medians over blocks; `by_turn` has one value per turn that was timed."""
    timed = [block for _, _, block, _, seconds in record.rows if seconds is not None]
    turns = [len(list(part)) for _, part in groupby(timed)]
    return np.array([np.median(part) for part in np.split(np.array(by_turn), np.cumsum(turns)[:-1])])
