"""Optimizers: by which kernel an update applies gradients, what that keeps, and which arguments it takes.

An optimizer is one file of this folder with

    optimizer(**settings) -> Optimizer      keyword arguments with defaults: the settings that a user may choose

Its kernel has the optimizer's name (`kernels/`), and arguments of its settings' names: what a plan was made with is
read off its update again (`of`). Discovery finds the file. A setting that is new gets an option in
`configuration/training.py`; a kernel that can take a loss scale out of gradients has a namesake `NAME_scaled`, or
`NAME_unscaled` if it can clip.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradsync.errors import InputError
from gradsync.kernels import SCALED, UNSCALED
from gradsync.names import modules_in, near, refuse_unknown
from gradsync.plan import BufferRole, Local, Plan


class Kept(NamedTuple):
    """A buffer that an optimizer keeps from turn to turn, an element for each of the parameters; it begins at 0."""

    name: str
    role: BufferRole = "momentum"


class Ratios(NamedTuple):
    """The ratio of each tensor's rate to lr, of norms of the tensor: which kernel computes it, of which buffers."""

    kernel: str
    reads: tuple[str, ...]
    arguments: Mapping[str, float] = {}


@dataclass(frozen=True)
class Optimizer:
    """What an update applies gradients with.

    Its kernel, the namesake, writes the parameters and then `kept`, in this order. `arguments` are all that it takes
    but the weight of the gradients, which the update knows. `torch` is the class of torch.optim that does the same, or
    that of `runtime/torch_optimizers.py` where it has none, and its arguments. With `ratios` the kernel takes tensor
    by tensor, each with its ratio.
    """

    name: str
    arguments: Mapping[str, float]
    torch: tuple[str, Mapping[str, Any]]
    kept: tuple[Kept, ...] = ()
    ratios: Ratios | None = None

    @property
    def eps(self) -> float | None:
        """What gradients that are divided by their own size can't fall below; None: steps shrink with gradients."""
        return self.arguments.get("eps")


def names() -> list[str]:
    """Names of all optimizers, sorted."""
    return modules_in(__path__)


def settings(name: str) -> dict[str, float]:
    """The settings of an optimizer and their defaults; raises InputError that lists the known optimizers."""
    return {each.name: each.default for each in inspect.signature(_made_by(name)).parameters.values()}


def get(name: str, **chosen: float) -> Optimizer:
    """The optimizer of that name; raises InputError for a name or a setting that does not exist."""
    known = settings(name)
    for key in chosen:
        if key not in known:
            has = ", ".join(f"{key}={value:g}" for key, value in known.items())
            raise InputError(f"optimizer {name!r} has no setting {key!r}; {near(key, known)}it has: {has}")
    return _made_by(name)(**chosen)


def taken(name: str, source: object) -> Optimizer:
    """The optimizer of that name, with the settings that `source` has as attributes."""
    return get(name, **{key: getattr(source, key) for key in settings(name) if hasattr(source, key)})


def of(plan: Plan) -> Optimizer | None:
    """The optimizer that a plan was made with, its settings too; None if none of these applies its gradients."""
    known = names()
    for role in plan.roles:
        local = [op for op in role.flat if isinstance(op, Local)]
        for op in local:
            if (name := plain(op.kernel)) in known:
                ratios = get(name).ratios
                kernels = (op.kernel, ratios.kernel if ratios else "")
                given = {
                    key: value for each in local if each.kernel in kernels for key, value in each.arguments.items()
                }
                return get(name, **{key: given[key] for key in settings(name) if key in given})
    return None


def plain(kernel: str) -> str:
    """The kernel that an update has without a loss scale."""
    return kernel.removesuffix(UNSCALED).removesuffix(SCALED)


def _made_by(name: str) -> Callable[..., Optimizer]:
    refuse_unknown("optimizer", name, names())
    made_by: Callable[..., Optimizer] = importlib.import_module(f"{__name__}.{name}").optimizer
    return made_by
