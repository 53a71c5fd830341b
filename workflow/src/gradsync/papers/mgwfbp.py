"""MG-WFBP (Shi, Chu, Li; INFOCOM 2019): Table II, Fig. 1 to 4, Fig. 9, the gap to the optimum, the real run.

Differs from the paper in Fig. 9: its layer times, forward times and slope b are not published. GoogLeNet's layer times
are those of the authors' own log; ResNet-50's are measured here and scaled to a published K80 throughput. The slope and
the forward time are a band of assumptions; claims are decided over the whole band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from gradsync import collectives, schemes
from gradsync.costs import Linear, alpha_beta
from gradsync.costs.fitted import fit
from gradsync.errors import InputError
from gradsync.measure import third_party
from gradsync.papers import Table
from gradsync.plan import Plan
from gradsync.results import Result
from gradsync.settings import Settings
from gradsync.simulate import simulate
from gradsync.trace import Trace
from gradsync.workload import Workload

CENTRE = "t_f=0.5 t_b, b=fit"  # the point of the band that is drawn as a line
BEST_BUCKET = "best_constant_bucket"
# The drawn examples: workload in config/workloads and cost, in units of the drawing.
CASES = {
    "case1": ("four-layers-case1", Linear(1.2, 0.1, "drawn")),
    "case2": ("four-layers-case2", Linear(1.2, 0.1, "drawn")),
    "case3": ("four-layers-case3", Linear(1.2, 0.1, "drawn")),
    "counterexample": ("counterexample", Linear(8.0, 1.0, "drawn")),
}
SMALLEST_FITTED = 12 * 1024  # bytes: below, the 8-node log follows another protocol (a four-fold step)
LOG_NODES = 8
K80_BATCH = 32  # ResNet-50, per worker (Section V)


def table2(settings: Settings, results: Path) -> Table:
    """Table II: the closed forms against rounds that are simulated one by one."""
    cluster = _cluster(settings)
    alpha, beta, gamma = cluster["alpha_seconds"]["value"], 8 / cluster["link_bits_per_second"]["value"], 1e-10
    size = 2.0**20
    rows = []
    for name, formula in alpha_beta.ALGORITHMS.items():
        for n in (2, 4, 8, 16, 32, 64):
            cost = formula(n, alpha, beta, gamma)
            rows.append(
                {
                    "rung": "simulated",
                    "algorithm": name,
                    "nodes": n,
                    "a_over_alpha": cost.a / alpha,
                    "b_over_beta": formula(n, 0.0, 1.0, 0.0).b,
                    "seconds_formula": cost.seconds(size),
                    "seconds_rounds": collectives.seconds(name, n, size, alpha, beta, gamma),
                }
            )
    frame = pd.DataFrame(rows)
    display = frame.pivot_table(index="algorithm", columns="nodes", values="a_over_alpha").round(2)
    display = display.add_prefix("a/alpha, N=").reset_index()
    worst = (frame.seconds_rounds / frame.seconds_formula - 1).abs().groupby(frame.algorithm).max()
    display["rounds differ by"] = [f"{worst[name]:.1e}" for name in display.algorithm]
    caption = (
        "Table II: start-up of all-reduce algorithms in units of alpha. The last column: largest relative difference "
        "between the closed form and rounds simulated one by one (1 MiB, N = 2 to 64)."
    )
    return Table(frame, display, caption)


def timelines(settings: Settings, results: Path) -> Table:
    """Fig. 1 to 4 as numbers, and the smallest counterexample to Theorem 1 (MG-E09)."""
    rows = []
    for figure, case, scheme in TIMELINES:
        workload, _, trace = example(case, scheme)
        seconds = CASES[case][1].seconds(workload.sizes())
        rows.append(
            {
                "rung": "simulated",
                "figure": figure,
                "case": case,
                "scheme": scheme,
                "iteration_seconds": trace.iteration_seconds(),
                "exposed_communication_seconds": trace.exposed_communication_seconds(),
                "over_optimal": trace.iteration_seconds() / example(case, "optimal")[2].iteration_seconds(),
                "t_f": workload.forward_seconds,
                "t_b": workload.backward_seconds,
                "t_c_sum": float(seconds.sum()),
                "t_c_first": float(seconds[-1]),
            }
        )
    frame = pd.DataFrame(rows)
    display = frame.drop(columns="rung").drop_duplicates(["case", "scheme"]).round(4)
    return Table(
        frame,
        display,
        "Fig. 1 to 4 and the counterexample to Theorem 1: drawn examples, simulated; times in units of the drawing.",
    )


TIMELINES = (
    ("fig1", "case3", "naive"),
    ("fig2", "case3", "wfbp"),
    ("fig2", "case3", "naive"),
    ("fig3", "case1", "wfbp"),
    ("fig3", "case2", "wfbp"),
    ("fig3", "case3", "wfbp"),
    ("fig4", "case3", "wfbp"),
    ("fig4", "case3", "mgwfbp"),
    ("counterexample", "counterexample", "mgwfbp"),
    ("counterexample", "counterexample", "optimal"),
)


def example(case: str, scheme: str) -> tuple[Workload, Plan, Trace]:
    """A drawn example under a scheme."""
    name, cost = CASES[case]
    workload = Workload.load(f"config/workloads/{name}.json")
    plan = schemes.plan(schemes.Scheme(name=scheme), workload, cost, 2)
    return workload, plan, simulate(plan, workload, alpha_beta.around(cost, 2))


class Assumption(NamedTuple):
    """One point of the band: a workload, and the slope b of a ring of n nodes in seconds per byte."""

    label: str
    workload: Workload
    slope: Callable[[int], float]


def fig9a(settings: Settings, results: Path) -> Table:
    """Fig. 9(a): GoogLeNet on 4 to 64 simulated K80s."""
    return _fig9("googlenet", settings, results, "1.78x over WFBP and 1.35x over SyncEASGD at 64 nodes")


def fig9b(settings: Settings, results: Path) -> Table:
    """Fig. 9(b): ResNet-50 on 4 to 64 simulated K80s."""
    return _fig9("resnet50", settings, results, "1.75x over WFBP and 1.45x over SyncEASGD at 64 nodes")


def gap(settings: Settings, results: Path) -> Table:
    """How far MG-WFBP, its printed form, constant buckets and the rest are from the exact optimum."""
    frames = []
    for model in ("googlenet", "resnet50"):
        frames.append(_sweep(model, settings, results, settings.figure9.gap_nodes))
    frame = pd.concat(frames, ignore_index=True)
    keys = ["model", "nodes", "assumption"]
    optimum = frame[frame.scheme == "optimal"].set_index(keys).iteration_seconds
    frame["over_optimal"] = frame.iteration_seconds / optimum.reindex(pd.MultiIndex.from_frame(frame[keys])).to_numpy()
    shown = frame[frame.scheme.isin(["mgwfbp", "mgwfbp_as_printed", BEST_BUCKET, "fixed_buckets"])]
    display = (
        shown.groupby(["model", "scheme", "nodes"])
        .over_optimal.agg(["min", "max"])
        .apply(lambda row: "-" if np.isnan(row["min"]) else f"{row['min']:.3f} .. {row['max']:.3f}", axis=1)
        .unstack("nodes")
        .add_prefix("N=")
        .reset_index()
    )
    caption = (
        "Iteration time over that of the exact optimum, smallest and largest over the band of assumptions. "
        "Algorithm 1 is a heuristic (MG-E09): with many nodes a well-chosen constant bucket beats it."
    )
    return Table(frame, display, caption)


def _fig9(model: str, settings: Settings, results: Path, published: str) -> Table:
    frame = read(results / "tables" / "mgwfbp" / "gap.csv")
    frame = frame[(frame.model == model) & frame.nodes.isin(settings.figure9.nodes)].drop(columns="over_optimal")
    missing = frame.iteration_seconds.isna().all()
    rows = []
    for scheme, part in frame.groupby("scheme", sort=False):
        row = {"scheme": scheme}
        for n, at in part.groupby("nodes"):
            centre = at[at.assumption.str.startswith(CENTRE)].speedup
            row[f"N={n}"] = (
                "-" if missing else f"{centre.iloc[0]:.1f} ({at.speedup.min():.1f} .. {at.speedup.max():.1f})"
            )
        rows.append(row)
    note = frame.note.iloc[0] if missing else ""
    caption = (
        f"Fig. 9, {model}: speed-up over one K80, simulated; in brackets the band over what the paper does not give "
        f"(t_f, b{', the unit' if model == 'resnet50' else ''}). The paper states {published}. {note}"
    ).strip()
    return Table(frame, pd.DataFrame(rows), caption)


def read(path: Path) -> pd.DataFrame:
    """A table that was written; raises InputError where it is missing or another file."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXTS, str))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read: {str(error).strip()}: make that table first") from None
    missing = [column for column in TABLE if column not in frame.columns]
    if missing:
        raise InputError(f"{path}: not this table: no column {', '.join(missing)}: delete it and make it again")
    return frame.fillna(dict.fromkeys(TEXTS, ""))


