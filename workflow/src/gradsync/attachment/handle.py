"""The handle of a model in a loop of one's own: hooks that drive a plan while forward and backward run.

A turn of the plan begins with the first forward after the last backward that was sent. Forward waits for what the plan
holds back; each gradient is handed over when autograd has accumulated it; the end of backward ends the passes of the
turn. Then either the sums of gradients lie in `parameter.grad`, for one's own optimizer, or the plan updates parameters
itself, beside the next forward.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment.owned import Update
from gradsync.attachment.refusal import refuse
from gradsync.errors import RunError
from gradsync.plan import PASSING, Need, Plan
from gradsync.runtime.compute import bind_statistics, statistics
from gradsync.runtime.forward_order import Traced, Watch
from gradsync.runtime.group import Groups
from gradsync.runtime.hooks import Uncopied
from gradsync.runtime.step import Step
from gradsync.runtime.turns import LaneFailedError

if TYPE_CHECKING:
    from gradsync.attachment.pilot import Pilot

State = dict[str, Any]
ROLES_OF_THE_MODEL = ("parameter", "statistics")
ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # until they are closed


class Attached:
    """What `attach` gives. It lives as long as the model is trained; `close` takes it off again."""

    def __init__(
        self,
        model: nn.Module,
        inner: nn.Module,
        parameters: dict[str, nn.Parameter],
        groups: Groups,
        update: Update,
        whole: Plan,
        find_unused_parameters: bool,
    ):
        """`inner` is the module whose parameters these are: `model`, or that which was compiled into it.

        `whole` is the plan that was attached to, with its update: `attach` takes it again.
        """
        self.model, self.inner, self.parameters, self.whole = model, inner, parameters, whole
        self.groups, self.find_unused = groups, find_unused_parameters
        self.history: list[dict[str, Any]] = []  # of plan="auto": what was measured, predicted and chosen, in order
        self.pilot: Pilot | None = None  # until it has chosen
        self._take(update)
        self.bound: list[torch.Tensor] = []  # the model's buffers, as they lie where the plan sends them from
        self.steps: Iterator[Step] | None = None
        self.step: Step | None = None  # of the turn that has begun
        self.asked = 0  # of its layers
        self.came: set[str] = set()  # tensors whose gradient is in this turn
        self.sending = True
        self.failed = False
        self.queued = False  # the end of this backward is waited for
        self.passing = False  # in a forward of the model that backward will follow
        self.watch: Watch | None = None
        self.traced: Traced | None = None
        self.hooks: list[Any] = [
            model.register_forward_pre_hook(Uncopied(self._forward)),
            model.register_forward_hook(Uncopied(self._forward_ends), always_call=True),
            inner.register_state_dict_pre_hook(Uncopied(lambda *_: self.wait())),
            inner.register_load_state_dict_pre_hook(Uncopied(lambda *_: self.wait())),
            *(each.register_post_accumulate_grad_hook(self._hook(name)) for name, each in parameters.items()),
            update.optimizer.register_step_pre_hook(self._stepping),
        ]
        self._bind_statistics()
        self.executor.begin_turns()
        ATTACHED.add(inner)
        atexit.register(self.close)

    def _take(self, update: Update) -> None:
        self.update, self.executor = update, update.executor
        update.explained = self._explained
        self.plan, self.rank = self.executor.plan, self.executor.rank
        self.needs = [op for op in self.executor.body if isinstance(op, Need)]
        self.layers: list[str | None] = [op.layer for op in self.needs]
        self.place = {layer: place for place, layer in enumerate(self.layers)}

    def go_on_with(self, update: Update) -> None:
        """Sum by another plan from the next turn on; between two turns. No plan of the two may update parameters."""
        if update is self.update:
            return
        self.executor.end_turns()
        self._take(update)
        self._bind_statistics()
        self.executor.begin_turns()

    def _bind_statistics(self) -> None:
        """Have the model's buffers lie where the plan sends them from."""
        if (name := self.plan.holding("statistics")) is not None:
            bind_statistics(self.inner, self.executor.buffers[name])
            self.bound = statistics(self.inner)

    @torch.no_grad()
    def _follow_statistics(self) -> None:
        """Buffers that forward has replaced by other tensors are sent in their places, as stock DDP does it.

        What this pass has computed with stays as it is. Buffers of other shapes or types, or fewer, stay the model's.
        """
        now = statistics(self.inner)
        if all(new is old for new, old in zip(now, self.bound, strict=False)) and len(now) == len(self.bound):
            return
        if [(new.shape, new.dtype) for new in now] != [(old.shape, old.dtype) for old in self.bound]:
            return
        values = [new.clone() for new in now]  # of which one may lie where another one is to lie
        places = [old.detach() for old in self.bound]  # other tensors, in the same memory
        for place, value in zip(places, values, strict=True):
            place.copy_(value)
        moved = {id(new): place for new, place in zip(now, places, strict=True)}
        for module in self.inner.modules():
            for key, buffer in module._buffers.items():
                if id(buffer) in moved:
                    module._buffers[key] = moved[id(buffer)]
        self.bound = places

    # What a user calls

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward in here adds to `parameter.grad` on this rank alone; the next one outside sends all of it."""
        before, self.sending = self.sending, False
        try:
            yield
        finally:
            self.sending = before

    def wait(self) -> None:
        """Block until the parameters and statistics of the last step are there; forward and `state_dict` do it, too."""
        with self._explained():
            for op in self.needs:
                self.executor.wait_for(op, self.executor.turn)

    def state_dict(self) -> State:
        """What a checkpoint needs of this rank beside the model's and the optimizer's own state: the plan's turn, and
        what it keeps: momentum if it updates parameters itself, residuals of compression.
        """
        self._refuse_open("state_dict()")
        self.wait()
        return {
            "plan": self.plan.digest,
            "turn": self.executor.turn,
            "buffers": {name: self.executor.buffers[name].clone() for name in self._kept()},
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from a state of this rank and plan. Raises RefusedError for another one's."""
        self._refuse_open("load_state_dict()")
        if self.history and not state.get("buffers"):
            return  # of another plan, maybe: those that are chosen from keep nothing
        if state.get("plan") != self.plan.digest:
            refuse(f"rank {self.rank}: the state is of another plan than {self.plan.name!r}: attach to that one")
        if self.step is not None:
            if not self._kept():
                return  # the turn that a forward has begun goes on with any values
            raise RunError(
                f"rank {self.rank}: load_state_dict() after a forward without its backward: plan {self.plan.name!r} "
                "has begun an iteration with what it keeps: load between two iterations, or attach anew"
            )
        self.wait()
        self.executor.end_turns()
        for name, value in state["buffers"].items():
            self.executor.buffers[name].copy_(value)
        self.executor.resume(state["turn"])
        self.executor.begin_turns()

    def close(self) -> None:
        """Wait for what the plan has yet to do, and take it off the model, whose parameters stay what they are."""
        atexit.unregister(self.close)
        if self.hooks:
            ATTACHED.discard(self.inner)
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        if self.pilot is not None:
            self.pilot.closed()
            self.pilot = None
        if self.watch is not None:
            self.watch.close()
        if self.came or self.failed or not dist.is_initialized():
            return  # other ranks wait for what will never come
        self.wait()
        if self.step is None:
            self.executor.end_turns()
        self.groups.close()

    # Forward

    def _forward(self, *arguments: Any) -> None:
        if not torch.is_grad_enabled():
            self.wait()
            return
        if self.came:
            self._refuse_rest()
        self._open()
        self.passing = True
        if self.watch is not None:
            self.watch.begin()
        if self.watch is None or self.find_unused:
            # all of them: where each is needed is what this pass tells, or it is another place in each pass
            self._ask(len(self.layers))
        if self.watch is None and self.traced is None and self.layers != [None]:
            self.traced = Traced(self.inner)
            self.traced.__enter__()
            self.traced.called()

    def _forward_ends(self, _: nn.Module, inputs: Any, output: Any) -> None:
        passing, self.passing = self.passing, False
        if self.traced is not None:
            traced, self.traced = self.traced, None
            traced.__exit__(None, None, None)
            if output is not None:  # None: it has raised
                self.watch = traced.order().among(self.parameters).watch(self.inner, self._needed)
                # a pass begins before the watch's own hook on the model is called
                self.hooks[0].remove()
                self.hooks[0] = self.model.register_forward_pre_hook(Uncopied(self._forward), prepend=True)
        if passing and self.bound and output is not None:
            self._follow_statistics()
        if self.watch is not None:
            self.watch.begin()
        if self.pilot is not None:
            self.pilot.forward_ended()

    def _needed(self, names: tuple[str, ...]) -> None:
        if self.passing:  # whether or not the module computes gradients now: checkpoints do so in backward
            self._ask(max(1 + self.place[name] for name in names))
        elif self.step is not None:  # computed again in backward, or by itself before it
            self._ask(len(self.layers))
        else:
            self.wait()

    def _open(self) -> None:
        """Begin a turn unless it has begun."""
        if self.step is None:
            if self.pilot is not None:
                self.pilot.opened()
            with self._explained():
                self.update.begin(self.executor.turn)
                self.steps, self.asked = self.executor.take_turn(), 0
                self.step = next(self.steps)

    def _ask(self, count: int) -> None:
        """Wait until forward of the first so many layers may run."""
        assert self.step is not None
        with self._explained():
            while self.asked < count:
                self.step.need(self.layers[self.asked])
                self.asked += 1

    # Backward

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def produced(parameter: torch.Tensor) -> None:
            if self.sending and parameter.grad is not None:
                self._produced(name, parameter)

        return produced

    @torch.no_grad()
    def _produced(self, name: str, parameter: torch.Tensor) -> None:
        self._open()
        self._ask(len(self.layers))
        if name in self.came:
            refuse(
                f"rank {self.rank}: the gradient of {name!r} came twice before it was sent: run all backward passes of "
                "an iteration but the last in no_sync()"
            )
        if not self.queued:
            self.queued = True
            self.update.backward_begins()
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        if self.pilot is not None:
            self.pilot.ready(name)
        self._hand_over(name, parameter)

    def _hand_over(self, name: str, parameter: torch.Tensor) -> None:
        assert self.step is not None
        assert parameter.grad is not None
        if parameter.grad.layout != torch.strided:
            refuse(f"rank {self.rank}: the gradient of {name!r} is sparse: plans carry dense ones (sparse=False)")
        self.came.add(name)
        with self._explained():
            self.step.ready(name, self.update.taken(name, parameter))

    @torch.no_grad()
    def _backward_ends(self) -> None:
        self.queued = False
        if self.step is None or (len(self.came) < len(self.parameters) and not self.find_unused):
            return  # another backward of this iteration may bring the others
        for name, parameter in self.parameters.items():
            if name not in self.came and parameter.grad is not None:  # of passes in no_sync()
                self._hand_over(name, parameter)
        with self._explained():
            assert self.steps is not None
            self.step.finish()
            for _ in self.steps:  # there is no other pass
                raise AssertionError(self.plan.name)
        used = self._used()  # behind all messages on every rank: queues of a GPU are used in one order
        self.step, self.steps = None, None
        self.came.clear()
        if self.watch is not None:
            self.watch.begin()
        self.update.backward_ended(used)
        if self.pilot is not None:
            with self._explained():
                self.pilot.border()

    def _used(self) -> list[str]:
        """The tensors that had a gradient on some rank."""
        if not self.find_unused:
            return list(self.parameters)
        device = self.groups.device.torch_device
        came = torch.tensor([name in self.came for name in self.parameters], dtype=torch.int32, device=device)
        everyone = tuple(range(self.plan.ranks))
        dist.all_reduce(came, op=dist.ReduceOp.MAX, group=self.groups.of("unused", everyone))
        return [name for name, some in zip(self.parameters, came.tolist(), strict=True) if some]

    def _stepping(self, *_: Any) -> None:
        if self.came and self.sending:
            self._refuse_rest()
        self.update.stepping()
        if self.watch is None:  # nothing waits for single layers
            self.wait()

    # What goes wrong

    def _refuse_rest(self) -> None:
        """The last backward has left gradients out, or has broken off."""
        missing = [name for name in self.parameters if name not in self.came]
        if self.queued:
            raise RunError(
                f"rank {self.rank}, iteration {self.executor.turn}: backward broke off after {len(self.came)} of "
                f"{len(self.parameters)} gradients: some have been sent, and the other ranks wait for the rest: end "
                "the program, and go on from a checkpoint"
            )
        refuse(
            f"rank {self.rank}: {len(missing)} parameter(s) had no gradient in the last backward, {missing[0]!r} "
            "first: give attach(.., find_unused_parameters=True), or freeze what is never used"
        )

    def _refuse_open(self, what: str) -> None:
        if self.came:
            raise RunError(f"rank {self.rank}: {what} in the middle of a backward pass: call it between two iterations")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A lane's failure is this rank's: the thread that waits for it raises it."""
        try:
            yield
        except LaneFailedError:
            self.failed = True
            raise self.executor.failure or RunError(f"rank {self.rank}: a lane has failed") from None

    def _kept(self) -> list[str]:
        outlasting = (b for b in self.plan.buffers if b.role not in (*PASSING, *ROLES_OF_THE_MODEL))
        return [buffer.name for buffer in outlasting]
