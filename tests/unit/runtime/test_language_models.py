"""Models of text have the papers' sizes, compute every gradient, and see nothing that they must not see."""

import functools

import pytest
import torch

from gradsync.errors import InputError
from gradsync.measure import operations
from gradsync.runtime import models
from gradsync.runtime.data import synthetic
from gradsync.runtime.data.samples import Wanted
from gradsync.runtime.models.spec import NOT_COUNTED

SIZES = {  # parameters, gradient tensors
    "bert_base": (110_106_428, 206),
    "bert_base_quarter": (11_403_068, 206),
    "transformer": (63_610_880, 259),
    "transformer_quarter": (7_645_184, 259),
    "transformer_small": (1_185_792, 91),
}
SMALL = ["bert_base_quarter", "transformer_quarter"]
LENGTH = 12


@functools.cache
def built(name):
    """A model that tests share, without what it drops at random; they may not change it."""
    return models.build(name, 3).eval()


def batch(name, samples=2, length=LENGTH):
    model = models.get(name)
    wanted = Wanted(models.shape(name, length), model.classes, samples, 0, None, model.takes)
    return synthetic.samples(wanted, samples).batch(torch.arange(samples), 0)


@pytest.mark.parametrize("name", SIZES)
def test_gradients_have_the_sizes_of_the_papers(name):
    with torch.device("meta"):
        model = models.get(name).build()
    parameters = [parameter.numel() for _, parameter in model.named_parameters()]
    assert (sum(parameters), len(parameters)) == SIZES[name]
    assert not [buffer for buffer in model.buffers() if buffer.is_floating_point()]  # nothing to broadcast


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("smallest", [True, False])
def test_every_tensor_gets_a_gradient(name, smallest):
    spec, model = models.get(name), built(name)
    inputs, labels = batch(name, samples=1 if smallest else 2, length=spec.smallest if smallest else LENGTH)
    loss = spec.loss(model(inputs), labels)
    gradients = torch.autograd.grad(loss, list(model.parameters()))  # fails for one that is not used
    assert all(torch.isfinite(gradient).all() for gradient in (loss, *gradients))
    if not smallest:
        zero = [key for (key, _), each in zip(model.named_parameters(), gradients, strict=True) if not each.any()]
        # attention does not change if all keys are moved alike: their biases have no gradient but for rounding
        assert [key for key in zero if not key.endswith(("key.bias", "k_proj.bias"))] == []


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_gives_the_same_parameters_and_the_same_dropped_units(name):
    again = models.build(name, 3).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in built(name).state_dict().items())
    assert any(not torch.equal(value, again[key]) for key, value in models.build(name, 4).state_dict().items())
    spec, training = models.get(name), models.build(name, 3).train()
    inputs, labels = batch(name)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(spec.loss(training(inputs), labels).item())
    assert losses[0] == losses[1] != losses[2]


def test_bert_loses_by_masked_tokens_and_the_next_sentence_alone():
    spec = models.get("bert_base_quarter")
    tokens, follows = torch.randn(2, 4, 7), torch.randn(2, 2)
    labels = torch.tensor([[1, NOT_COUNTED, 5, NOT_COUNTED], [0, 3, NOT_COUNTED, 2]])
    chosen = [tokens[0, 2].log_softmax(0)[5], tokens[1, 1].log_softmax(0)[3], tokens[1, 3].log_softmax(0)[2]]
    sentences = follows.log_softmax(1)[[0, 1], [1, 0]].mean()
    torch.testing.assert_close(spec.loss((tokens, follows), labels), -torch.stack(chosen).mean() - sentences)
    tokens[0, 2, 5] = tokens[1, 3, 2] = 99.0
    tokens[1, 1, 4] = 99.0  # wrong
    assert spec.right((tokens, follows), labels) == (2, 3)


def test_the_decoder_sees_no_token_that_it_must_predict():
    model = built("transformer_quarter")
    inputs, _ = batch("transformer_quarter", samples=1)
    changed = inputs.clone()
    changed[0, 1, 7:] += 1
    with torch.no_grad():
        before, after = model(inputs), model(changed)
    torch.testing.assert_close(before[0, :7], after[0, :7])
    assert not torch.allclose(before[0, 7], after[0, 7])
    changed = inputs.clone()
    changed[0, 0, -1] += 1  # of the source it sees everything
    with torch.no_grad():
        assert not torch.allclose(before[0, 0], model(changed)[0, 0])


@pytest.mark.parametrize("name", ["bert_base", "transformer"])
def test_operations_are_about_two_a_parameter_and_token(name):
    """Embeddings are looked up, but the output layer uses their weight again; attention adds its products."""
    length = 64
    counted = operations.forward(name, length)
    assert min(counted.values()) > 0
    assert sum(counted.values()) == pytest.approx(2 * operations.parameters(name) * length, rel=0.02)
    # two products of attention per layer: (length x hidden) and (length x length) each way
    hidden, layers = (768, 12) if name == "bert_base" else (512, 18)
    attention = sum(count for module, count in counted.items() if module.endswith(("self", "attn")))
    assert attention == 2 * 2 * length * length * hidden * layers
    workload = operations.workload(name, 1e12, 4, length)
    with torch.device("meta"):
        keys = [key for key, _ in models.get(name).build().named_parameters()]
    assert [layer.name for layer in workload.layers] == keys[::-1]
    assert workload.backward_seconds == pytest.approx(2 * workload.forward_seconds)


def test_what_attention_computes_itself_comes_before_its_gradients():
    workload = operations.workload("bert_base_quarter", 1e12, 1, 32)
    seconds = {layer.name.rpartition("layer.0.attention.")[2]: layer.backward_seconds for layer in workload.layers}
    assert seconds["self.value.bias"] > seconds["self.key.bias"] == seconds["self.query.bias"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert_base", 513), "model 'bert_base' takes no text of 513 tokens: the largest is 512"),
        (("bert_base_quarter", 4), "takes no text of 4 tokens: the smallest is 5"),
        (("transformer", 600), "the largest is 512"),
    ],
)
def test_a_length_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        models.shape(*arguments)
    assert message in str(caught.value)


def test_inputs_are_of_the_type_that_a_model_takes():
    assert models.shape("bert_base") == (2, 128)
    assert models.blank("bert_base", 7, 3).shape == (3, 2, 7)
    assert models.blank("bert_base", 7).dtype == torch.int64
    assert models.blank("resnet50", 32).dtype == torch.float32
