"""What Fig. 7 and 8 compare: aggregations, and the steps of HiTopKComm, by our names."""

from __future__ import annotations

from collections.abc import Mapping

METHODS = {"allgather_sparse": "NaiveAG", "tree": "TreeAR", "torus2d": "2DTAR", "hitopk": "HiTopKComm"}
STEPS = {
    "reduce_scatter": ("scatter",),
    "mstopk": ("encode",),
    "inter_all_gather": ("gather_values", "gather_indices"),
    "intra_all_gather": ("gather",),
    "sum": ("decode",),
}  # the operations of a message, by the beginning of their names
STEP_NAMES = {
    "reduce_scatter": "Reduce-Scatter in a node",
    "mstopk": "MSTopK",
    "inter_all_gather": "All-Gather between nodes",
    "intra_all_gather": "All-Gather in a node",
    "sum": "sum of the nodes' elements",
}


def by_step(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds of operations, by the step that they belong to."""
    step_of = {start: step for step, starts in STEPS.items() for start in starts}
    summed = dict.fromkeys(STEPS, 0.0)
    for name, each in seconds.items():
        start = name.partition(":")[0].rstrip("0123456789")
        if start in step_of:
            summed[step_of[start]] += each
    return summed
