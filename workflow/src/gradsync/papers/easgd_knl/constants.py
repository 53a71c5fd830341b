"""What follows from the published numbers of Table 3 and of Table 4 alone: they are held against one another."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.testbed import EASGD, PAPER, SCALED, bench
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.published import Published
from gradsync.papers.table import Table

COMMUNICATION = ("gpu_gpu_para", "cpu_gpu_data", "cpu_gpu_para")
PARTS = (*COMMUNICATION, "for_backward", "gpu_update", "cpu_update")
CAFFE_NODES = 32  # 2176 cores


def constants(settings: Settings, results: Path) -> Table:
    """Table 3: a row per method."""
    file, published = bench(settings), Published(PAPER, settings)
    rows = []
    for scheme, number in EASGD.items():
        seconds, iterations = (file.positive("table3", key, scheme) for key in ("seconds", "iterations"))
        share = {part: file.number("table3", part, scheme) for part in PARTS}
        iteration = seconds / iterations
        rows.append(
            {
                "rung": "derived",
                "scheme": scheme,
                "seconds": seconds,
                "iterations": int(iterations),
                "iteration_seconds": iteration,
                "parts_sum": sum(share.values()),
                "comm_share": published.value(f"table3-{number}-communication"),
                "comm_sum": sum(share[part] for part in COMMUNICATION),
                **{
                    f"{part}_seconds": share[part] * iteration
                    for part in ("for_backward", "gpu_gpu_para", "cpu_gpu_para")
                },
            }
        )
    frame = pd.DataFrame(rows)
    milliseconds = {
        "iteration [ms]": frame.iteration_seconds,
        "forward and backward [ms]": frame.for_backward_seconds,
        "GPU-GPU weights [ms]": frame.gpu_gpu_para_seconds,
        "CPU-GPU weights [ms]": frame.cpu_gpu_para_seconds,
    }
    display = pd.DataFrame(
        {
            "method": frame.scheme.map(labels(settings)),
            "time [s]": frame.seconds.map("{:g}".format),
            "iterations": frame.iterations,
            **{name: (1e3 * column).map("{:.2f}".format) for name, column in milliseconds.items()},
            "communication printed (sum of its parts)": [
                f"{printed:.1%} ({total:.1%})" for printed, total in zip(frame.comm_share, frame.comm_sum, strict=True)
            ],
            "sum of all parts": frame.parts_sum.map("{:.1%}".format),
        }
    )
    caption = (
        "Table 3, 4 GPUs: what its numbers say of one iteration, which is that of one worker in Original EASGD and "
        "of all four in Sync EASGD (EA-E10). Original EASGD takes over Sync EASGD3 "
        f"{_ratio(frame, 'seconds'):.2f} times as long to the accuracy, {_ratio(frame, 'iterations'):.2f} times as "
        f"many iterations, each {_ratio(frame, 'iteration_seconds'):.2f} times as long."
    )
    return Table(frame, display, caption)


def _ratio(frame: pd.DataFrame, column: str) -> float:
    by_scheme = frame.set_index("scheme")[column]
    return float(by_scheme["original_easgd"] / by_scheme["sync_easgd3"])


def constants_scaling(settings: Settings, results: Path) -> Table:
    """Table 4: a row per model and number of nodes."""
    file, published = bench(settings), Published(PAPER, settings)
    rows = []
    for model, number in SCALED.items():
        alone = file.positive("table4", "seconds", model, 1)
        for nodes in map(int, file.numbers("nodes", "value")):
            seconds = file.positive("table4", "seconds", model, nodes)
            rows.append(
                {
                    "rung": "derived",
                    "model": model,
                    "nodes": nodes,
                    "cores": int(nodes * file.number("knl", "cores", "value")),
                    "seconds": seconds,
                    "efficiency_printed": published.value(f"table4-{number}-{nodes}-efficiency"),
                    "efficiency": alone / seconds,
                    "intel_caffe": (
                        file.number("intel_caffe_efficiency", "value", model) if nodes == CAFFE_NODES else None
                    ),
                }
            )
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "model": frame.model.map(MODELS),
            "nodes": frame.nodes,
            "cores": frame.cores,
            "time [s]": frame.seconds.map("{:g}".format),
            "efficiency printed": frame.efficiency_printed.map("{:.1%}".format),
            "efficiency of the times": frame.efficiency.map("{:.2%}".format),
            "Intel Caffe": frame.intel_caffe.map(lambda share: "-" if pd.isna(share) else f"{share:.0%}"),
        }
    )
    caption = (
        "Table 4: weak scaling efficiency as it is printed, and as it follows from the times (EA-E15). The efficiency "
        "of Intel Caffe is the paper's number; who measured it is not said."
    )
    return Table(frame, display, caption)
