"""Random-k: k elements, each as likely as any other, whatever their values are (Stich et al., 2018, Sparsified SGD).

Ranks select the same positions in the same turn. The expected recall is k over the number of elements.
"""

from __future__ import annotations

import numpy as np

from gradsync.compressors import Vector, all_or_none, generator


def drawn(random: np.random.Generator, elements: int, k: int) -> Vector:
    """k of so many positions, ascending.  # (k,)"""
    return np.sort(random.choice(elements, k, replace=False, shuffle=False))


def select(values: Vector, k: int, *, turn: int) -> Vector:
    """Positions that are drawn without replacement.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(len(values), k)
    return drawn(generator(turn, len(values)), len(values), k)
