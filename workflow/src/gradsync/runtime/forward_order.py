"""In which order the forward pass of a model first needs its parameters, and hooks that say so while it runs.

One pass of the model, or of a copy of it, is traced. Each call of a module is an *event*; a parameter belongs to the
last event that has begun when an operation first takes it. So a hook before that call (the module's k-th of a pass)
comes before the parameter is read, and as late as hooks can come: a parameter that a module uses after the modules
inside it have run belongs to the last of those.

Operations are seen below autograd, with the memory that they take: tied weights, lists of weights, weights of a module
that is not called itself and functions with a backward of their own are all the same there. A kernel that is called
past torch's operators is not seen: a parameter that nothing takes belongs to the first call of its own module, and to
the last event that has any if that is not called either, as its gradient never comes.

Every pass must take the same way through the model as the traced one.
"""

from __future__ import annotations

import bisect
import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradsync.runtime.hooks import Uncopied

Needed = Callable[[tuple[str, ...]], None]
"""Called with the names of the parameters that forward needs from now on."""


class Event(NamedTuple):
    """The `call`-th call of a module in a pass (0: the first), and the parameters that are first needed there.

    Those that nothing takes come first, then they are in the order of `named_parameters()`.
    """

    module: str
    call: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class ForwardOrder:
    """The events of a pass that have parameters, in order; each parameter is in one of them."""

    events: tuple[Event, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in the order in which forward needs them."""
        return tuple(name for event in self.events for name in event.names)

    def among(self, names: Iterable[str]) -> ForwardOrder:
        """The same order of these parameters alone."""
        kept = set(names)
        events = (event._replace(names=tuple(name for name in event.names if name in kept)) for event in self.events)
        return ForwardOrder(tuple(event for event in events if event.names))

    def watch(self, model: nn.Module, needed: Needed) -> Watch:
        """Set hooks on `model` that call `needed` at each of these events, before the module's own forward."""
        return Watch(self.events, model, needed)


class Watch:
    """Hooks that tell what forward needs: `begin` comes before each pass, and `close` removes them."""

    def __init__(self, events: Iterable[Event], model: nn.Module, needed: Needed):
        self.needed = needed
        of_module: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
        for event in events:
            of_module[event.module][event.call] = event.names
        self.calls = dict.fromkeys(of_module, 0)
        self.hooks = [
            model.get_submodule(module).register_forward_pre_hook(self._hook(module, of_calls), prepend=True)
            for module, of_calls in of_module.items()
        ]

    def _hook(self, module: str, of_calls: dict[int, tuple[str, ...]]) -> Callable[..., None]:
        def called(*_: Any) -> None:
            call = self.calls[module]
            self.calls[module] = call + 1
            if call in of_calls:
                self.needed(of_calls[call])

        return Uncopied(called)

    def begin(self) -> None:
        """A pass begins: calls are counted anew."""
        self.calls = dict.fromkeys(self.calls, 0)

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self.hooks:
            hook.remove()


class Traced:
    """The order of the forward pass that a model makes inside of this context; its values stay what they are."""

    def __init__(self, model: nn.Module):
        parameters = dict(model.named_parameters())
        self.owner_of = {name: name.rpartition(".")[0] for name in parameters}
        self.uses = _Uses(parameters)
        self.hooks = [
            # before hooks that the module has: they may compute one parameter from others
            module.register_forward_pre_hook(self.uses.calls_of(name), prepend=True)
            for name, module in model.named_modules()
        ]

    def __enter__(self) -> Traced:
        self.uses.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.uses.__exit__(*error)
        for hook in self.hooks:
            hook.remove()

    def called(self) -> None:
        """The model itself has been called already, and its hook here came too late."""
        self.uses.calls_of("")()

    def order(self) -> ForwardOrder:
        """That of the pass."""
        uses = self.uses
        first_calls = {module: event for event, (module, call) in enumerate(uses.calls) if call == 0}
        last = max(uses.event_of.values(), default=0)
        untaken, taken = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
        for name, owner in self.owner_of.items():
            if name in uses.event_of:
                taken[uses.event_of[name]].append(name)
            else:
                untaken[first_calls.get(owner, last)].append(name)
        return ForwardOrder(
            tuple(Event(*uses.calls[event], (*untaken[event], *taken[event])) for event in sorted({*untaken, *taken}))
        )


def forward_order(model: nn.Module, run: Callable[[nn.Module], object]) -> ForwardOrder:
    """The order of the pass that `run` makes with a copy of `model`; neither it nor torch's random state is changed."""
    copied = copy.deepcopy(model)
    gpus = {parameter.device for parameter in copied.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(list(gpus)), torch.no_grad(), Traced(copied) as traced:
        run(copied)
    return traced.order()


class _Uses(TorchDispatchMode):
    """The calls of modules so far, and for each parameter the number of the last one when something first took it."""

    supports_higher_order_operators = True  # what they take is seen, whatever they do with it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler for it: as much as torch itself

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        super().__init__()
        # by memory: a view of a parameter is that parameter; several may lie in one memory, one after the other
        self.names_in: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for name, parameter in parameters.items():
            self.names_in[parameter.untyped_storage()._cdata].append((int(parameter.storage_offset()), name))
        for places in self.names_in.values():
            places.sort()
        self.calls: list[tuple[str, int]] = []  # (module, how many of its calls came before)
        self.counts: Counter[str] = Counter()
        self.event_of: dict[str, int] = {}

    def calls_of(self, module: str) -> Callable[..., None]:
        """The hook before calls of a module."""

        def called(*_: Any) -> None:
            self.calls.append((module, self.counts[module]))
            self.counts[module] += 1

        return called

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the parameters among what an operation takes, then do it."""
        for tensor in _tensors((*args, *(kwargs or {}).values())):
            name = self._name(tensor)
            if name is not None and self.calls:
                self.event_of.setdefault(name, len(self.calls) - 1)
        return function(*args, **(kwargs or {}))

    def _name(self, tensor: torch.Tensor) -> str | None:
        """The parameter that a tensor is, or is a view of."""
        if tensor.layout != torch.strided:
            return None
        starts = self.names_in.get(tensor.untyped_storage()._cdata)
        if not starts:
            return None
        place = bisect.bisect_right(starts, tensor.storage_offset(), key=_start) - 1
        return starts[max(0, place)][1]


def _start(place: tuple[int, str]) -> int:
    return place[0]


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def by_parameter(
    events: Sequence[tuple[tuple[str, ...], Any]], start: Any, end: Any, between: Callable[[Any, Any], float]
) -> dict[str, float]:
    """What a forward pass from `start` to `end` takes, by parameter, in the order of `events`: (names, mark) each.

    From one event to the next it is that of the last parameter of the first one: a plan that needs them one after the
    other goes on with forward when the last is there. What comes before the first event belongs to that one too.
    """
    begun = [start, *(mark for _, mark in events[1:])]
    spent: dict[str, float] = {}
    for (names, _), before, after in zip(events, begun, [*begun[1:], end], strict=False):
        spent |= dict.fromkeys(names, 0.0)
        spent[names[-1]] = between(before, after)
    return spent
