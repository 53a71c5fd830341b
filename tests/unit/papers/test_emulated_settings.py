"""Emulated launches as a configuration and a description of a testbed have them: read, and refused."""

from __future__ import annotations

import json

import pytest

from gradsync.errors import InputError
from gradsync.testbed import description
from gradsync.testbed.description import Description
from made_up_launches import GOOGLENET, configured


def test_a_description_survives_its_file(tmp_path):
    whole = Description(topology="bcube:3,2", bits_per_second=2e8, flow_bits_per_second=1e8, dilation=16.0, source="x")
    path = tmp_path / "testbed.json"
    path.write_text(whole.to_json())
    assert description.read(str(path), 1.0) == whole
    assert description.read("switch", 2e8) == Description(topology="switch", bits_per_second=2e8)
    assert whole.describe() == "bcube:3,2, 2e+08 bit/s a link, 1e+08 a connection, time 16 times slower"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"topology": "switch"}, "bits_per_second: is missing"),
        ({"topology": "switch", "bits_per_second": 0}, "bits_per_second: must be more than 0"),
        ({"topology": "switch", "bits_per_second": 1e8, "speed": 3}, "speed: no such key"),
    ],
    ids=["no rate", "rate of zero", "unknown key"],
)
def test_a_file_that_describes_no_testbed_is_refused(tmp_path, content, message):
    path = tmp_path / "testbed.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        description.read(str(path), 1e8)
    with pytest.raises(InputError, match="can't be read"):
        description.read(str(tmp_path / "nosuch.json"), 1e8)


@pytest.mark.parametrize(
    ("rate", "flow", "message"),
    [(0.0, None, "rate 0 bit/s"), (1e8, 2e8, "flow rate 2e"), (1e8, 0.0, "flow rate 0 bit/s")],
)
def test_rates_that_make_no_sense_are_refused(rate, flow, message):
    with pytest.raises(InputError, match=message):
        description.read("switch", rate, flow)


# Configurations


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({**GOOGLENET, "dilation": 0}, "emulated.0.dilation"),
        ({**GOOGLENET, "flow_share": 0}, "emulated.0.flow_share"),
        ({**GOOGLENET, "flow_share": 1.5}, "emulated.0.flow_share"),
        ({**GOOGLENET, "topology": "nosuch"}, "emulated.0.topology"),
        ({**GOOGLENET, "topology": "switch:3", "ranks": 4}, "emulated.0.topology"),
        ({**GOOGLENET, "schemes": ["bml"], "ranks": 9}, "bml sends over bcube:3,2, the testbed is switch:9"),
        ({**GOOGLENET, "schemes": ["nosuch"]}, "scheme 'nosuch' does not exist"),
        ({**GOOGLENET, "peers": ["ddp_mgwfbp"], "schemes": ["wfbp"]}, "ddp_mgwfbp needs the scheme 'mgwfbp'"),
        ({**GOOGLENET, "peers": ["fsdp2"]}, r"emulated.0.peers: peer 'fsdp2': fsdp2 gathers a model block by block"),
        ({**GOOGLENET, "paper": "nosuch"}, "'nosuch' is not one of this configuration"),
        ({**GOOGLENET, "iterations": 1}, "emulated.0.iterations"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_when_it_is_read(launch, message):
    with pytest.raises(InputError, match=message):
        configured(launch)


def test_numbers_of_hosts_are_launches_and_no_launch_is_there_twice():
    assert [launch.job for launch in configured({**GOOGLENET, "ranks": [2, 4]}).emulated] == [
        "googlenet-2",
        "googlenet-4",
    ]
    with pytest.raises(InputError, match=r"emulated\.1: googlenet-2 is there already"):
        configured(GOOGLENET, GOOGLENET)
