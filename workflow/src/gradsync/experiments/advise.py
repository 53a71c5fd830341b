"""Rank all schemes that fit a model and a network by their predicted iteration, and tell why.

It needs no torch unless something is measured here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradsync.configuration.options import option
from gradsync.configuration.training import Steps
from gradsync.errors import InputError
from gradsync.experiments import fsdp2, other_networks, predict
from gradsync.experiments.at_hand import AtHand, known, measures
from gradsync.experiments.costs import Costs, axes_lacking, costs, on_axes
from gradsync.experiments.hosts import described, enter
from gradsync.limits import MOST_SHORTLISTED

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme
    from gradsync.costs.interference import Interference
    from gradsync.plan import Plan
    from gradsync.plan.trace import Trace
    from gradsync.plan.workload import Workload

VERSION = 1
BASELINE = "fixed_buckets"  # what stock DDP does with its default bucket size
MOST_EXPOSED = 8  # messages that are named
ADVICE_BYTES = 1e6  # and its picture, and more


@dataclass(frozen=True, kw_only=True)
class Options(Steps, AtHand):
    """Options of `gradsync advise`."""

    schemes: str | None = option(
        None, "file of named schemes, as config/schemes.yaml", metavar="FILE", unset="every schedule and collective"
    )
    explain: bool = option(False, "also tell what is exposed, and what another network would change")
    measure: int | None = option(
        None,
        "also train the first N and stock DDP, on ranks here or of the Slurm allocation, with computation replayed; "
        "correct the ranking by that",
        metavar="N",
        least=1,
        most=MOST_SHORTLISTED,
    )
    output: Path | None = option(None, "write what is printed with --json", metavar="FILE.json")
    picture: Path | None = option(None, "draw the ranking: svg, pdf or png", metavar="FILE")


class Candidate(NamedTuple):
    """A scheme that fits, what it is planned from, and its simulated iterations."""

    scheme: Scheme
    workload: Workload
    known: Costs
    plan: Plan
    trace: Trace
    interference: Interference | None

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.trace.iteration_seconds(self.plan.pace)


def advise(options: Options) -> dict[str, Any]:
    """The ranking, the fastest first, with the reasons why schemes were left out; writes it if options name a file.

    Schemes whose ranks go on by themselves for a period come apart: their iterations take as many samples, and train
    another thing.

    Raises InputError if nothing fits, or for costs and a network that don't go together.
    """
    from gradsync.files.results import write_whole

    options.refuse_steps()
    if options.testbed and options.measure is None and (options.allreduce or options.network or options.cluster):
        raise InputError(
            "advise: --testbed is where --measure N trains, and where all-reduces are measured if none are given: "
            "give --measure, or leave it out"
        )
    if options.device != "cpu" and options.measure is None and not measures(options):
        raise InputError("--device: nothing is measured here: leave it out, or give --model or --measure")
    if options.measure is not None:
        from gradsync.runtime.launch import room_for

        room_for(options.ranks, "--ranks")
        described(options, [options.ranks])
        enter(options)
    _refuse_files(options)
    with known(options) as told:
        advice = _advice(told.options)
    advice["all_reduce"] = told.lasting(advice["all_reduce"])
    advice["warnings"] = [told.lasting(warning) for warning in advice["warnings"]]
    if told.network:
        advice["network"] = {"text": told.network.text, "source": told.network.source}
    if options.output:
        write_whole(options.output, json.dumps(advice, indent=1) + "\n")
    return advice


def _refuse_files(options: Options) -> None:
    """Raises InputError for schemes that can't be read, and for files that can't be written, before anything runs."""
    from gradsync.configuration import schemes
    from gradsync.files import disk

    if options.schemes:
        schemes.load(options.schemes)
    for path in filter(None, (options.output, options.picture)):
        disk.refuse(path.parent, ADVICE_BYTES, "the advice")


def _advice(options: Options) -> dict[str, Any]:
    """The same, of options that tell all."""
    from gradsync import topologies

    network = topologies.parse(options.topology or "", options.ranks).name
    every, left_out = _candidates(options, network)
    candidates = [each for each in every if each.scheme.averaged]
    if not candidates:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise InputError(f"advise: no scheme fits {options.ranks} ranks on {network}: {reasons}")
    candidates.sort(key=lambda each: (each.seconds, len(each.plan.messages())))
    peers, unknown = _peers(candidates, options, network)
    rows = [*(_row(each, candidates) for each in candidates), *peers]
    rows.sort(key=lambda row: (row["iteration_seconds"], row["messages"]))
    first = candidates[0]
    advice: dict[str, Any] = {
        "version": VERSION,
        "workload": first.workload.name,
        "tensors": len(first.workload.layers),
        "bytes": first.workload.bytes,
        "ranks": int(options.ranks),
        "topology": network,
        "all_reduce": first.known.all_reduce.describe(),
        "computation_seconds": first.trace.computation_seconds(first.plan.pace),
        "ranking": rows,
        "ties": _ties(candidates),
        "not_told_apart": [row["scheme"] for row in rows if row["low_seconds"] <= rows[0]["high_seconds"]],
        "other_training": [
            _row(each, candidates) for each in sorted(every, key=lambda each: each.seconds) if each not in candidates
        ],
        "left_out": left_out | unknown,
        "warnings": [
            *dict.fromkeys(note for each in every for note in (*each.known.warnings, each.trace.note) if note),
            *(fsdp2.notes(options) if peers else ()),
        ],
    }
    if options.explain:
        advice["why"] = _why(first)
        advice["elsewhere"] = list(other_networks.compared(candidates, options))
        advice["order_changes"] = other_networks.order_changes(candidates[:2], options)
    if options.measure is not None:
        from gradsync.experiments import shortlist

        advice["measured"] = shortlist.measure(candidates, BASELINE, options)
        advice["ranking"] = shortlist.corrected(rows, advice["measured"])
    return advice


def _candidates(options: Options, network: str) -> tuple[list[Candidate], dict[str, str]]:
    """(every scheme that fits, why each of the others doesn't)."""
    from gradsync.configuration import schemes

    known_schemes = schemes.load(options.schemes) if options.schemes else schemes.discovered()
    # what is wrong with a cost is wrong for all schemes, and no reason to leave one out
    costs(options, options.ranks, schemes.Scheme(name="wfbp", topology=network))
    interference = predict.interference_of(options, options.ranks)
    candidates, left_out = [], {}
    for scheme in known_schemes.values():
        try:
            candidates.append(_candidate(scheme.model_copy(update={"topology": network}), options, interference))
        except InputError as error:
            left_out[scheme.name] = str(error).removeprefix(f"scheme {scheme.name!r}: ")
    return candidates, left_out


def _candidate(scheme: Scheme, options: Options, interference: Interference | None) -> Candidate:
    """Raises InputError, the reason why it is left out, for a scheme that does not fit or can't be compared."""
    from gradsync import compressors, updates
    from gradsync.collectives import NATIVE
    from gradsync.engine.simulate import simulate
    from gradsync.experiments.costs import LINKS

    if scheme.phases:
        raise InputError("it has phases, each with a plan of its own: gradsync plan predicts them and their mean")
    if scheme.compressor:
        sent = "a code of each gradient" if compressors.codes(scheme.compressor) else "a part of each gradient"
        sent = "factors of matrices of gradients" if compressors.factors(scheme.compressor) else sent
        raise InputError(f"it sends {sent}, and so trains another thing than the others")
    if scheme.by_level and options.cluster:
        raise InputError("what its sums inside and between nodes cost was not measured on a cluster")
    if scheme.by_level and (options.contention or options.capacity is not None):
        raise InputError("what several of its messages take at a time, inside and between nodes, is not known")
    if not scheme.averaged and not updates.steps(scheme.update):
        raise InputError(
            "it trains by a method of its own, whose iterations do not compare with those of a mean gradient"
        )
    scheme.refuse_ranks(options.ranks)
    scheme.refuse_device(options.device)
    scheme.refuse_scaled(options.scaled)
    scheme.refuse_optimizer(options.optimizer)
    if scheme.collective != NATIVE and options.allreduce and _a_line(options.allreduce):
        raise InputError(f"a line is the cost of one collective, whichever it is: to compare collectives, give {LINKS}")
    if scheme.collective != NATIVE and options.contention:
        raise InputError("--contention is of all-reduces of the backend's own: to compare collectives, give --capacity")
    try:
        workload, known = costs(options, options.ranks, scheme)
    except InputError:
        measured = options.cluster or (options.allreduce and Path(options.allreduce).is_file())
        if scheme.collective == NATIVE or not measured:
            raise
        raise InputError(
            f"these collectives were not measured: gradsync measure allreduce --collective NAME does; or give {LINKS}"
        ) from None
    known = _inside_and_between(known, scheme, options)
    plan = predict.planned(scheme, workload, known, options.ranks, options, interference)
    trace = simulate(plan, workload, known.network, interference=interference)
    return Candidate(scheme, workload, known, plan, trace, interference)


def _inside_and_between(known: Costs, scheme: Scheme, options: Options) -> Costs:
    """With what messages cost that a scheme sums by level; raises InputError if that would be a guess."""
    from gradsync.configuration import sent_kinds
    from gradsync.experiments.costs import LINKS_BY_KIND

    if not scheme.by_level:
        return known
    sent = sent_kinds.of_scheme(scheme, options.ranks)
    if any(axis.size == 1 for axis in sent.axes):
        raise InputError("sums by level need ranks of one node and several nodes, else they are all-reduces")
    if lacking := axes_lacking(options.allreduce, sent.axes, options.ranks, sent.kinds):
        measure = f"gradsync measure allreduce --ranks {options.ranks} {' '.join(sent.words())}"
        raise InputError(
            f"what its sums over {' and '.join(lacking)} cost is not known: give {LINKS_BY_KIND}, or the points of "
            f"{measure}"
        )
    return on_axes(known, options.allreduce, sent.axes, options.ranks, sent.kinds)


def _peers(candidates: list[Candidate], options: Options, network: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """(rows of PyTorch's own ways that are simulated without a plan, why others are left out)."""
    from gradsync.configuration.scheme import Scheme

    taken_names = {each.scheme.name for each in candidates}
    peers = [peer for peer in fsdp2.peers() if peer.name not in taken_names]
    try:
        fsdp2.refuse(options)
        whole = _candidate(Scheme(name=fsdp2.AT_ONCE, topology=network), options, None)
        return [fsdp2.row(peer, whole, options, _baseline(candidates)) for peer in peers], {}
    except InputError as error:
        return [], {peer.name: str(error).removeprefix(f"scheme {fsdp2.AT_ONCE!r}: ") for peer in peers}


def _baseline(candidates: list[Candidate]) -> float | None:
    """The iteration of stock DDP, if it is among them."""
    return next((each.seconds for each in candidates if each.scheme.name == BASELINE), None)


def _ties(candidates: list[Candidate]) -> list[dict[str, Any]]:
    """Groups of schemes whose predictions differ by no more than TIED, the fastest first; those of them with one plan.

    `candidates` are in order of their predictions.
    """
    groups: list[list[Candidate]] = []
    for each in candidates:
        if groups and each.seconds <= groups[-1][0].seconds * (1 + other_networks.TIED):
            groups[-1].append(each)
        else:
            groups.append([each])
    return [
        {"schemes": [each.scheme.name for each in group], "of_one_plan": _of_one_plan(group)}
        for group in groups
        if len(group) > 1
    ]


def _of_one_plan(group: list[Candidate]) -> list[list[str]]:
    """Those of a group whose operations are the same, so that no cost can tell them apart."""
    alike: list[list[Candidate]] = []
    for each in group:
        same = next((others for others in alike if others[0].plan.roles == each.plan.roles), None)
        if same is None:
            alike.append([each])
        else:
            same.append(each)
    return [[each.scheme.name for each in others] for others in alike if len(others) > 1]


def _a_line(text: str) -> bool:
    return text.replace(" ", "").startswith(("a=", "b=")) and not Path(text).is_file()


def _row(candidate: Candidate, candidates: list[Candidate]) -> dict[str, Any]:
    """What the table says of a scheme."""
    from gradsync.engine.bounds import both_bounds_seconds

    scheme, plan, seconds = candidate.scheme, candidate.plan, candidate.seconds
    _, bound = both_bounds_seconds(plan, candidate.workload, candidate.known.network, *candidate.known.links)
    low, high = _interval(candidate)
    return {
        "scheme": scheme.name,
        "label": scheme.label,
        "collective": scheme.collective,
        "iteration_seconds": seconds,
        "low_seconds": low,
        "high_seconds": high,
        "over_baseline": other_networks.ratio(seconds, _baseline(candidates)),
        "exposed_communication_seconds": candidate.trace.exposed_communication_seconds(plan.pace),
        "messages": len(plan.messages()),
        "over_bound": other_networks.ratio(seconds, bound),
        "buffer_bytes": plan.most_bytes(),
        "state_bytes": plan.most_bytes("momentum"),
        "changes_training": scheme.changes_training,
        "on_gpus": scheme.on_gpus,
        "planned": True,
    }


def _interval(candidate: Candidate) -> tuple[float, float]:
    """The iteration if messages take less and more by the mean residual of the fit that their cost comes from."""
    residual = other_networks.residual(candidate)
    if not residual:
        return candidate.seconds * (1 - other_networks.TIED), candidate.seconds * (1 + other_networks.TIED)
    low, high = (other_networks.on(candidate, factor, factor, 1.0) for factor in (1 - residual, 1 + residual))
    return min(low, candidate.seconds), max(high, candidate.seconds)


def _why(candidate: Candidate) -> dict[str, Any]:
    """Where the iteration of a scheme goes, and which messages computation waits for, the longest wait first."""
    trace, rank = candidate.trace, candidate.plan.pace
    tensors = _tensors(candidate.plan)
    exposed = sorted(trace.exposed_by_operation(rank).items(), key=lambda item: -item[1])
    return {
        "scheme": candidate.scheme.name,
        "computation_seconds": trace.computation_seconds(rank),
        "exposed_communication_seconds": trace.exposed_communication_seconds(rank),
        "exposed_messages": [
            {"message": name, "exposed_seconds": seconds, "tensors": tensors.get(name, [])}
            for name, seconds in exposed[:MOST_EXPOSED]
        ],
    }


def _tensors(plan: Plan) -> Mapping[str, list[str]]:
    """The first and the last tensor that each message carries."""
    carried: dict[str, list[str]] = {}
    for role in plan.roles:
        for op in role.flat:
            for ref in op.reads:
                inside = [each.name for each in plan.tensors if ref.start < each.stop and each.start < ref.stop]
                if plan.buffer[ref.buffer].role in ("gradient", "parameter") and inside:
                    carried.setdefault(op.name, inside[:1] + inside[1:][-1:])
    return carried
