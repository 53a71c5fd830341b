"""The paper's testbed, and the band of what it leaves open: each model's workload, the network, contention.

Differs from the paper in what it does not publish: how backward is spread over the layers, and t_f and t_b of three of
the four models, which are derived from Table V if that is possible.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gradsync.configuration.settings import Settings
from gradsync.costs import Linear
from gradsync.costs.contention import Contended
from gradsync.engine.bounds import Links
from gradsync.papers import labels
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload

MODELS = {name: labels.MODELS[name] for name in ("resnet152", "densenet201", "inceptionv4", "bert_base")}
SCHEMES = ("wfbp", "mgwfbp", "ascwfbp")  # of Table IV
FORWARD = ("least", "middle", "most")
OPERATIONS, EVEN = "operations", "even"
GRADIENT_BITS, BITS = 32, 8


class BandPoint(NamedTuple):
    """What is assumed of a GPU's computation: which end of t_f's band, and how backward is spread over the layers."""

    forward: str = "middle"
    layers: str = OPERATIONS

    def __str__(self) -> str:
        return f"t_f {self.forward}, layers by {self.layers}"


CENTRE = BandPoint()
# one at a time: the ends of t_f, and the other way to spread backward
POINTS = (CENTRE, BandPoint(forward="least"), BandPoint(forward="most"), BandPoint(layers=EVEN))


class Bench(NamedTuple):
    """The testbed. Seconds, bytes, bits per second; `a` and `b` of an all-reduce between all workers."""

    nodes: int
    workers: int
    a: float
    b: float
    gamma: float
    link: float  # bits per second, as measured and used in Eq. 43
    full: float  # bytes from which on two contending messages nearly fill the link
    fitted: tuple[float, float]  # bytes, Fig. 4(a)
    file: Testbed

    @property
    def line(self) -> Linear:
        """Eq. 3 with the stated constants."""
        return Linear(self.a, self.b, "Section VI-B")

    def contended(self, line: Linear, kind: str) -> Contended:
        """`line` on a link that carries 2 / gamma messages at a time (`gamma`), or one (`full`)."""
        return Contended(line, self._messages(kind))

    def links(self, kind: str) -> Links:
        """A node's link at its measured rate, which is that of b; `gamma` assumes one that carries more."""
        return Links(self.link / BITS * self._messages(kind), ranks_per_node=self.workers // self.nodes)

    def _messages(self, kind: str) -> float:
        return 2 / self.gamma if kind == "gamma" else 1.0

    def largest_throughput(self) -> float:
        """All-reduced bytes per second that the link allows: B / 2, as t_c_min of Eq. 43 has it."""
        return self.link / (2 * BITS)

    def computation(self, model: str) -> float:
        """t_f + t_b."""
        return self.file.number("computation_seconds", "value", model)

    def forward(self, model: str, point: BandPoint = CENTRE) -> float:
        """t_f at a point of the band."""
        shares = self.file.numbers("forward_share", model, least=len(FORWARD))
        return self.computation(model) * shares[FORWARD.index(point.forward)]

    def published(self, scheme: str, model: str) -> float:
        """An iteration of Table IV."""
        return self.file.number("iteration_seconds", scheme, model)

    def smallest_communication(self, parameters: float) -> float:
        """t_c_min = 2 m / B (Eq. 43, ASC-E37: bits); the ring's (P-1)/P is dropped."""
        return 2 * parameters * GRADIENT_BITS / self.link

    def largest_speedup(self, model: str, point: BandPoint = CENTRE, parameters: float | None = None) -> float:
        """Eq. 42: S_max = P (t_f + t_b) / (t_f + t_b + t_c_min - min(t_b, t_c_min)); by default of Table III."""
        computed = self.computation(model)
        wire = self.smallest_communication(
            self.file.number("parameters", "value", model) if parameters is None else parameters
        )
        hidden = min(computed - self.forward(model, point), wire)
        return self.workers * computed / (computed + wire - hidden)


def bench(settings: Settings) -> Bench:
    """The testbed from its file; raises InputError with file and key if it lacks something."""
    file = Testbed(settings.of_paper("ascwfbp").testbed)

    def number(key: str) -> float:
        return file.number(key, "value")

    smallest, largest = file.numbers("fitted_bytes", "value", least=2)[:2]
    return Bench(
        int(number("nodes")),
        int(number("workers")),
        number("allreduce_startup_seconds"),
        number("allreduce_seconds_per_byte"),
        number("gamma"),
        number("link_bits_per_second_measured"),
        number("full_bandwidth_bytes"),
        (smallest, largest),
        file,
    )


def counted(model: str, results: Path) -> Workload:
    """The model's tensors, and the operations of one sample; raises InputError if they have not been counted."""
    return Workload.load(results / "counted" / model / "workload.json")


def workload(model: str, settings: Settings, results: Path, point: BandPoint = CENTRE) -> Workload:
    """What a GPU computes and sends in an iteration: published totals, at a point of the band."""
    testbed, layers = bench(settings), counted(model, results)
    if point.layers == EVEN:
        even = tuple(layer.model_copy(update={"backward_seconds": 1.0}) for layer in layers.layers)
        layers = layers.model_copy(update={"layers": even})
    ahead = testbed.forward(model, point)
    return layers.scaled(
        forward_seconds=ahead,
        backward_seconds=testbed.computation(model) - ahead,
        update_seconds=0.0,  # not published; S of Table V has none
        note=f"t_f + t_b of the testbed, {point}",
    )