def _sweep(model: str, settings: Settings, results: Path, nodes: list[int]) -> pd.DataFrame:
    """Every scheme and the best constant bucket at every size and every point of the band."""
    known = list(schemes.load(settings.schemes).values())
    assumed, reason = _assumptions(model, settings, results)
    if reason:
        rows = [
            {"rung": "simulated", "model": model, "nodes": n, "scheme": scheme, "assumption": "", "note": reason}
            for n in nodes
            for scheme in (*(scheme.name for scheme in known), BEST_BUCKET)
        ]
        return pd.DataFrame(rows, columns=COLUMNS)
    alpha = _cluster(settings)["alpha_seconds"]["value"]
    rows = []
    for label, workload, slope in assumed:
        for n in nodes:
            cost = Linear(2 * (n - 1) * alpha, slope(n), f"ring of {n}")
            for name, seconds, exposed in _iterations(workload, cost, n, known, settings):
                alone = workload.forward_seconds + workload.backward_seconds
                rows.append(
                    {
                        "rung": "simulated",
                        "model": model,
                        "nodes": n,
                        "scheme": name,
                        "assumption": label,
                        "iteration_seconds": seconds,
                        "exposed_communication_seconds": exposed,
                        "speedup": n * alone / seconds,
                        "efficiency": alone / seconds,
                        "note": "",
                    }
                )
    return pd.DataFrame(rows, columns=COLUMNS)


