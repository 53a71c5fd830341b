"""Which kinds of messages are measured besides all-reduces of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradsync.configuration.options import option
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.plan import Axis


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """Options of what measures messages of several kinds, of the backend's own, as they are executed."""

    kind: tuple[str, ...] = option(
        ("all_reduce",),
        "of the backend's own: reduce_scatter, all_gather, reduce, broadcast, all_to_all, beside the all-reduce; over "
        "all ranks and all axes, or over one: all_gather@local, all_gather@world",
        metavar="KIND[@AXIS]",
    )
    axes: tuple[str, ...] = option(
        (), "between the groups of these axes too, the outermost first: node:2 local:4", metavar="NAME:PLACES"
    )

    def mesh(self, ranks: int) -> tuple[Axis, ...]:
        """The axes; raises InputError unless so many ranks lie on them."""
        from gradsync.plan import Axis, Mesh

        axes = []
        for text in self.axes:
            name, _, places = text.partition(":")
            if not (name.isidentifier() and places.isdecimal() and int(places) > 0):
                raise InputError(f"--axes {text}: give NAME:PLACES, as node:2 local:4")
            axes.append(Axis(name, int(places)))
        try:
            Mesh(ranks, tuple(axes)).refuse()
        except InputError as error:
            raise InputError(f"--axes {' '.join(self.axes)}: {error}") from None
        return tuple(axes)

    def refuse_kinds(self, numbers_of_ranks: Sequence[int], collectives: Sequence[str]) -> None:
        """Raises InputError for kinds or axes that don't exist."""
        from gradsync.collectives import ALL_REDUCE, KINDS, NATIVE
        from gradsync.plan import WORLD

        for ranks in numbers_of_ranks:
            known = [WORLD, *(axis.name for axis in self.mesh(ranks))]
            for text in self.kind:
                kind, at, axis = text.partition("@")
                if kind not in KINDS:
                    raise InputError(f"--kind {text}: does not exist; there are: {', '.join(KINDS)}")
                if at and axis not in known:
                    raise InputError(f"--kind {text}: no axis {axis!r}; there are: {', '.join(known)}: give --axes")
        if (others := [*self.axes, *(kind for kind in self.kind if kind != ALL_REDUCE)]) and NATIVE not in collectives:
            raise InputError(f"--collective: {others[0]} is measured of {NATIVE}: name it too")
