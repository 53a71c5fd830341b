"""Runs MSTopK's kernels in Triton's interpreter beside the NumPy reading, and prints what differs, one line each.

Triton decides when a kernel is defined whether it is interpreted, so that this is a program of its own.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from compressor_vectors import named
from gradsync.compressors import mstopk
from gradsync.runtime.selection import _mstopk_on_gpu as kernels

ELEMENTS, TURN = 17_001, 3  # two tiles and a rest; two elements in a stratum of the sample, 617 in none
STARTS = (0.0, 1 - 2**-53)  # of runs, beside that of the turn
PLACES = {
    "as sampled": kernels._place,
    "a bound that is too high": lambda elements, k: 1,
    "a bound that all pass": lambda elements, k: kernels.SAMPLED,
}


def vectors() -> dict[str, np.ndarray]:
    """What takes each way through the kernels."""
    made = named(ELEMENTS)
    number, spread = np.arange(ELEMENTS), np.abs(made["gaussian"])
    made["close"] = 1 + 1e-3 * spread
    made["in one place"] = np.where(number // 300 == 7, made["gaussian"], 0)
    made["close, but a few"] = np.where(number % 34 == 0, 1e30, made["close"])  # of one bin most are too many
    made["close, but the last"] = np.where(number == ELEMENTS - 1, 1e30, made["close"])  # far above all of the sample
    many = np.where(number % 11 == 3, 1 + 0.01 * spread, 1e-3 * spread)  # in the bin of the k-th largest
    made["many in one bin"] = np.where(number % 1000 == 0, 1e30, many)
    return {name: vector.astype(np.float32) for name, vector in made.items()}


def differs(values: np.ndarray, k: int) -> bool:
    """Whether the kernels select others than the NumPy reading."""
    start = mstopk.run_start(TURN, ELEMENTS)
    found = kernels.select(torch.from_numpy(values), k, start).numpy()
    return not np.array_equal(found, mstopk.select(values, k, turn=TURN))


def main() -> None:
    compared = 0
    for place, chosen in PLACES.items():
        kernels._place = chosen
        for name, values in vectors().items():
            for k in (ELEMENTS // 16, 1)[: 2 if place == "as sampled" else 1]:
                compared += 1
                if differs(values, k):
                    print(f"{name}, k = {k}, {place}")
    for start in STARTS:
        mstopk.run_start = lambda turn, elements, start=start: start
        compared += 1
        if differs(named(ELEMENTS)["ties"], ELEMENTS // 16):
            print(f"ties from {start}")
    print("compared", compared)


if __name__ == "__main__":
    main()
