"""Plan a scheme and predict its iteration: the planned messages, their costs, both bounds, warnings. Needs no torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import option
from gradsync.configuration.training import Steps
from gradsync.errors import InputError
from gradsync.experiments.costs import Costs, Known, costs, on_axes

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme
    from gradsync.costs.interference import Interference
    from gradsync.plan import Plan
    from gradsync.plan.phases import PhasedPlan
    from gradsync.plan.trace import Trace
    from gradsync.plan.workload import Workload

MEAN = (  # of a plan of phases, weighted by their shares
    *("iteration_seconds", "iteration_seconds_without_interference", "exposed_communication_seconds"),
    *("hard_bound_seconds", "model_bound_seconds"),
)


@dataclass(frozen=True, kw_only=True)
class Options(Steps, Known):
    """What a plan and its prediction are made from."""

    lr: float = option(0.01, "learning rate of the planned update")
    momentum: float = option(0.0, "momentum of the planned update (of sgd)")
    schedule: str = option(meaning="a schedule, or a scheme of --schemes", metavar="NAME")
    schemes: str | None = option(None, "file of named schemes, as config/schemes.yaml", metavar="FILE")
    collective: str | None = option(None, "that sums the gradients", metavar="NAME", unset="the scheme's")
    compressor: str | None = option(
        None, "of sparse messages: what selects their elements", metavar="NAME", unset="the scheme's, if it has any"
    )
    compressor_options: tuple[str, ...] = option(
        (),
        "an option of the compressor, as the levels of qsgd (may be repeated)",
        flag="--compressor-option",
        repeated=True,
        metavar="KEY=VALUE",
    )
    density: float | None = option(
        None, "share of the elements that sparse messages have", metavar="D", unset="the scheme's, else 0.01"
    )
    no_error_feedback: bool = option(False, "what sparse messages don't have is lost, not added to the next gradient")
    pto: bool = option(False, "norms of tensors that the optimizer needs are dealt to ranks (lars, lamb)")
    topology: str | None = option(
        None,
        "of the collective: bcube, or bcube:3,2",
        metavar="NAME[:N,..]",
        unset="the scheme's, else the one that it is made for",
    )
    ranks: int = option(2, "ranks of the plan", metavar="N")
    ranks_a_node: int | None = option(None, "ranks that share a node, if that is known (dense_gpu)", metavar="N")
    schedule_options: tuple[str, ...] = option(
        (), "an option of the schedule (may be repeated)", flag="--option", repeated=True, metavar="KEY=VALUE"
    )
    update_options: tuple[str, ...] = option(
        (),
        "an option of the update, as the moving rate rho of elastic averaging (may be repeated)",
        flag="--update-option",
        repeated=True,
        metavar="KEY=VALUE",
    )
    output: Path | None = option(None, "write the plan", metavar="PLAN.json")
    prediction: Path | None = option(None, "write what is printed with --json", metavar="FILE.json")
    unpredicted: bool = option(False, "simulate nothing, so that what kernels take need not be known")


def plan(
    options: Options, *, scheme: Scheme | None = None, network: str = "", shown: Callable[[str], str] = str
) -> dict[str, Any]:
    """The prediction of a scheme's iteration; writes the plan and the prediction if options name files for them.

    `scheme`: the one that options name, if it was chosen already; `network`: the topology if it has none of its own.
    Warnings are told as `shown` gives them. Raises InputError for a scheme, options or costs that don't go together.
    """
    from gradsync.files.results import write_whole

    refuse(options)
    scheme = scheme or chosen_scheme(options)
    planned_by = _in_phases if scheme.phases else _planned_alone
    made, prediction = planned_by(scheme, options, network)
    prediction["warnings"] = [shown(warning) for warning in prediction["warnings"]]
    if options.output:
        write_whole(options.output, made.to_json() + "\n")
    if options.prediction:
        write_whole(options.prediction, json.dumps(prediction, indent=1) + "\n")
    warn(prediction["warnings"])
    return prediction


def refuse(options: Options) -> None:
    """Raises InputError for options that make no sense, whatever is planned."""
    if options.unpredicted and options.prediction:
        raise InputError("--prediction: nothing is predicted with --unpredicted: leave one of them out")
    options.refuse_steps()
    if options.ranks_a_node is not None and options.ranks_a_node < 1:
        raise InputError(f"--ranks-a-node {options.ranks_a_node}: at least 1")


def _in_phases(scheme: Scheme, options: Options, network: str) -> tuple[PhasedPlan, dict[str, Any]]:
    """The plans of its phases, and their predictions; times are means over the iterations of a training."""
    from gradsync.plan.phases import Phase, PhasedPlan

    shares = [phase.share for phase in scheme.phases]
    plans, predictions = zip(*(_planned_alone(part, options, network) for part in scheme.parts), strict=True)
    phases = tuple(Phase(share, plan) for share, plan in zip(shares, plans, strict=True))
    made = PhasedPlan(scheme.name, scheme.residual or "carry", phases)
    made.refuse()
    means = {
        key: sum(share * each[key] for share, each in zip(shares, predictions, strict=True))
        for key in MEAN
        if all(each.get(key) is not None for each in predictions)
    }
    first = {key: predictions[0][key] for key in ("workload", "ranks", "messages")}
    return made, {
        "plan": scheme.name,
        **first,
        **means,
        "phases": [
            {"share": share, **{key: value for key, value in each.items() if key not in (*first, "warnings")}}
            for share, each in zip(shares, predictions, strict=True)
        ],
        "warnings": list(dict.fromkeys(note for each in predictions for note in each["warnings"])),
    }


def _planned_alone(scheme: Scheme, options: Options, network: str) -> tuple[Plan, dict[str, Any]]:
    """The plan of a scheme without phases, and its prediction."""
    from gradsync.configuration import sent_kinds

    scheme.refuse_ranks(options.ranks, options.ranks_a_node)
    # from here on its topology has numbers, whatever the nodes are
    scheme = on(network, scheme)
    scheme = scheme.model_copy(update={"topology": scheme.network(options.ranks, options.ranks_a_node).name})
    workload, known = costs(options, options.ranks, scheme)
    sent = sent_kinds.of_scheme(scheme, options.ranks)
    known = on_axes(known, options.allreduce, sent.axes, options.ranks, sent.kinds)
    interference = interference_of(options, options.ranks)
    scheme = scheme.model_copy(update={"options": {**scheme.options, **_values(options.schedule_options, "--option")}})
    plan = planned(scheme, workload, known, options.ranks, options, interference)
    prediction = _described(plan, workload)
    if not options.unpredicted:
        prediction |= _prediction(plan, workload, known, interference)
    prediction["warnings"] = known.warnings + prediction["warnings"]
    return plan, prediction


def on(network: str, scheme: Scheme) -> Scheme:
    """The scheme on a topology (empty: none is given), unless it has one of its own, or sends all parameters packed."""
    if not network or scheme.topology or not scheme.averaged:
        return scheme
    return scheme.model_copy(update={"topology": network})


def planned(
    scheme: Any,
    workload: Workload,
    known: Costs,
    ranks: int,
    steps: Steps,
    interference: Interference | None = None,
) -> Plan:
    """The checked plan of a scheme between so many ranks, with what a step has besides."""
    from gradsync import optimizers
    from gradsync.check import check
    from gradsync.configuration import schemes
    from gradsync.costs.beside import Beside

    plan = schemes.plan(
        scheme,
        workload,
        Beside(known.all_reduce, interference) if interference else known.all_reduce,
        ranks,
        optimizer=steps.optimizer,
        loss_scaling=steps.precision == "float16",
        statistics=steps.statistics == "broadcast",
        accumulate=steps.accumulate,
        clip_norm=steps.clip_norm,
        network=known.network,
        **{key: getattr(steps, key) for key in optimizers.settings(steps.optimizer)},
    )
    check(plan)
    return plan


def warn(warnings: list[str]) -> None:
    """Show each on the screen."""
    for warning in warnings:
        print(f"gradsync: warning: {warning}", file=sys.stderr)


def interference_of(options: Known, ranks: int) -> Interference | None:
    """The measured interference that options name, between so many ranks."""
    from gradsync.costs.interference import Interference

    return Interference.load(options.interference, ranks) if options.interference else None


def bounds(plan: Plan, workload: Any, known: Costs, trace: Trace) -> dict[str, float | None]:
    """Both bounds of an iteration; raises RunError if the trace is faster than possible."""
    from gradsync.engine.bounds import both_bounds_seconds

    hard, model = both_bounds_seconds(plan, workload, known.network, *known.links)
    refuse_below(plan, trace, hard)
    return {"hard_bound_seconds": hard, "model_bound_seconds": model}


def refuse_below(plan: Plan, trace: Trace, hard: float) -> None:
    """Raises RunError if an iteration of the trace is shorter than its hard bound, in seconds."""
    from gradsync.engine import bounds

    if trace.steady:  # a turn of a loop that is not may be shorter than its mean
        bounds.refuse_below(trace.iteration_seconds(plan.pace), hard, f"plan {plan.name!r}, simulated")


def steadiness(trace: Trace) -> dict[str, Any]:
    """Whether the simulation repeats itself (None: too few turns to know), and over how many turns its times are."""
    return {"steady": trace.steady, "period_turns": trace.period}


def chosen_scheme(options: Options) -> Scheme:
    """The scheme of that name, with the collective and topology that options name instead of its own."""
    from gradsync.configuration import schemes

    if options.schemes:
        known = schemes.load(options.schemes)
        (scheme,) = schemes.pick(known, [options.schedule], "--schedule", methods=True, in_phases=True)
    else:
        scheme = schemes.Scheme(name=options.schedule)
    parts: dict[str, Any] = {
        "collective": options.collective,
        "topology": options.topology,
        "compressor": options.compressor,
        "compressor_options": _values(options.compressor_options, "--compressor-option") or None,
        "density": options.density,
        "error_feedback": False if options.no_error_feedback else None,
        "pto": options.pto or None,
    }
    given = {key: part for key, part in parts.items() if part is not None}
    of_compression = {"compressor", "compressor_options", "density", "error_feedback"}
    if scheme.phases:
        if given or options.schedule_options or options.update_options:
            raise InputError(
                f"--schedule {scheme.name}: it has phases, each with a scheme of its own: leave out options of one"
            )
        return scheme
    changed = scheme.model_dump()
    changed["update_options"] = {**scheme.update_options, **_values(options.update_options, "--update-option")}
    another = options.compressor not in (None, scheme.compressor)
    _refuse_displaced(scheme, options, another)
    if another:
        changed = {key: value for key, value in changed.items() if key not in of_compression}
        if not (options.collective or scheme.sparse or _sums(options)):
            changed["collective"] = ""
    elif options.compressor_options:
        given["compressor_options"] = {**scheme.compressor_options, **given["compressor_options"]}
    scheme = schemes.Scheme.model_validate({**changed, **given})
    if scheme.compressor or scheme.pto or scheme.by_level or of_compression & given.keys():
        scheme.refuse_nonsense("--schedule")
    scheme.refuse_parts_of_sums()
    return scheme


def _refuse_displaced(scheme: Scheme, options: Options, another: bool) -> None:
    """Raises InputError for an option that would drop the scheme's compressor, or its collective, unsaid.

    `another`: whether options name a compressor that is not the scheme's.
    """
    from gradsync import sparse
    from gradsync.collectives import NATIVE

    able = " or ".join(sparse.names())
    if scheme.sparse and options.collective not in (None, *sparse.names()) and not _sums(options):
        raise InputError(
            f"--collective {options.collective}: scheme {scheme.name!r} has compressor {scheme.compressor!r}, whose "
            f"messages it does not sum: take collective {able}, or a scheme without a compressor"
        )
    kept = not options.collective and scheme.collective != NATIVE
    if another and kept and not (scheme.sparse or _sums(options)):
        raise InputError(
            f"--compressor {options.compressor}: scheme {scheme.name!r} sums by collective {scheme.collective!r}, "
            f"which takes no messages of a compressor: name a --collective too, {able}, or take another scheme"
        )


def _sums(options: Options) -> bool:
    """Whether options name a compressor whose messages are summed."""
    from gradsync import compressors

    return bool(options.compressor) and compressors.factors(str(options.compressor))


def _values(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Key -> value of options that are given as KEY=VALUE."""
    values = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"{flag} {text}: give KEY=VALUE")
        values[key] = _value(value)
    return values


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _described(plan: Plan, workload: Any) -> dict[str, Any]:
    return {
        "plan": plan.name,
        "workload": workload.name,
        "ranks": plan.ranks,
        "collective": plan.provenance["collective"],
        "topology": plan.provenance["topology"],
        "messages": plan.messages(),
        "buffer_bytes": plan.most_bytes(),
        "state_bytes": plan.most_bytes("momentum"),
        "warnings": [],
    }


