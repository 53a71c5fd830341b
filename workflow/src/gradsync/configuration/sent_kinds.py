"""Which kinds of messages schemes send besides all-reduces of all ranks: what a profile measures for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gradsync import updates
from gradsync.collectives import ALL_GATHER, ALL_REDUCE, NATIVE, REDUCE_SCATTER
from gradsync.plan import WORLD, Axis

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme


class Sent(NamedTuple):
    """Kinds with the axis that each is over (`reduce_scatter@world`), and the axes of the mesh, outermost first."""

    kinds: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The axes as `--axes` of `gradsync measure allreduce` takes them."""
        return tuple(f"{axis.name}:{axis.size}" for axis in self.axes)

    def words(self) -> list[str]:
        """The options of `gradsync measure launch` that measure all of them; none if there is none."""
        both = ("--kind", self.kinds), ("--axes", self.places)
        return [word for flag, values in both if values for word in (flag, *values)]


def of_scheme(scheme: Scheme, ranks: int, ranks_a_node: int | None = None) -> Sent:
    """What a scheme sends by the backend between so many ranks, of which `ranks_a_node` share a node."""
    ratios = (f"{ALL_GATHER}@{WORLD}",) if scheme.pto else ()
    compression = scheme.compression(ranks, ranks_a_node)
    if compression is not None:
        way = compression.way
        inside = [f"{kind}@{way.inside.name}" for kind in (REDUCE_SCATTER, ALL_GATHER)] if way.inside else []
        return Sent((*inside, f"{ALL_GATHER}@{way.between.name}", *ratios), way.axes)
    if (levels := scheme.levels(ranks, ranks_a_node)) is not None:
        nodes, local = levels.axes
        kinds = (REDUCE_SCATTER, local), (ALL_REDUCE, nodes), (ALL_GATHER, local)
        return Sent((*(f"{kind}@{axis.name}" for kind, axis in kinds), *ratios), levels.axes)
    if scheme.algorithm == NATIVE and updates.halved(scheme.update):
        return Sent((f"{REDUCE_SCATTER}@{WORLD}", f"{ALL_GATHER}@{WORLD}"))
    return Sent(ratios)


def of_schemes(schemes: Iterable[Scheme], ranks: int, ranks_a_node: int | None = None) -> Sent:
    """What all of them send, each kind once. Of several meshes it is the first: a launch measures on one."""
    every = [of_scheme(part, ranks, ranks_a_node) for scheme in schemes for part in scheme.parts]
    axes = next((sent.axes for sent in every if sent.axes), ())
    kinds = [kind for sent in every if sent.axes in ((), axes) for kind in sent.kinds]
    return Sent(tuple(dict.fromkeys(kinds)), axes)
