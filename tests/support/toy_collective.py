"""The file of a new collective, as somebody would add it."""

TEXT = '''\
"""Pieces go round the ranks, once to be summed and once to be handed out."""

from math import prod

import numpy as np

from gradsync.collectives import on_one_rail

TOPOLOGY, POSTCONDITION = "switch", "sum"


def pieces(shape):
    return prod(shape)


def rounds(shape, root=0):
    rank = np.arange(prod(shape))
    for adds in (True, False):
        for k in range(len(rank) - 1):
            yield on_one_rail(rank, (rank + 1) % len(rank), (rank - k + 1 - adds) % len(rank), np.ones_like(rank), adds)
'''
