"""Which parts of a scheme don't go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradsync import collectives, compressors, optimizers, sparse, updates
from gradsync.collectives import NATIVE
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme


def refuse_compression(scheme: Scheme) -> None:
    """Raises InputError for what makes no sense in or with sparse messages, or with factors."""
    if scheme.compressor and compressors.factors(scheme.compressor):
        _refuse_factors(scheme)
        return
    if scheme.collective not in sparse.names():
        for key in ("compressor", "compressor_options", "density", "error_feedback"):
            if getattr(scheme, key) not in ("", None, {}):
                raise InputError(
                    f"key {key}: only with a collective of sparse messages ({', '.join(sparse.names())}), not "
                    f"{scheme.collective!r}"
                )
        return
    if compressors.codes(scheme.compressor) and scheme.density is not None:
        raise InputError(f"key density: compressor {scheme.compressor!r} sends a code of all elements: leave it out")
    density = 1.0 if scheme.density is None else scheme.density
    sparse.refuse(scheme.compressor, density, scheme.compressor_options)
    added = compressors.variance(scheme.compressor, scheme.compressor_options)
    if scheme.error_feedback and added >= 1:
        options = compressors.options(scheme.compressor) | scheme.compressor_options
        how = ", ".join(f"{key} {options[key]}" for key in options if key != "seed")
        raise InputError(
            f"key error_feedback: compressor {scheme.compressor!r} ({how}) may add {added:.3g} times the square of a "
            "gradient, and what error feedback keeps grows if that is 1 or more: leave error feedback out, or take "
            "more levels or smaller buckets"
        )
    if scheme.wire:
        raise InputError(f"key wire: values of sparse messages travel in the gradients' own type, not {scheme.wire}")
    if updates.halved(scheme.update):
        able = ", ".join(name for name in updates.names() if not updates.halved(name))
        raise InputError(
            f"collective {scheme.collective!r} sums sparse gradients on all ranks, and update {scheme.update!r} needs "
            f"reduce-scatters: choose update {able}, and a schedule for it"
        )


def refuse_levels(scheme: Scheme) -> None:
    """Raises InputError for what makes no sense with sums over one level after the other."""
    if not scheme.by_level:
        return
    if scheme.compressor:
        raise InputError(
            f"collective {scheme.collective!r} sums whole gradients, and compressor {scheme.compressor!r} sends "
            "something else: leave one of them out"
        )
    if updates.halved(scheme.update) or not scheme.averaged:
        able = ", ".join(name for name in updates.names() if not updates.halved(name))
        raise InputError(
            f"collective {scheme.collective!r} sums gradients on all ranks, which update {scheme.update!r} does not: "
            f"choose update {able}, and a schedule for it"
        )


def _refuse_factors(scheme: Scheme) -> None:
    """Raises InputError for what makes no sense with a compressor that factors matrices."""
    compressors.refuse_options(scheme.compressor, scheme.compressor_options)
    if scheme.collective in sparse.names():
        raise InputError(
            f"collective {scheme.collective!r} gathers sparse messages, and compressor {scheme.compressor!r} sends "
            f"factors that are summed: choose a collective of sums, {NATIVE} for instance"
        )
    if scheme.density is not None:
        raise InputError(f"key density: compressor {scheme.compressor!r} sends factors of matrices: leave it out")
    if scheme.wire:
        raise InputError(f"key wire: factors travel in the gradients' own type, not {scheme.wire}: leave it out")
    if updates.halved(scheme.update):
        able = ", ".join(name for name in updates.names() if not updates.halved(name))
        raise InputError(
            f"compressor {scheme.compressor!r} all-reduces factors, and update {scheme.update!r} needs "
            f"reduce-scatters: choose update {able}, and a schedule for it"
        )


def refuse_dealing(scheme: Scheme) -> None:
    """Raises InputError if norms are dealt to ranks that are not taken of all tensors at once."""
    if scheme.pto and not updates.at_once(scheme.update):
        able = ", ".join(name for name in updates.names() if updates.at_once(name))
        raise InputError(
            f"key pto: the norms of all tensors are dealt to ranks at once, and update {scheme.update!r} does not "
            f"apply all gradients at once: choose update {able}, or leave pto out"
        )


def refuse_optimizer(scheme: Scheme, name: str) -> None:
    """Raises InputError for an optimizer without the norms that are dealt, or with norms of whole tensors, cut ones."""
    by_norms = optimizers.get(name).ratios is not None
    if scheme.pto and not by_norms:
        able = " or ".join(each for each in optimizers.names() if optimizers.get(each).ratios)
        raise InputError(
            f"scheme {scheme.name!r} deals norms of tensors to ranks (key pto), and optimizer {name!r} takes none: "
            f"choose optimizer {able}, or a scheme without pto"
        )
    if by_norms and updates.pieces(scheme.update):
        able = ", ".join(update for update in updates.names() if not updates.pieces(update))
        raise InputError(
            f"scheme {scheme.name!r}: optimizer {name!r} needs norms of whole tensors, and update {scheme.update!r} "
            f"has a piece of each on every rank: take another optimizer, or a scheme with update {able}"
        )


def refuse_parts_of_sums(scheme: Scheme, packed: str) -> None:
    """Raises InputError for a part of sums of gradients, if the update has none; its schedule is `packed` then."""
    if scheme.averaged:
        return
    given = {
        "schedule": (scheme.schedule, packed),
        "collective": (scheme.collective, NATIVE),
        "wire": (scheme.wire, ""),
        "topology": (scheme.topology, ""),
    }
    for part, (value, only) in given.items():
        if part == "collective" and value != only and updates.rooted(scheme.update):
            collectives.refuse(value, (2,), collectives.REDUCE)
        elif value != only:
            raise InputError(
                f"{part} {value!r} belongs to sums of gradients, and update {scheme.update!r} sends all parameters "
                f"packed: leave {part} out"
            )