TEXTS = ["rung", "model", "scheme", "assumption", "note"]
TABLE = [*TEXTS, "nodes", "iteration_seconds"]  # columns of every table that has a row a scheme
NUMBERS = ["iteration_seconds", "exposed_communication_seconds", "speedup", "efficiency"]
COLUMNS = ["rung", "model", "nodes", "scheme", "assumption", *NUMBERS, "note"]


def _iterations(
    workload: Workload, cost: Linear, n: int, known: list[schemes.Scheme], settings: Settings
) -> Iterator[tuple[str, float, float]]:
    network = alpha_beta.around(cost, n)

    def timed(scheme: schemes.Scheme) -> tuple[float, float]:
        trace = simulate(schemes.plan(scheme, workload, cost, n), workload, network)
        return trace.iteration_seconds(), trace.exposed_communication_seconds()

    for scheme in known:
        yield scheme.name, *timed(scheme)
    sizes = np.geomspace(64 * 1024, workload.bytes, settings.figure9.bucket_sweep)
    swept = [
        timed(
            schemes.Scheme(
                name=BEST_BUCKET,
                schedule="fixed_buckets",
                options={"bucket_bytes": int(size), "first_bucket_bytes": int(size)},
            )
        )
        for size in sizes
    ]
    yield BEST_BUCKET, *min(swept)


def _assumptions(model: str, settings: Settings, results: Path) -> tuple[list[Assumption], str]:
    """The band of a model, or why there is none: t_f, b, and for ResNet-50 what "a single K80" is."""
    external = results / "external"
    state = third_party.status(external)
    cluster = _cluster(settings)
    line = 8 / cluster["link_bits_per_second"]["value"]

    def ring(beta: float) -> Callable[[int], float]:
        return lambda n: 2 * (n - 1) / n * beta

    slopes = {"b=line rate": ring(line)}
    if state["available"]:
        sizes, times = third_party.osu_log(external / "allreduce8.log")
        large = sizes >= SMALLEST_FITTED
        fitted = fit(sizes[large], times[large], pieces=1, source="8-node log above 12 KiB")
        # b scales as that of a ring: 2(N-1)/N beta
        slopes["b=fit"] = ring(float(fitted.slopes[-1]) / (2 * (LOG_NODES - 1) / LOG_NODES))
    elif model == "googlenet":
        return [], state["reason"]
    else:
        # the paper's own example, 200 KB in 1.5 ms and 400 KB in 1.8 ms, gives the only other slope
        slopes["b=fit"] = ring(cluster["slope_hint_seconds_per_byte"]["value"] / (2 * (LOG_NODES - 1) / LOG_NODES))
    band = []
    for share in settings.figure9.forward_shares:
        if model == "googlenet":
            found = {"": third_party.layer_log(external / "tmp8comm.log", forward_share=share)}
        else:
            found = _resnet50(cluster, results, share)
        for slope, per_byte in slopes.items():
            for unit, workload in found.items():
                label = f"t_f={share:g} t_b, {slope}" + (f", {unit}" if unit else "")
                band.append(Assumption(label, workload, per_byte))
    return band, ""


