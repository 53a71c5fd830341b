"""Which launches of methods with masters, workers or a centre a configuration can't have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradsync import collectives, topologies, updates
from gradsync.configuration import schemes
from gradsync.configuration.launches import ElasticTraining
from gradsync.configuration.on_testbed import NO_SHARED_MEMORY
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.configuration.settings import Settings


def refuse(settings: Settings, known: dict[str, schemes.Scheme], jobs: set[str], place: str) -> None:
    """Raises InputError for what can't be trained; `jobs` are names that are taken, which workloads are filed by."""
    for i, launch in enumerate(settings.elastic):
        here = f"{place}.{i}"
        if launch.job in jobs:
            raise InputError(f"{here}: {launch.job} is there already: one entry each, or a `name`")
        jobs.add(launch.job)
        if launch.paper not in settings.papers:
            shown = ", ".join(settings.papers)
            raise InputError(f"{here}.paper: {launch.paper!r} is not one of this configuration: {shown}")
        if len(set(launch.methods)) < len(launch.methods):
            raise InputError(f"{here}.methods: a method is named twice")
        for scheme in schemes.pick(known, launch.methods, f"{here}.methods", methods=True, device=settings.device):
            if first := updates.before(scheme.update):
                raise InputError(
                    f"{here}.methods: {scheme.name} goes on from iterations of {first}, and a launch has one plan a "
                    "method: train it by `gradsync elastic --before`"
                )
            try:
                scheme.refuse_ranks(scheme.ranks(launch.workers))
            except InputError as error:
                raise InputError(f"{here}.methods: {error}") from None
            if launch.collective and updates.rooted(scheme.update):
                try:
                    collectives.refuse(launch.collective, (2,), collectives.REDUCE)
                    scheme.model_copy(update={"collective": launch.collective}).refuse_device(settings.device)
                except InputError as error:
                    raise InputError(f"{here}.collective: {error}") from None
            _refuse_hosts(launch, scheme, settings.device, here)
        try:
            launch.options(settings.device).refuse()
        except InputError as error:
            raise InputError(f"{here}: {error}") from None


def _refuse_hosts(launch: ElasticTraining, scheme: schemes.Scheme, device: str, place: str) -> None:
    """Raises InputError for a testbed that there is none of, or that the scheme can't run on."""
    if launch.testbed is None:
        for key in ("rate", "flow_rate", "compute_seconds"):
            if key in launch.model_fields_set and getattr(launch, key) is not None:
                raise InputError(f"{place}.{key}: means nothing without a testbed")
        return
    if device != "cpu":
        raise InputError(
            f"{place}.testbed: hosts of a testbed have no GPUs, and the configuration has device: {device}"
        )
    if launch.flow_rate is not None and launch.flow_rate > launch.rate:
        raise InputError(f"{place}.flow_rate: {launch.flow_rate:g} is more than the rate {launch.rate:g} of a link")
    try:
        topologies.parse(launch.testbed, scheme.ranks(launch.workers))
    except InputError as error:
        raise InputError(f"{place}.testbed: {error}") from None
    if scheme.in_memory:
        raise InputError(f"{place}.methods: {scheme.name} {NO_SHARED_MEMORY}")
