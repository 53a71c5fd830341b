"""Workloads written by hand are read; a line that names the file says what is wrong in one."""

import json

import numpy as np
import pytest

from gradsync.errors import InputError
from gradsync.plan.workload import Workload

BY_HAND = """
{
  "version": 1,
  "name": "three layers",
  "forward_seconds": 0.5,
  "layers": [
    {"name": "dense", "bytes": 4000, "backward_seconds": 0.1},
    {"name": "conv2", "bytes": 600, "backward_seconds": 0.25, "forward_seconds": 0.2},
    {"name": "conv1", "bytes": 40, "backward_seconds": 0}
  ]
}
"""


def test_a_file_by_hand_is_read(tmp_path):
    path = tmp_path / "three.json"
    path.write_text(BY_HAND)
    load = Workload.load(path)
    assert [layer.name for layer in load.layers] == ["dense", "conv2", "conv1"]
    assert load.bytes == 4640
    assert load.backward_seconds == pytest.approx(0.35)
    np.testing.assert_allclose(load.ready_seconds(), [0.6, 0.85, 0.85])
    assert load.update_seconds == 0
    assert load.unit == "float32"
    assert Workload.from_json(load.to_json()) == load


def test_bytes_need_not_be_whole_elements():
    """Rounded sizes from a paper's figure; plans then count bytes."""
    load = Workload.from_json(BY_HAND.replace("4000", "4001"))
    assert load.layers[0].parameters == 1000.25
    assert load.unit == "uint8"
    assert load.sizes().tolist() == [4001, 600, 40]


def edited(change):
    document = json.loads(BY_HAND)
    change(document)
    return json.dumps(document)


def layer(**values):
    return edited(lambda d: d["layers"][1].update(values))


BAD = {
    "no JSON": ("{", "not a workload"),
    "unknown key": (edited(lambda d: d.update(batch=8)), "batch"),
    "unknown key of a layer": (layer(kind="conv"), "layers.1.kind"),
    "missing name": (edited(lambda d: d.pop("name")), "name"),
    "missing seconds": (edited(lambda d: d["layers"][1].pop("backward_seconds")), "layers.1.backward_seconds"),
    "negative seconds": (layer(backward_seconds=-1), "layers.1.backward_seconds"),
    "negative forward": (edited(lambda d: d.update(forward_seconds=-0.1)), "forward_seconds"),
    "no bytes": (layer(bytes=0), "layers.1.bytes"),
    "negative bytes": (layer(bytes=-4), "layers.1.bytes"),
    "half a byte": (layer(bytes=0.5), "layers.1.bytes"),
    "NaN": (layer(backward_seconds=float("nan")), "layers.1.backward_seconds"),
    "infinite": (layer(backward_seconds=float("inf")), "layers.1.backward_seconds"),
    "NaN forward": (edited(lambda d: d.update(forward_seconds=float("nan"))), "forward_seconds"),
    "equal layers": (layer(name="dense"), "layer 'dense' appears 2 times"),
    "no layers": (edited(lambda d: d.update(layers=[])), "layers"),
    "wrong version": (edited(lambda d: d.update(version=2)), "workload version 2"),
    "unknown dtype": (layer(dtype="float12"), "unknown dtype 'float12'"),
    "two dtypes": (layer(dtype="float64"), "different dtype"),
    "a shape that is not the bytes": (
        layer(shape=[10, 10]),
        "100 float32 elements of shape [10, 10] are not 600",
    ),
    "a side of no element": (layer(shape=[150, 0]), "layers.1.shape.1"),
    "elements that are not the bytes": (layer(elements=100), "100 float32 elements are not 600 bytes"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_file_is_refused_in_one_line_that_names_it(tmp_path, fault):
    text, named = BAD[fault]
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Workload.load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert named in message
    assert "\n" not in message


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.json: can't be read"):
        Workload.load(tmp_path / "nowhere.json")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.json"):
        Workload.load(path)


def test_scaling_keeps_the_shares_and_says_so():
    load = Workload.from_json(BY_HAND)
    assert load.norm_seconds == 0
    load = load.model_copy(update={"update_seconds": 0.6, "norm_seconds": 0.2})
    scaled = load.scaled(forward_seconds=1.0, backward_seconds=0.7, update_seconds=0.3, note="K80 instead")
    assert scaled.backward_seconds == pytest.approx(0.7)
    assert scaled.update_seconds == 0.3
    assert scaled.norm_seconds == pytest.approx(0.1)  # with the update
    assert [layer.backward_seconds for layer in scaled.layers] == pytest.approx([0.2, 0.5, 0])
    assert scaled.layers[1].forward_seconds == pytest.approx(0.4)
    assert scaled.layers[0].forward_seconds is None
    assert scaled.provenance == {"scaling": "K80 instead"}
    assert load.provenance == {}
