"""When forward first needs each parameter: traced on tiny models, and told by hooks while they run."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradsync.runtime import models
from gradsync.runtime.forward_order import Event, ForwardOrder, by_parameter, forward_order

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


class Crossed(nn.Module):
    """Layers used in another order than they are registered in, and one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.unused = nn.Linear(3, 3)
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


class Tied(nn.Module):
    """The output takes the weight of the embedding, by its own function and by a layer that shares it."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(4, 5)
        self.body = nn.Linear(4, 4)
        self.embedding = nn.Embedding(5, 4)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(self.embedding((x > 0).long()).mean(1))
        return self.decoder(x) + functional.linear(x, self.embedding.weight)


class Twice(nn.Module):
    """A module used twice, of which the second call first takes one of its parameters; another one between."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = nn.Parameter(torch.ones(4))
            self.early = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor, late: bool) -> torch.Tensor:
            return x * self.early + (self.late if late else 0.0)

    def __init__(self) -> None:
        super().__init__()
        self.layer = Twice.Layer()
        self.between = nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.between(self.layer(x, False)), True)


class OfItsOwn(nn.Module):
    """Parameters of the root: one before all modules, one between them, one after them."""

    def __init__(self) -> None:
        super().__init__()
        self.after = nn.Parameter(torch.ones(4))
        self.between = nn.Parameter(torch.ones(4))
        self.before = nn.Parameter(torch.ones(4))
        self.second = nn.Sequential(nn.Linear(4, 4, bias=False))
        self.first = nn.Sequential(nn.Linear(4, 4, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x * self.before) * self.between) * self.after


class Attention(nn.Module):
    """The weights of attention's output are taken by the module around it, which does not call it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4, bias=False)
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(x, x, x)[0])


class Recurrent(nn.Module):
    """The weights of all layers are one list."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4, bias=False)
        self.cell = nn.LSTM(4, 3, num_layers=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x[None])[0])


class Product(torch.autograd.Function):
    """Its weight comes straight to forward, and is used there without its gradient."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x @ weight.data.t()

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        return gradient @ weight, gradient.t() @ x


class Written(nn.Module):
    """A module with a function that has a backward of its own, between others."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Product.apply(x, self.weight)

    def __init__(self) -> None:
        super().__init__()
        self.last, self.own, self.first = nn.Linear(4, 4, bias=False), Written.Layer(), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.own(self.first(x)))


class Unseen(nn.Module):
    """A module whose kernel is called past torch's operators: here, the number that its parameter had long ago."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3.0

    def __init__(self) -> None:
        super().__init__()
        self.last, self.kernel, self.first = nn.Linear(4, 4, bias=False), Unseen.Layer(), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.kernel(self.first(x)))


class Asked(nn.Module):
    """Looks at type, size and device of its parameters before it runs, as models of libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.parameters():
            x = x.to(each.device, each.dtype).view(-1, each.shape[0] * each.stride(1)) if each.is_contiguous() else x
        return self.last(self.first(x))


