"""Models of one's own: PATH.py:FUNCTION or package.module:FUNCTION, a function that gives (module, loss, inputs).

`module` is an nn.Module, `inputs` one batch for it (a tensor, a tuple of arguments, or a dictionary of named ones), and
`loss(output)` a scalar. Such a model is measured and planned for, and launches train it on its one batch
(`brought.py`), to compare schemes; one's own loop trains it for good (`gradsync.attach`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.names import near
from gradsync.runtime.devices import Device

FORM = re.compile(r"(?P<source>[\w./~-]+\.py|[A-Za-z_][\w.]*):(?P<function>[A-Za-z_]\w*)")
GIVES = "must give (module, loss, inputs): an nn.Module, a function of its output, one batch of inputs"


class Own(NamedTuple):
    """What the function has given."""

    module: nn.Module
    loss: Callable[[Any], torch.Tensor]
    inputs: Any

    def outputs(self, module: nn.Module, inputs: Any) -> Any:
        """The forward pass of the module, or of a copy of it."""
        return called(module, inputs)

    def loss_of(self, outputs: Any) -> torch.Tensor:
        """The loss of what the module gives; what it prints goes to stderr."""
        with redirect_stdout(sys.stderr):
            return self.loss(outputs)

    @property
    def batch(self) -> int | None:
        """The length of the first tensor of the inputs, which is the batch; None if they have no tensor."""
        return next((len(tensor) for tensor in _tensors(self.inputs) if tensor.ndim), None)


def is_own(name: str) -> bool:
    """Whether a model's name has the form of a function of one's own."""
    return FORM.fullmatch(name) is not None


def title(name: str) -> str:
    """A name for results: `net_make` for `path/net.py:make`."""
    source, _, function = name.rpartition(":")
    stem = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', stem)}_{function}"


def called(forward: Callable[..., Any], inputs: Any) -> Any:
    """What it gives for one batch of inputs; what it prints goes to stderr, as stdout may be JSON."""
    with redirect_stdout(sys.stderr):
        if isinstance(inputs, dict):
            return forward(**inputs)
        return forward(*inputs) if isinstance(inputs, tuple) else forward(inputs)


def seeded(seed: int) -> None:
    """Seed every generator that a function may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def load(name: str, seed: int | None = 0) -> Own:
    """What the function gives if all generators begin with the seed (None: as they are).

    Raises InputError that says what is wrong with it.
    """
    if seed is not None:
        seeded(seed)
    function = _function(name)
    with told(name, "raised"):
        given = function()
    if not (isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], nn.Module) and callable(given[1])):
        raise InputError(f"--model {name}: the function {GIVES}; it gave {_described(given)}")
    own = Own(*given)
    if isinstance(own.module, torch._dynamo.OptimizedModule):
        raise InputError(
            f"--model {name}: the module is compiled, and hides its layers: give the one that was compiled"
        )
    if not any(parameter.requires_grad for parameter in own.module.parameters()):
        raise InputError(f"--model {name}: the module has no parameter that requires a gradient: nothing is sent")
    return own


def refuse(name: str, batch: int | None = None) -> None:
    """Raises InputError unless the function gives what it must, and a forward and backward pass of it goes through.

    `batch`, if one was asked for, must be the function's.
    """
    own = load(name)
    if batch not in (None, own.batch or 1):
        raise InputError(f"--batch {batch}: the function of --model {name} gives a batch of {own.batch}: leave it out")
    with told(name, "forward raised"):
        loss = own.loss_of(own.outputs(own.module, own.inputs))
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise InputError(f"--model {name}: the loss must be one number with a gradient, and is {_described(loss)}")
    if not bool(torch.isfinite(loss.detach())):
        raise InputError(f"--model {name}: the loss of the inputs is {float(loss.detach())}: it must be finite")
    with told(name, "backward raised"):
        loss.backward()


def digest(name: str) -> str:
    """SHA-256 of the file that a function is in, so that a changed model is told; empty if it can't be read."""
    module, _, _ = name.rpartition(":")
    if module.endswith(".py"):
        path: Path | None = Path(module).expanduser()
    else:
        spec = importlib.util.find_spec(module)
        path = Path(spec.origin) if spec is not None and spec.origin else None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else ""


def put(inputs: Any, device: Device) -> Any:
    """The inputs on a device."""
    return mapped(inputs, device.put)


def mapped(inputs: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The inputs with the function of each tensor."""
    if isinstance(inputs, torch.Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        return {key: mapped(value, function) for key, value in inputs.items()}
    if not isinstance(inputs, tuple | list):
        return inputs
    values = [mapped(value, function) for value in inputs]
    return type(inputs)(*values) if hasattr(inputs, "_fields") else type(inputs)(values)


def _tensors(inputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(inputs, torch.Tensor):
        yield inputs
    elif isinstance(inputs, dict | tuple | list):
        for value in inputs.values() if isinstance(inputs, dict) else inputs:
            yield from _tensors(value)


def _function(name: str) -> Callable[[], Any]:
    match = FORM.fullmatch(name)
    assert match is not None, name
    source, wanted = match["source"], match["function"]
    module = _from_file(name, Path(source).expanduser()) if source.endswith(".py") else _imported(name, source)
    function = getattr(module, wanted, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"--model {name}: {source} has no function {wanted!r}; {near(wanted, known)}".rstrip("; "))
    return function


def _from_file(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"--model {name}: there is no file {path} below {Path.cwd()}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent.resolve())
    if folder not in sys.path:  # as for a script that is run: it imports its neighbours
        sys.path.insert(0, folder)
    sys.modules.setdefault(path.stem, module)
    with told(name, "its file raised"):
        spec.loader.exec_module(module)
    return module


def _imported(name: str, source: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    with told(name, "its import raised"):
        return importlib.import_module(source)


@contextmanager
def told(name: str, what: str) -> Iterator[None]:
    """Whatever the user's code raises becomes an InputError that says where; what it prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        raise InputError(f"--model {name}: {what} {type(error).__name__}: {text}") from error


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}" + ("" if value.requires_grad else " without a gradient")
    if isinstance(value, tuple):
        return f"({', '.join(type(each).__name__ for each in value)})"
    return f"a {type(value).__name__}" if value is not None else "nothing"
