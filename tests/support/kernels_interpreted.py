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

ELEMENTS, TURN = 17_001, 3  # four tiles and a rest; two elements in a stratum of the sample
PLACES = {
    "as sampled": kernels._place,
    "a bound that is too high": lambda elements, k: 1,
    "a bound that all pass": lambda elements, k: kernels.SAMPLED,
}


def main() -> None:
    vectors = named(ELEMENTS)
    vectors["close"] = (1 + 1e-3 * np.abs(vectors["gaussian"])).astype(np.float32)
    vectors["in one place"] = np.where(np.arange(ELEMENTS) // 300 == 7, vectors["gaussian"], 0).astype(np.float32)
    few = np.arange(ELEMENTS) % 34 == 0
    vectors["close, but a few"] = np.where(few, np.float32(1e30), vectors["close"])  # of one bin most are too many
    for place, chosen in PLACES.items():
        kernels._place = chosen
        for name, values in vectors.items():
            for k in (1, ELEMENTS // 16):
                start = mstopk.run_start(TURN, ELEMENTS)
                found = kernels.select(torch.from_numpy(values), k, start).numpy()
                if not np.array_equal(found, mstopk.select(values, k, turn=TURN)):
                    print(f"{name}, k = {k}, {place}")
    print("compared", 2 * len(PLACES) * len(vectors))


if __name__ == "__main__":
    main()