class Normed(nn.Module):
    """A hook of its own computes the weight of a layer from two parameters before the layer is called."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direction, self.length = nn.Parameter(torch.eye(4)), nn.Parameter(torch.ones(4, 1))
            self.register_forward_pre_hook(self.compute)

        @staticmethod
        def compute(module: nn.Module, _) -> None:
            module.weight = module.direction * module.length

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, self.weight)

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = Normed.Layer(), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


CELL = [f"cell.{kind}_l{layer}" for layer in range(2) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
ORDERS: dict[type[nn.Module], list[tuple[str, int, list[str]]]] = {
    Crossed: [
        ("first", 0, ["first.weight", "first.bias"]),
        ("norm", 0, ["norm.weight", "norm.bias"]),
        ("last", 0, ["unused.weight", "unused.bias", "last.weight", "last.bias"]),
    ],
    Tied: [
        ("embedding", 0, ["decoder.weight"]),  # the first name of the one tensor
        ("body", 0, ["body.weight", "body.bias"]),
        ("decoder", 0, ["decoder.bias"]),
    ],
    Twice: [
        ("layer", 0, ["layer.early"]),
        ("between", 0, ["between.weight"]),
        ("layer", 1, ["layer.late"]),
    ],
    OfItsOwn: [
        ("", 0, ["before"]),
        ("first.0", 0, ["between", "first.0.weight"]),
        ("second.0", 0, ["after", "second.0.weight"]),
    ],
    Attention: [
        (
            *("attention", 0),
            [f"attention.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")],
        ),
        ("head", 0, ["head.weight"]),
    ],
    Recurrent: [("cell", 0, CELL), ("head", 0, ["head.weight"])],
    Written: [("first", 0, ["first.weight"]), ("own", 0, ["own.weight"]), ("last", 0, ["last.weight"])],
    Unseen: [("first", 0, ["first.weight"]), ("kernel", 0, ["kernel.scale"]), ("last", 0, ["last.weight"])],
    Asked: [("first", 0, ["first.weight"]), ("last", 0, ["last.weight"])],
    Normed: [("first", 0, ["first.weight"]), ("last", 0, ["last.direction", "last.length"])],
}


def traced(model: nn.Module, x: torch.Tensor = X) -> ForwardOrder:
    return forward_order(model, lambda copied: copied(x))


@pytest.mark.parametrize("build", ORDERS)
@pytest.mark.parametrize("training", [True, False])
def test_each_parameter_belongs_to_the_last_call_before_something_takes_it(build, training):
    model = build().train(training)
    order = traced(model)
    assert order.events == tuple(Event(module, call, tuple(names)) for module, call, names in ORDERS[build])
    assert sorted(order.names) == sorted(name for name, _ in model.named_parameters())
    assert traced(model) == order


@pytest.mark.parametrize("build", ORDERS)
def test_hooks_tell_the_parameters_before_they_are_used(build):
    """All hold another value until they are asked for: the output is right only if none is read before."""
    torch.manual_seed(3)
    model = build()
    order, expected = traced(model), copy.deepcopy(model)(X)
    parameters = dict(model.named_parameters())
    values = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    told: list[str] = []

    def arrive(names: tuple[str, ...]) -> None:
        told.extend(names)
        with torch.no_grad():
            for name in names:
                parameters[name].copy_(values[name])

    watch = order.watch(model, arrive)
    for _ in range(2):
        told.clear()
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.fill_(float("nan"))
        watch.begin()
        torch.testing.assert_close(model(X), expected)
        assert told == list(order.names)
    watch.close()
    told.clear()
    watch.begin()
    model(X)
    assert told == []


def test_calls_beyond_those_of_the_pass_tell_nothing():
    """As when checkpointed activations are computed again in backward."""
    model = Crossed()
    told: list[str] = []
    watch = traced(model).watch(model, told.extend)
    watch.begin()
    model(X)
    names = list(told)
    model(X)
    assert told == names


@pytest.mark.parametrize("build", [Crossed, lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4))])
def test_model_and_random_state_stay_as_they_are(build):
    model = build()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    state = torch.get_rng_state()

    def run(copied: nn.Module) -> None:
        assert copied is not model
        assert copied.training
        torch.manual_seed(7)
        copied(X)

    forward_order(model, run)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_parameters_may_be_views_of_one_buffer_as_those_that_train_are():
    model, bound = Crossed(), Crossed()
    flat, position = torch.zeros(sum(parameter.numel() for parameter in bound.parameters())), 0
    for parameter in bound.parameters():
        stop = position + parameter.numel()
        parameter.data = flat[position:stop].view(parameter.shape)
        position = stop
    assert traced(bound) == traced(model)


def test_a_loss_that_takes_parameters_comes_after_all_events():
    model = Crossed()

    def run(copied: nn.Module) -> torch.Tensor:
        return copied(X).sum() + copied.unused.weight.square().sum()

    names = ("unused.bias", "last.weight", "last.bias", "unused.weight")
    assert set(forward_order(model, run).events[-1].names) == set(names)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("build", [Crossed, Recurrent, Attention])
def test_the_order_is_the_same_in_every_type(build, dtype):
    """Kernels differ by type, and with them the order in which they take what a module has."""
    assert traced(build().to(dtype), X.to(dtype)) == traced(build())


def test_under_autocast_the_weight_that_is_cast_is_seen():
    def run(copied: nn.Module) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            copied(X)

    assert forward_order(Crossed(), run) == traced(Crossed())


def test_nothing_is_computed_on_the_meta_device():
    with torch.device("meta"):
        model = Crossed()
    assert traced(model, X.to("meta")) == traced(Crossed())


@pytest.mark.parametrize("name", ["lenet5", "resnet18", pytest.param("bert_base_quarter", marks=pytest.mark.deep)])
def test_models_of_the_registry_have_all_their_parameters_in_it(name):
    model = models.build(name, 0)
    side = models.MODELS[name].smallest_alone
    samples = models.blank(name, side)
    order = traced(model, samples)
    assert sorted(order.names) == sorted(key for key, _ in model.named_parameters())
    assert order.names[0] in ("conv1.weight", "pretraining.bert.embeddings.word_embeddings.weight")
    assert len(order.events) > len(order.names) / 3


def test_what_is_spent_in_an_event_belongs_to_its_last_parameter():
    def between(start: float, end: float) -> float:
        return end - start

    events = [(("a", "b"), 3.0), (("c",), 4.0), (("d", "e"), 8.0)]
    assert by_parameter(events, 1.0, 9.0, between) == {"a": 0.0, "b": 3.0, "c": 4.0, "d": 0.0, "e": 1.0}
    assert by_parameter(events[:1], 1.0, 9.0, between) == {"a": 0.0, "b": 8.0}
    assert by_parameter([], 1.0, 9.0, between) == {}
