"""Made-up tables in place of what the authors of MG-WFBP logged: closed forms of them are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradsync.measure import carried

SIZES = (4, 1024, 12288, 65536, 262144, 1048576)  # bytes


@contextmanager
def made_up_logs(
    folder: Path, layers: Iterable[tuple[int, float, float]], lines: Mapping[int, tuple[float, float]]
) -> Iterator[None]:
    """`layers`: elements, and microseconds of backward and all-reduce; `lines`: a and b in seconds by nodes."""
    rows = [",".join(carried.LAYER_COLUMNS), *(",".join(map(str, layer)) for layer in layers)]
    (folder / "layers.csv").write_text("\n".join(rows) + "\n")
    rows = [",".join(carried.ALLREDUCE_COLUMNS)]
    rows += [f"{n},{size},{1e6 * (a + b * size)}" for n, (a, b) in lines.items() for size in SIZES]
    (folder / "allreduces.csv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carried, "LAYERS", folder / "layers.csv")
        patch.setattr(carried, "ALLREDUCES", folder / "allreduces.csv")
        yield
