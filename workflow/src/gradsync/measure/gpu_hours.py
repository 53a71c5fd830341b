"""What a configuration will cost on a cluster, before anything is measured: launches, iterations, GPU hours.

Operations are counted on the model itself, and nothing is computed. The speeds at which a rank computes and sends are
assumed (`estimate` in the configuration), and nothing overlaps: an upper bound of training under these assumptions.
Samples that are waited for and test samples, which the ranks share after each epoch, come on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradsync.configuration import peers, schemes
from gradsync.configuration.launches import Training
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.measure import operations

# Samples of a full set, for launches that are counted in epochs: the sets' own documentation.
# Of text: Python's documentation in sequences of 128 tokens.
SAMPLES = {
    "digits": 1437,
    "text": 870,
    "mnist": 60_000,
    "cifar10": 50_000,
    "imagenet": 1_281_167,
    "synthetic": 50_000,
    "translation": 6000,
}
OF_FOLDERS = ("text", "translation")  # which may be of files of one's own
FORWARD_AND_BACKWARD = 1 + operations.BACKWARD
REFERENCES = 2  # without communication, and one rank alone


class Launch(NamedTuple):
    """One job that trains; `seconds` of it, `gpu_hours` of all its ranks."""

    job: str
    ranks: int
    contenders: int
    iterations: int
    seconds: float
    gpu_hours: float


def estimate(settings: Settings) -> list[Launch]:
    """Every launch of a configuration; raises InputError for epochs of a set whose samples nobody has counted."""
    known_schemes, known_peers = schemes.load(settings.schemes), peers.load(settings.peers)
    launches = []
    for training in settings.training:
        where = "schemes", training.ranks, settings.device
        contenders = len(schemes.pick(known_schemes, training.schemes, *where, in_phases=True))
        contenders += len(peers.pick(known_peers, training.peers, "peers"))
        contenders += REFERENCES if training.references else 0
        parameters, timed = 0, list[tuple[int, float]]()  # iterations and their seconds of computation, by stage
        for count, size, batch in _stages(training):
            forward_operations, parameters = cost(training.model, size)
            computing = FORWARD_AND_BACKWARD * forward_operations * batch * training.accumulate
            timed.append((count, computing / (settings.estimate.teraflops * 1e12)))
        # layers are profiled in iterations of their own, at the size of the first stage
        timed = [(count * contenders * len(training.seeds), seconds) for count, seconds in timed]
        timed[0] = timed[0][0] + training.profile_iterations, timed[0][1]
        # a ring at line rate: 2 (N - 1) / N M / B
        sent = 2 * (training.ranks - 1) / training.ranks * 4 * parameters
        sending = 8 * sent / (settings.estimate.gigabits * 1e9)
        iterations = sum(count for count, _ in timed)
        seconds = settings.estimate.startup_seconds + sum(count * (each + sending) for count, each in timed)
        hours = training.ranks * seconds / 3600
        launches.append(Launch(training.job, training.ranks, contenders, iterations, seconds, hours))
    return launches


def _stages(training: Training) -> Iterator[tuple[int, int | None, int]]:
    """Of each stage the iterations of one contender, the size and the batch."""
    left = training.iterations
    for stage in training.options("cpu").stages:
        batch = stage.batch or training.batch
        known = training.data in SAMPLES and not (training.data in OF_FOLDERS and training.data_folder)
        if not known and (training.recipe or not training.iterations):
            raise InputError(
                f"launch {training.job}: how many samples an epoch of {training.data!r} has is up to its files: "
                "an estimate needs `iterations`, and no `recipe`"
            )
        an_epoch = max(1, SAMPLES.get(training.data, 0) // (batch * training.accumulate * training.ranks))
        if training.iterations and not training.recipe:
            count = training.iterations
        else:
            count = min(left, stage.epochs * an_epoch) if training.iterations else stage.epochs * an_epoch
        left -= count
        yield count, stage.size, batch


def cost(name: str, size: int | None) -> tuple[int, int]:
    """Floating point operations of forward for one sample, and parameters; raises InputError for an unknown model."""
    return sum(operations.forward(name, size).values()), operations.parameters(name)


def table(launches: list[Launch]) -> str:
    """One line per launch and the sums, as text."""
    lines = [f"{'job':<16}{'ranks':>6}{'contenders':>12}{'iterations':>12}{'minutes':>9}{'GPU hours':>11}"]
    for launch in launches:
        lines.append(
            f"{launch.job:<16}{launch.ranks:>6}{launch.contenders:>12}{launch.iterations:>12}"
            f"{launch.seconds / 60:>9.1f}{launch.gpu_hours:>11.1f}"
        )
    total = sum(launch.gpu_hours for launch in launches)
    left_out = "without waits for samples, and without test samples, which the ranks share after each epoch"
    return "\n".join([*lines, f"{len(launches)} launches, {total:.0f} GPU hours, {left_out}"])
