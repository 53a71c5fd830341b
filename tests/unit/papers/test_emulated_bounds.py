"""The hard bound of an emulated run: bytes on the links of its testbed, headers and bursts counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.errors import InputError, RunError
from gradsync.files.results import Result
from gradsync.papers.emulated_bounds import hard_bound
from gradsync.testbed import framing
from gradsync.testbed.description import Description
from tiny_workloads import workload


def test_headers_of_the_largest_packets_alone_are_taken_off():
    """Seen were 95.6 % of a link: what packets with time stamps leave."""
    with_time_stamps, seen, largest = 1448 / 1514, 0.956, framing.PAYLOAD
    assert with_time_stamps == pytest.approx(seen, abs=5e-4)
    assert largest == pytest.approx(1460 / 1514)
    assert largest > seen + 1e-3


def test_links_of_a_testbed_let_a_burst_pass():
    one = framing.links(Description(topology="switch", bits_per_second=8e8, lanes=2), 4)
    assert one.bytes_per_second == pytest.approx(1e8 * framing.PAYLOAD)
    # the link's bucket, those of 3 hosts on 2 lanes and of the rest, a packet
    assert one.burst_bytes == pytest.approx(framing.PAYLOAD * (8 * 128 * 1024 + 16384))
    cube = framing.links(Description(topology="bcube:3,2", bits_per_second=8e8), 9)
    assert cube.bytes_per_second == pytest.approx(2 * one.bytes_per_second)
    assert cube.burst_bytes == pytest.approx(framing.PAYLOAD * 2 * (4 * 128 * 1024 + 16384))
    dense = framing.links(Description(topology="dense_gpu:2,4", bits_per_second=8e8), 8)
    assert (dense.ranks_per_node, dense.bytes_per_second) == (4, one.bytes_per_second)
    # rates so low that the guaranteed ones of connections are more
    assert framing.links(Description(topology="switch", bits_per_second=1e5), 4).bytes_per_second == pytest.approx(
        4e5 / 8 * framing.PAYLOAD
    )
    with pytest.raises(InputError, match="not a testbed"):
        framing.links_of({"topology": "switch"}, 4)


GRADIENTS = 40_000_000  # bytes
TESTBED = {"topology": "switch", "bits_per_second": 8e7, "dilation": 4.0}


def emulated(results: Path, seconds: float, name: str = "wfbp", **settings) -> Result:
    """A run of four hosts: 2 s forward, 1 s to the first gradient, 60 MB to send at 10 MB/s."""
    load = workload([GRADIENTS // 2] * 2, [1.0, 1.0], forward=2.0)
    (results / "emulated" / "job").mkdir(parents=True, exist_ok=True)
    (results / "emulated" / "job" / "replay.json").write_text(load.to_json())
    if "collective" in settings:
        plans = results / "plans" / "emulated" / "job"
        plans.mkdir(parents=True, exist_ok=True)
        wire = settings.pop("wire", "")
        plan = schemes.plan(schemes.Scheme(name=name, schedule="wfbp", wire=wire), load, Linear(0, 0), 4)
        (plans / f"{name}.json").write_text(plan.to_json())
    summary = {"iteration_seconds": seconds}
    settings = {"testbed": TESTBED, **settings}
    return Result(rung="emulated", scheme=name, model="tiny", ranks=4, settings=settings, summary=summary)


def wire(size: float) -> float:
    free = 5 * 128 * 1024 + 16384
    return (1.5 * size / framing.PAYLOAD - free) / 1e7


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"name": "wfbp", "collective": "native"}, GRADIENTS),
        ({"name": "narrow", "collective": "native", "wire": "float16"}, GRADIENTS / 2),
        ({"name": "ddp", "hook": ""}, GRADIENTS),
        ({"name": "ddp_fp16", "hook": "fp16"}, GRADIENTS / 2),
    ],
)
def test_an_emulated_run_is_bound_by_its_bytes_on_its_links(tmp_path, settings, size):
    bound = 3.0 + wire(size)
    assert hard_bound(tmp_path, "job", emulated(tmp_path, 12.0, **settings)) == pytest.approx(bound)
    with pytest.raises(RunError, match=f"job, {settings['name']}, emulated: .* lies below its hard bound"):
        hard_bound(tmp_path, "job", emulated(tmp_path, 0.99 * bound, **settings))


def test_where_bytes_are_not_known_computation_is_the_bound(tmp_path):
    assert hard_bound(tmp_path, "job", emulated(tmp_path, 12.0, "ddp_powersgd", hook="powersgd")) == 4.0
    missing = emulated(tmp_path, 12.0, collective="native").model_copy(update={"scheme": "another"})
    assert np.isnan(hard_bound(tmp_path, "job", missing))  # its plan is not there
    assert np.isnan(hard_bound(tmp_path, "other", missing))  # real computation
