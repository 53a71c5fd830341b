"""Operations counted on models, layer by layer, and the workload that follows from a rate."""

from __future__ import annotations

import json

import pytest

from gradsync import cli
from gradsync.errors import InputError
from gradsync.measure import operations
from gradsync.plan.workload import Workload
from gradsync.runtime import models

# multiply-adds of LeNet-5 by hand: output pixels x filter x channels in x channels out
LENET5 = {
    "conv1": 28 * 28 * 25 * 32,
    "conv2": 14 * 14 * 25 * 32 * 64,
    "dense1": 3136 * 1024,
    "dense2": 1024 * 10,
}


def test_layers_have_the_operations_that_they_have_by_hand():
    assert operations.forward("lenet5") == {name: 2 * count for name, count in LENET5.items()}


def test_a_workload_takes_the_seconds_of_its_operations_and_is_in_backward_order():
    rate, batch = 1e12, 16
    made = operations.workload("lenet5", rate, batch)
    total = 2 * sum(LENET5.values())
    assert made.forward_seconds == pytest.approx(batch * total / rate)
    assert made.backward_seconds == pytest.approx(2 * batch * total / rate)
    names = [name for name, _ in models.build("lenet5", 0).named_parameters()]
    assert [layer.name for layer in made.layers] == names[::-1]
    by_name = {layer.name: layer for layer in made.layers}
    assert by_name["dense1.bias"].backward_seconds == pytest.approx(2 * batch * 2 * LENET5["dense1"] / rate)
    assert by_name["dense1.weight"].backward_seconds == 0.0  # with its bias
    ahead = [made.layers[i] for i in made.forward_order()]
    assert [layer.name for layer in ahead] == names
    # a layer computes once its bias is there, too
    expected = [
        0.0 if name.endswith("weight") else batch * 2 * LENET5[name.removesuffix(".bias")] / rate for name in names
    ]
    assert [layer.forward_seconds for layer in ahead] == pytest.approx(expected)
    assert made.bytes == 4 * operations.parameters("lenet5") == 4 * 3_274_634


@pytest.mark.parametrize(("name", "size"), [("googlenet", 64), ("transformer_quarter", 8)])
def test_forward_of_all_parameters_takes_the_operations_of_the_model(name, size):
    by_module, ahead = operations.counted(name, size)
    assert by_module == operations.forward(name, size)
    assert sum(ahead.values()) == pytest.approx(sum(by_module.values()))
    assert ahead.keys() == {key for key, _ in models.build(name, 0).named_parameters()}
    assert sorted(layer.forward_index for layer in operations.workload(name, 1e12, 1, size).layers) == [
        *range(len(ahead))
    ]


def test_what_makes_no_sense_is_named():
    with pytest.raises(InputError, match="'nosuch' does not exist"):
        operations.forward("nosuch")
    with pytest.raises(InputError, match="must be above 0"):
        operations.workload("lenet5", 0.0, 1)


def test_the_command_line_writes_a_workload_and_refuses_what_makes_no_sense(tmp_path, capsys):
    path = tmp_path / "counted.json"
    command = [
        "measure",
        "operations",
        "--model",
        "lenet5",
        "--batch",
        "2",
        "--teraflops",
        "0.5",
        "--output",
        str(path),
    ]
    assert cli.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations_forward"] == 2 * 2 * sum(LENET5.values())
    assert Workload.load(path) == operations.workload("lenet5", 0.5e12, 2)
    for changes, wanted in (
        (["--batch", "0"], "--batch 0: at least 1"),
        (["--teraflops", "0"], "must be above 0"),
        (["--model", "nosuch"], "model 'nosuch' does not exist"),
    ):
        assert cli.main([*command, *changes]) == 2
        assert wanted in capsys.readouterr().err
