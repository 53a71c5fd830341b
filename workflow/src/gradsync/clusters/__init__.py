"""A measured cluster, `config/clusters/<name>.yaml`: planners and the simulator take costs and layer times from it.

It holds what the nodes are, all-reduce times inside a node, between nodes and over everything (points, and the line
a + b m through them with its intervals), and the layer times of models: totals in this file, tensor by tensor in
workload files in a folder of the cluster's name beside it. `gradsync cluster measure` writes it. The described testbed
of a paper is another format, read by that paper's code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from gradsync.clusters.nodes import Closed, Nodes
from gradsync.costs import fitted
from gradsync.costs.line import Line
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem

VERSION = 1
MEASURE = "gradsync cluster measure"


class ClusterPoint(NamedTuple):
    """Times of a message of `bytes`: median with the 95 % interval of the median, mean, number of repeats.

    The median and its interval are those of the sweeps' medians: messages of one sweep are disturbed alike. The
    interval is None if the sweeps are too few.
    Planners take the mean: it is what adds up over several messages if some of them are late.
    """

    bytes: int
    seconds: float
    seconds_low: float | None
    seconds_high: float | None
    mean_seconds: float
    repeats: int


class AllReduce(Closed):
    """All-reduces among `ranks_per_node` ranks on each of `nodes` nodes.

    Inside nodes, all nodes are measured at once, and the slowest one's times count; `slowest_over_fastest` is the
    ratio of the times (geometric mean over sizes) of the slowest and the fastest node.
    """

    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    backend: str
    device: str
    line: Line
    slowest_over_fastest: float | None = None
    points: tuple[ClusterPoint, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _consistent(self) -> AllReduce:
        sizes = [point.bytes for point in self.points]
        if self.nodes * self.ranks_per_node < 2:
            raise ValueError("needs two ranks or more")
        if sizes != sorted(set(sizes)) or sizes[0] <= 0:
            raise ValueError("points must be of ascending, different, positive bytes")
        if not all(0 < value < np.inf for point in self.points for value in (point.seconds, point.mean_seconds)):
            raise ValueError("seconds of points must be finite and positive")
        if (self.line.points, self.line.from_bytes, self.line.to_bytes) != (len(sizes), sizes[0], sizes[-1]):
            raise ValueError("line was fitted to other points: points, from_bytes or to_bytes differ")
        return self

    @property
    def ranks(self) -> int:
        """All of them together."""
        return self.nodes * self.ranks_per_node

    @property
    def place(self) -> str:
        """Where the ranks are, in words."""
        return f"{self.ranks_per_node} rank(s) on each of {self.nodes} node(s)"

    def cost(self, source: str) -> fitted.Fitted:
        """The pieces through its points, as planners take them."""
        return fitted.fit(
            [point.bytes for point in self.points], [point.mean_seconds for point in self.points], source=source
        )


class Link(Closed):
    """All-reduces of one kind for several numbers of ranks; or the reason why there are none."""

    measured: tuple[AllReduce, ...] | None
    reason: str | None = None

    @model_validator(mode="after")
    def _either(self) -> Link:
        if bool(self.measured) == bool(self.reason):
            raise ValueError("needs either measured all-reduces, or measured: null and a reason")
        return self


class Links(Closed):
    """`inside` a node; `between` nodes, one rank on each; `everything`: several ranks on each of several nodes."""

    inside: Link
    between: Link
    everything: Link

    def all(self) -> list[AllReduce]:
        """Every measured all-reduce, fewest nodes first."""
        measured = [each for link in (self.inside, self.between, self.everything) for each in link.measured or ()]
        return sorted(measured, key=lambda each: (each.nodes, each.ranks_per_node))


class Timed(Closed):
    """Layer times of a model: totals in seconds; tensor by tensor in `file`, beside the cluster's own.

    `ranks_per_node` ranks computed at the same time on each of `nodes` nodes.
    """

    model: str
    file: str
    device: str
    batch: int | None = None
    size: int | None = None
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    tensors: int
    bytes: int
    forward_seconds: float
    backward_seconds: float
    update_seconds: float


class Profile(Closed):
    """The whole file."""

    version: int
    profile: Literal["measured"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    measured: str = Field(description="when, UTC")
    nodes: Nodes
    allreduce: Links
    workloads: tuple[Timed, ...]
    contention: None = Field(default=None, description="k messages at once on one link: T_k(m) by link, for k >= 2")
    topk: None = Field(default=None, description="seconds of choosing the k largest of n elements, by n and k/n")
    io: None = Field(default=None, description="samples per second of reading and decoding, by data set and workers")
    notes: tuple[str, ...] = ()


def load(path: str | Path) -> Profile:
    """Read a profile; raises InputError with file and key if it is none.

    `choice.workload` reads its workload files and holds them against it.
    """
    content: Any = reading.yaml_of(path, "cluster")
    if not isinstance(content, dict) or "profile" not in content:
        raise InputError(
            f"cluster {path}: not a measured cluster (no key profile): a described testbed can't be planned for; "
            f"measure one with {MEASURE} NAME"
        )
    if content.get("version") != VERSION:
        raise InputError(f"cluster {path}: version {content.get('version')}; this gradsync reads version {VERSION}")
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"cluster {path}: {first_problem(error, Profile)}") from None