def _prediction(plan: Plan, workload: Any, known: Costs, interference: Interference | None) -> dict[str, Any]:
    from gradsync.costs.fitted import Fitted
    from gradsync.engine.simulate import simulate
    from gradsync.statistics import quiet

    cost, network = known.all_reduce, known.network
    alone = getattr(cost, "alone", cost)  # of a message alone, if the cost knows of contention
    plain = simulate(plan, workload, network)
    trace = simulate(plan, workload, network, interference=interference) if interference else plain
    messages = plan.messages()
    layer_bytes = {layer.name: layer.bytes for layer in workload.layers}
    extrapolated = []
    if isinstance(alone, Fitted):
        message_bytes = [sum(layer_bytes[name] for name in message) for message in messages]
        extrapolated = sorted({size for size in message_bytes if alone.extrapolates(size)})
    prediction: dict[str, Any] = {
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "iteration_seconds_without_interference": plain.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        **steadiness(trace),
        **bounds(plan, workload, known, plain),
        "allreduce": cost.describe(),
        "warnings": [note for note in dict.fromkeys((trace.note, plain.note)) if note],
    }
    if interference:
        prediction["warnings"] += quiet.load_warnings(interference.provenance, "slow-down")
        prediction["interference"] = [
            {"bytes": point.bytes, "computation": point.computation, "communication": point.communication}
            for point in interference.points
        ]
        prediction["handover_seconds"] = interference.handover_seconds
    if isinstance(alone, Fitted):
        prediction["allreduce_residual"] = alone.residual
        prediction["extrapolated_bytes"] = extrapolated
    if extrapolated:
        prediction["warnings"].append(
            f"{len(extrapolated)} message size(s), up to {extrapolated[-1]} bytes, lie outside the measured "
            f"{alone.smallest:g} to {alone.largest:g} bytes: their times are extrapolated; measure up to the largest "
            "message"
        )
    return prediction