def _resnet50(cluster: dict[str, Any], results: Path, share: float) -> dict[str, Workload]:
    """ResNet-50's layers as measured here, t_f + t_b scaled to published K80 throughputs.

    The paper does not say whether its "single K80" is one GPU or the card with two (MG-E22): both.
    """
    measured = Workload.load(results / "profile" / "resnet50" / "workload.json")
    found = {}
    for entry in cluster["published_throughput"]["resnet50"]:
        total = K80_BATCH / entry["images_per_second"]
        unit = "one GPU" if entry["gpus"] == 1 else f"{entry['gpus']} GPUs"
        note = f"t_f + t_b = {K80_BATCH} images / {entry['images_per_second']} images/s ({entry['source']})"
        found[unit] = measured.scaled(
            forward_seconds=total * share / (1 + share),
            backward_seconds=total / (1 + share),
            update_seconds=0.0,  # the published throughput includes the update
            note=note,
        )
    return found


def training(settings: Settings, results: Path) -> Table:
    """The real runs: iteration time, ratio to WFBP, prediction, accuracy, conformance."""
    frames = []
    for job in settings.training:
        folder = results / "runs" / "train" / job.job
        known = schemes.load(settings.schemes)
        for scheme in schemes.pick(known, job.schemes, "training"):
            result = Result.load(folder / scheme.name / "result.json")
            prediction = _json(results / "plans" / job.job / f"{scheme.name}.prediction.json")
            found = result.summary
            predicted = prediction["iteration_seconds"]
            base = {"model": result.model, "nodes": result.ranks, "scheme": scheme.name, "assumption": ""}
            frames.append(
                {
                    "rung": "measured",
                    **base,
                    "messages": int(found["messages"]),
                    "iteration_seconds": found["iteration_seconds"],
                    "iteration_seconds_low": found["iteration_seconds_low"],
                    "iteration_seconds_high": found["iteration_seconds_high"],
                    "exposed_communication_seconds": found["exposed_communication_seconds"],
                    # nothing where WFBP was not among the schemes
                    "ratio_to_wfbp": found.get("ratio_to_wfbp", np.nan),
                    "ratio_to_wfbp_low": found.get("ratio_to_wfbp_low", np.nan),
                    "ratio_to_wfbp_high": found.get("ratio_to_wfbp_high", np.nan),
                    "pairs": int(found["pairs"]),
                    "predicted_over_measured": predicted / found["iteration_seconds"],
                    "accuracy": found["accuracy"],
                    "oracle_difference": result.conformance["oracle_difference"],
                    "parameters_sha256": result.conformance["parameters_sha256"],
                    "note": "; ".join(result.notes),
                }
            )
            frames.append(
                {
                    "rung": "simulated",
                    **base,
                    "messages": len(prediction["messages"]),
                    "iteration_seconds": predicted,
                    "exposed_communication_seconds": prediction["exposed_communication_seconds"],
                    "note": "; ".join(prediction["warnings"]),
                }
            )
    if not frames:
        nothing = "no training in this configuration"
        return Table(pd.DataFrame(columns=TABLE), pd.DataFrame({"model": [nothing]}), f"Real training: {nothing}.")
    frame = pd.DataFrame(frames)
    rows = []
    for _, row in frame[frame.rung == "measured"].iterrows():
        rows.append(
            {
                "model": row.model,
                "ranks": row.nodes,
                "scheme": row.scheme,
                "messages": row.messages,
                "iteration ms": f"{1e3 * row.iteration_seconds:.1f} "
                f"({1e3 * row.iteration_seconds_low:.1f} .. {1e3 * row.iteration_seconds_high:.1f})",
                "over wfbp": f"{row.ratio_to_wfbp:.3f} ({row.ratio_to_wfbp_low:.3f} .. {row.ratio_to_wfbp_high:.3f})",
                "predicted/measured": f"{row.predicted_over_measured:.2f}",
                "accuracy": f"{row.accuracy:.3f}",
                "off the oracle by": f"{row.oracle_difference:.1e}",
            }
        )
    caption = (
        "Real training on this machine: all schemes in turn in one launch. Ratios to WFBP are medians over pairs of "
        "neighbouring blocks, in brackets the 95 % interval of the median. The prediction comes from a profile of "
        "another run. Conformance: parameters after 3 float64 steps against the oracle."
    )
    return Table(frame, pd.DataFrame(rows), caption)


def _json(path: Path) -> dict[str, Any]:
    import json

    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None


def _cluster(settings: Settings) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(settings.cluster).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cluster {settings.cluster}: {' '.join(str(error).split())}") from None
    for key in ("alpha_seconds", "link_bits_per_second", "slope_hint_seconds_per_byte"):
        try:
            found = content[key]["value"]
        except (KeyError, TypeError):
            found = None
        if not isinstance(found, int | float):
            raise InputError(f"cluster {settings.cluster}: {key}: needs a value, a number")
    return content


TABLES: dict[str, Callable[[Settings, Path], Table]] = {
    "table2": table2,
    "timelines": timelines,
    "fig9a": fig9a,
    "fig9b": fig9b,
    "gap": gap,
    "training": training,
}
