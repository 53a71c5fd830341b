"""The operations of a model, counted: nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute
from gradsync.experiments.profile import launches


@dataclass(frozen=True, kw_only=True)
class Options(Compute):
    """Options of `gradsync measure operations`."""

    teraflops: float = option(1.0, "1e12 operations per second, to give seconds", metavar="T")
    output: Path = option(meaning="write the workload, JSON", metavar="FILE")


def count(options: Options) -> dict[str, Any]:
    """Write the workload of a model at a rate of computation, and return its operations of one forward."""
    from gradsync.files.results import write_whole
    from gradsync.measure import operations

    launches.refuse_counts(batch=options.batch)
    workload = operations.workload(options.model, 1e12 * options.teraflops, options.batch, options.size)
    write_whole(options.output, workload.to_json())
    return {
        "counted": options.model,
        "operations_forward": sum(operations.forward(options.model, options.size).values()) * options.batch,
        "output": str(options.output),
    }
