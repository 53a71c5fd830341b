"""The schemes that there are: those of a file and those discovered, which of them a launch means, and their plans.

Each file in `schedules/` and in `collectives/` is a scheme of its own name, with the other parts at their defaults. So
are sums by level (`native_by_level`), and each update that is a method of its own (`updates.methods`), as elastic
averaging is.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gradsync import collectives, compressors, optimizers, schedules, sparse, updates
from gradsync import names as names_of
from gradsync.collectives import NATIVE
from gradsync.configuration.scheme import BY_LEVEL, Scheme
from gradsync.costs import MessageCost, Network
from gradsync.costs.beside import Beside
from gradsync.engine.by_level_cost import ByLevelCost
from gradsync.engine.low_rank_cost import LowRankCost
from gradsync.engine.sparse_cost import SparseCost
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.transforms.step import Step

__all__ = ["Scheme", "discovered", "load", "pick", "plan"]


def discovered() -> dict[str, Scheme]:
    """A scheme for each schedule, collective, compressor and method; raises InputError if two of them have one name."""
    every = _parts()
    if twice := sorted(name for name in {*every} if every.count(name) > 1):
        raise InputError(f"{twice[0]!r} is the name of two parts, a scheme can be one of them: rename a file")
    return {name: Scheme(name=name) for name in every if name != NATIVE}


def _parts() -> tuple[str, ...]:
    """The names of all parts that are schemes."""
    summed = *schedules.names(), *collectives.names(), NATIVE, BY_LEVEL
    return *summed, *sparse.names(), *compressors.names(), *updates.methods()


def load(path: str | Path) -> dict[str, Scheme]:
    """All schemes: those that the file names and those discovered; raises InputError with file and key."""
    return dict(_loaded(reading.text(path, "schemes", reading.MOST_CONFIGURED_BYTES), str(path), _parts()))


# every table, launch and verdict asks for the same file, and a check of each scheme takes its time
@lru_cache(maxsize=8)
def _loaded(content: str, path: str, parts: tuple[str, ...]) -> dict[str, Scheme]:
    entries = reading.parse_yaml(content, f"schemes {path}") or {}
    if not isinstance(entries, dict):
        raise InputError(f"{path}: needs scheme names as keys")
    named: dict[str, Scheme] = {}
    for name, entry in entries.items():
        names_of.refuse_form("scheme", name, path)
        if not isinstance(entry, dict | None):
            raise InputError(f"{path}, scheme {name!r}: needs keys and values, not {names_of.shown(entry)}")
        if "name" in (entry or {}):
            raise InputError(f"{path}, scheme {name!r}: leave out the key name: {name!r} is its name")
        try:
            named[name] = Scheme.model_validate({"name": name, **(entry or {})})
        except ValidationError as error:
            raise InputError(f"{path}, scheme {name!r}: {first_problem(error, Scheme)}") from None
        if not named[name].phases:
            named[name].refuse_nonsense(path)
    every = named | {name: scheme for name, scheme in discovered().items() if name not in named}
    return {name: scheme.with_parts(every, path) for name, scheme in every.items()}


def pick(
    known: dict[str, Scheme],
    names: list[str] | Literal["native"] | None,
    where: str,
    ranks: int | None = None,
    device: str = "cpu",
    scaled: bool = False,
    optimizer: str = "",
    methods: bool = False,
    in_phases: bool = False,
) -> list[Scheme]:
    """The schemes of these names; None: all that can run on so many ranks and that device, and train alike.

    Compression changes what is trained, and so do methods of their own: such schemes are named, or not meant. So are
    schemes with phases, which only a caller that can train `in_phases` may have, sums in memory, which one machine
    alone has, and sums by level, which need whole nodes.

    `scaled`: the loss has a scale (`Scheme.refuse_scaled`); `optimizer`: that of all steps, if it is known.

    `native`: those of them that sum by the backend's own collective, so that their schedules are what differs.
    `methods`: whether a name may be that of a method that applies no mean gradient (`Scheme.averaged`).

    Raises InputError for a name that does not exist or can't run there.
    """
    alike = [each for each in known.values() if each.averaged and not (each.compressor or each.phases)]
    alike = [each for each in alike if not (each.in_memory or each.by_level)]
    every = [each for each in alike if names is None or each.collective == NATIVE]
    named = names if isinstance(names, list) else None
    for name in named or ():
        names_of.refuse_unknown("scheme", name, known, where)
    picked = []
    for scheme in every if named is None else map(known.__getitem__, named):
        try:
            if not (scheme.averaged or methods):
                raise InputError(
                    f"scheme {scheme.name!r}: update {scheme.update!r} applies no mean gradient of all ranks: it is no "
                    "contender beside schemes that do (gradsync plan and simulate take it)"
                )
            if scheme.phases and not in_phases:
                raise InputError(f"scheme {scheme.name!r} has phases, which only launches of `training` have: name one")
            for part in scheme.parts:
                if ranks is not None:
                    part.refuse_ranks(ranks)
                part.refuse_device(device)
                part.refuse_scaled(scaled)
                if optimizer:
                    part.refuse_optimizer(optimizer)
        except InputError as error:
            if named is None:
                continue
            raise InputError(f"{where}: {error}") from None
        picked.append(scheme)
    return picked


def plan(
    scheme: Scheme,
    workload: Workload,
    cost: MessageCost,
    ranks: int,
    *,
    optimizer: str = "sgd",
    loss_scaling: bool = False,
    statistics: bool = True,
    accumulate: int = 1,
    clip_norm: float | None = None,
    ranks_a_node: int | None = None,
    network: Network | None = None,
    **settings: float,
) -> Plan:
    """Plan a scheme for a workload; `cost` is that of the scheme's all-reduce between `ranks` ranks.

    Sparse messages, and sums by level, cost what `network` says (None: as on a ring that takes what the all-reduce
    takes); over axes of their way that it doesn't know, they are rings on the same links.

    `loss_scaling` guards float16 computation, `statistics` broadcasts rank 0's batch-norm statistics. A step has
    `accumulate` micro-batches, each a forward and a backward of the workload; the mean gradient is clipped to
    `clip_norm`, and applied by `optimizer` with these `settings`. `ranks_a_node` are on a node together, if that is
    known.

    Raises InputError for an option, a setting or a number of ranks that the scheme's parts refuse.
    """
    if scheme.phases:
        raise InputError(f"scheme {scheme.name!r} has phases: each has a plan of its own: plan those")
    scheme.refuse_ranks(ranks, ranks_a_node)
    scheme.refuse_optimizer(optimizer)
    updates.refuse_options(scheme.update, scheme.update_options)
    compression, levels = scheme.compression(ranks, ranks_a_node), scheme.levels(ranks, ranks_a_node)
    low_rank, on_the_wire = scheme.low_rank(workload), workload.on_the_wire(scheme.wire)
    planned_with = cost if compression is None else SparseCost.around(cost, compression, workload, network)
    planned_with = planned_with if low_rank is None else LowRankCost(cost, low_rank, workload)
    planned_with = planned_with if levels is None else ByLevelCost.around(cost, levels, on_the_wire, network)
    if isinstance(cost, Beside) and planned_with is not cost:
        planned_with = Beside(planned_with, cost.interference)
    messages = schedules.messages(scheme.schedule, on_the_wire, planned_with, scheme.options)
    planned = updates.plan(
        scheme.update,
        scheme.name,
        workload,
        messages,
        ranks,
        algorithm=scheme.algorithm,
        shape=() if scheme.algorithm == NATIVE else scheme.shape(ranks, ranks_a_node),
        optimizer=optimizers.get(optimizer, **settings),
        **scheme.update_options,
        step=Step(
            wire=scheme.wire,
            loss_scaling=loss_scaling,
            statistics=statistics,
            accumulate=accumulate,
            clip_norm=clip_norm,
            compression=compression,
            low_rank=low_rank,
            levels=levels,
            pto=scheme.pto,
        ),
    )
    origin = {
        "scheme": scheme.name,
        **({} if scheme.averaged else {"update": scheme.update}),
        **({"before": first} if (first := updates.before(scheme.update)) else {}),
        "schedule": scheme.schedule,
        "collective": scheme.collective,
        "topology": scheme.network(ranks, ranks_a_node).name,
        "workload": workload.name,
        "all_reduce": cost.describe(),
        **({"compression": how.describe()} if (how := compression or low_rank) else {}),
        **({"pto": "norms dealt to ranks"} if scheme.pto else {}),
    }
    return dataclasses.replace(planned, provenance=origin)
