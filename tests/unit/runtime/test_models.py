"""The models of the registry have the papers' sizes, repeat by seed, and train from their smallest image on."""

import functools

import pytest
import torch

from gradsync.errors import InputError
from gradsync.runtime import models

SIZES = {  # parameters, gradient tensors
    "lenet5": (3_274_634, 8),
    "resnet18": (11_689_512, 62),
    "resnet50": (25_557_032, 161),
    "resnet152": (60_192_808, 467),
    "resnet152_quarter": (4_177_144, 467),
    "alexnet": (61_100_840, 16),
    "vgg19": (143_667_240, 38),
    "vgg19_eighth": (2_695_472, 38),
    "googlenet": (13_004_888, 187),
    "densenet201": (20_013_928, 604),
    "densenet201_quarter": (1_656_520, 604),
    "inceptionv4": (42_679_816, 449),
    "inceptionv4_quarter": (2_968_432, 449),
}
NAMES = [name for name, model in models.MODELS.items() if model.takes == models.IMAGES]
OTHERS = [name for name in NAMES if not models.get(name).fixed]


@functools.cache
def built(name):
    """A model that tests share: they may change its statistics and gradients, not its parameters."""
    return models.build(name, 3)


def step(name, side, batch):
    """Forward and backward in training mode: the loss and the gradients."""
    spec, model = models.get(name), built(name).train()
    torch.manual_seed(0)
    loss = spec.loss(model(torch.rand(batch, spec.shape[0], side, side)), torch.arange(batch))
    return loss, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_have_the_sizes_of_the_papers(name):
    parameters = [parameter.numel() for parameter in built(name).parameters()]
    assert (sum(parameters), len(parameters)) == SIZES[name]


@pytest.mark.parametrize("name", ["lenet5", "resnet18", "googlenet"])
def test_a_seed_gives_the_same_parameters_again_and_another_seed_others(name):
    again = models.build(name, 3).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in models.build(name, 3).state_dict().items())
    other = models.build(name, 4).state_dict()
    assert any(not torch.equal(value, again[key]) for key, value in other.items())


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_two_images_of_the_smallest_size_train(name):
    loss, gradients = step(name, models.get(name).smallest, batch=2)
    assert loss.shape == ()
    assert all(torch.isfinite(gradient).all() for gradient in (loss, *gradients))
    assert sum(bool(gradient.any()) for gradient in gradients) > len(gradients) / 2


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_one_image_of_the_smallest_size_for_it_trains(name):
    loss, _ = step(name, models.get(name).smallest_alone, batch=1)
    assert torch.isfinite(loss)


@pytest.mark.deep
@pytest.mark.parametrize("name", OTHERS)
def test_the_smallest_size_is_the_smallest(name):
    spec = models.get(name)
    with pytest.raises((ValueError, RuntimeError)):
        step(name, spec.smallest_alone - 1, batch=1)
    if spec.smallest > 1 and name != "resnet152":
        with pytest.raises(RuntimeError):
            step(name, spec.smallest - 1, batch=2)


def test_resnet152_is_too_deep_for_a_pixel():
    _, gradients = step("resnet152", 1, batch=2)
    assert not all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("name", NAMES)
def test_in_eval_mode_a_model_gives_logits(name):
    spec, model = models.get(name), built(name).eval()
    with torch.no_grad():
        output = model(torch.rand(2, *models.shape(name, None if spec.fixed else max(32, spec.smallest))))
    assert isinstance(output, torch.Tensor)
    assert output.shape == (2, spec.classes)


def test_googlenet_adds_its_auxiliary_heads_to_the_loss():
    output = built("googlenet").train()(torch.rand(2, 3, 32, 32))
    labels = torch.tensor([5, 7])
    chosen = [-head.log_softmax(1)[[0, 1], labels].mean() for head in (output.logits, output[1], output[2])]
    torch.testing.assert_close(
        models.get("googlenet").loss(output, labels), chosen[0] + 0.3 * chosen[1] + 0.3 * chosen[2]
    )


@pytest.mark.parametrize("name", ["resnet152", "densenet201", "inceptionv4"])
def test_a_quarter_has_a_quarter_of_the_channels_in_every_layer(name):
    with torch.device("meta"):
        wide = models.get(name).build()
    narrow = built(f"{name}_quarter")
    assert [key for key, _ in wide.named_parameters()] == [key for key, _ in narrow.named_parameters()]
    for (key, one), other in zip(wide.named_modules(), narrow.modules(), strict=True):
        if isinstance(one, torch.nn.Conv2d):
            assert one.out_channels == 4 * other.out_channels, key
            assert (one.kernel_size, one.stride, one.padding) == (other.kernel_size, other.stride, other.padding)
        elif isinstance(one, torch.nn.BatchNorm2d):
            assert one.num_features == 4 * other.num_features == 4 * len(other.running_mean), key
            assert (one.eps, one.momentum) == (other.eps, other.momentum)
    assert all(not each.is_meta for each in narrow.state_dict().values())


def test_the_shape_follows_the_size():
    assert models.shape("vgg19") == (3, 224, 224)
    assert models.shape("vgg19", 32) == (3, 32, 32)
    assert models.shape("lenet5") == models.shape("lenet5", 28) == (1, 28, 28)
    assert models.shape("resnet50", 32, batch=2) == (3, 32, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vgg19", 31), "'vgg19' takes no images of 31 x 31: the smallest is 32"),
        (("googlenet", 0), "the smallest is 15"),
        (("resnet50", -3), "the smallest is 1"),
        (("lenet5", 32), "'lenet5' takes no images of 32 x 32: its size is fixed, 28 x 28"),
        (("resnet50", 32, 1), "choose a batch of 2 or more, or a size of 33 or more"),
        (("alexnet", 62), "'alexnet' takes no images of 62 x 62: the smallest is 63"),
        (("zfnet", 32), "there are: lenet5, resnet18, resnet50, resnet152,"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        models.shape(*arguments)
    assert message in str(caught.value)
