"""What emulated launches stand for: computation and links of each paper, made slower; lanes and contention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsync import papers
from gradsync.configuration import settings
from gradsync.configuration.options import words
from gradsync.errors import InputError
from gradsync.experiments import emulate
from gradsync.papers.emulation import StandIn
from gradsync.plan.workload import Workload
from gradsync.testbed import description, privileges
from gradsync.testbed.description import Description
from gradsync.testbed.wiring import MOST_LANES
from made_up_launches import ASC, BML, GOOGLENET, PAPERS, PS, RESNET, SLOWER, configured, workload, write_counted

ROOT = Path(__file__).parents[3]
EMULATING = [file for file in sorted((ROOT / "config").glob("*.yaml")) if "\nemulated:\n" in file.read_text()]


def test_everything_is_slower_by_the_dilation_but_nothing_is_smaller():
    launch = configured(GOOGLENET).emulated[0]
    stands = StandIn(workload(), 1e10, 4e9, "a point of the band", 1e-3)
    slow, testbed = stands.replayed(launch), stands.testbed(launch)
    assert slow.name == "googlenet"
    assert [layer.bytes for layer in slow.layers] == [4000, 40]
    assert (slow.forward_seconds, slow.backward_seconds) == (SLOWER * 0.5, SLOWER * 1.5)
    assert slow.statistics == 0  # nothing that is replayed changes them
    assert (testbed.bits_per_second, testbed.flow_bits_per_second, testbed.dilation) == (2.5e9, 1e9, SLOWER)
    # the ratio of computation to transfer is the paper's
    transfer = 8 * slow.bytes / testbed.flow_bits_per_second
    assert slow.backward_seconds / transfer == pytest.approx(1.5 / (8 * workload().bytes / 4e9))


def test_forward_times_of_layers_are_slower_too():
    layers = tuple(layer.model_copy(update={"forward_seconds": 0.25}) for layer in workload().layers)
    stands = StandIn(workload().model_copy(update={"layers": layers}), 1e10, None, "")
    assert [layer.forward_seconds for layer in stands.replayed(configured(GOOGLENET).emulated[0]).layers] == [1.0, 1.0]
    assert stands.testbed(configured(GOOGLENET).emulated[0]).flow_bits_per_second is None


def test_a_server_of_the_bml_paper_computes_at_the_point_that_is_drawn(tmp_path):
    write_counted(tmp_path, "lenet5")
    config = configured(BML, PS)
    cube, switch = (papers.stand_in(launch, config, tmp_path) for launch in config.emulated)
    bench = yaml.safe_load((ROOT / "config/papers/bml_bcube/testbed.yaml").read_text())
    rate = 2 * bench["gpu_operations_per_second"]["value"] * 0.2
    assert cube.workload.forward_seconds == pytest.approx(0.5 * 128 * 1e12 / rate)
    assert cube.bits_per_second == switch.bits_per_second == pytest.approx(0.3 * 4e10)
    assert (cube.startup_seconds, switch.startup_seconds) == pytest.approx((4e-5, 2e-5))  # four rounds, two
    without = configured({key: value for key, value in BML.items() if key != "batch"})
    with pytest.raises(InputError, match="lenet5-9-bml: `batch` is missing"):
        papers.stand_in(without.emulated[0], without, tmp_path)


def test_a_node_of_the_asc_wfbp_paper_computes_at_the_middle_of_the_band(tmp_path):
    write_counted(tmp_path, "resnet152")
    config = configured(RESNET, papers=ASC)
    stands = papers.stand_in(config.emulated[0], config, tmp_path)
    bench = yaml.safe_load((ROOT / "config/papers/ascwfbp/testbed.yaml").read_text())
    computed = bench["computation_seconds"]["value"]["resnet152"]
    least, middle, most = bench["forward_share"]["resnet152"]
    assert least <= middle <= most
    assert stands.workload.forward_seconds == pytest.approx(middle * computed)
    assert stands.workload.forward_seconds + stands.workload.backward_seconds == pytest.approx(computed)
    assert [layer.bytes for layer in stands.workload.layers] == [4000, 40]
    seconds = [layer.backward_seconds for layer in stands.workload.layers]
    assert seconds[0] == pytest.approx(2 * seconds[1])  # by operations, as counted
    assert stands.bits_per_second == bench["link_bits_per_second_measured"]["value"]
    assert stands.flow_bits_per_second is None
    assert stands.startup_seconds == bench["allreduce_startup_seconds"]["value"]
    assert stands.assumption == "t_f middle, layers by operations"


def test_a_model_that_the_asc_wfbp_paper_lacks_is_refused(tmp_path):
    write_counted(tmp_path, "googlenet")
    config = configured({**RESNET, "model": "googlenet"}, papers=ASC)
    with pytest.raises(InputError) as caught:
        papers.stand_in(config.emulated[0], config, tmp_path)
    message = "the paper has no model 'googlenet'; it has: resnet152, densenet201, inceptionv4, bert_base"
    assert str(caught.value) == f"emulated launch googlenet-4: {message}"


@pytest.mark.parametrize("launch", [RESNET, {**PS, "ranks": 4}], ids=["ascwfbp", "bml_bcube"])
def test_a_connection_gets_the_share_of_the_link_that_the_launch_says(tmp_path, launch):
    write_counted(tmp_path, launch["model"])
    shares = (None, 0.75, 1)
    launches = [{**launch, "name": f"n{number}", "flow_share": share} for number, share in enumerate(shares)]
    config = configured(*launches, papers={**PAPERS, **ASC})
    for job, share in zip(config.emulated, shares, strict=True):
        stands = papers.stand_in(job, config, tmp_path)
        testbed = stands.testbed(job)
        assert testbed.bits_per_second == stands.bits_per_second / SLOWER
        assert testbed.flow_bits_per_second == (0.75 * testbed.bits_per_second if share == 0.75 else None)


def test_with_a_share_of_the_link_links_are_as_fast_as_the_connections_of_the_paper():
    stands = StandIn(workload(), 1e10, 4e9, "")
    testbeds = [stands.testbed(configured({**GOOGLENET, "flow_share": share}).emulated[0]) for share in (None, 0.6, 1)]
    assert [each.bits_per_second * SLOWER for each in testbeds] == [1e10, 4e9, 4e9]
    assert [each.flow_bits_per_second for each in testbeds] == [4e9 / SLOWER, pytest.approx(2.4e9 / SLOWER), None]


@pytest.mark.parametrize("file", EMULATING, ids=lambda file: file.stem)
def test_what_the_launches_of_a_configuration_replay_can_be_read(tmp_path, file):
    config = settings.load(file)
    for model in {launch.model for launch in config.emulated}:
        write_counted(tmp_path, model)
        write_counted(tmp_path, model, "profile")
    assert config.emulated
    for launch in config.emulated:
        replayed = papers.stand_in(launch, config, tmp_path).replayed(launch)
        assert Workload.from_json(replayed.to_json()) == replayed


def test_a_paper_without_a_testbed_has_nothing_to_emulate(monkeypatch, tmp_path):
    monkeypatch.setattr(papers, "EMULATION", "nosuch")
    config = configured(GOOGLENET)
    with pytest.raises(InputError, match="paper 'mgwfbp' has nothing that is emulated"):
        papers.stand_in(config.emulated[0], config, tmp_path)


# Lanes and contention


def described_testbed(results: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], **changes: Any) -> Description:
    """The testbed of a launch of these schemes, as `gradsync emulate` writes it."""
    monkeypatch.setattr(privileges, "impossible", lambda: "")
    write_counted(results, "resnet152")
    config = configured({**RESNET, "schemes": names}, papers=ASC, **changes)
    assert emulate._reason(config.emulated[0], config, results) == ""
    return description.read(str(results / "emulated" / "resnet152-4" / "testbed.json"), 1.0)


@pytest.mark.parametrize(
    ("names", "lanes"),
    [(["wfbp", "optimal"], 1), (["wfbp", "ascwfbp"], 2), (["wfbp", "tf_ps", "kway"], 8)],
    ids=["one", "two", "eight"],
)
def test_as_many_lanes_have_connections_as_the_schemes_of_the_launch_have(tmp_path, monkeypatch, names, lanes):
    assert described_testbed(tmp_path, monkeypatch, names).lanes == lanes


def test_no_more_lanes_have_connections_than_a_testbed_has_addresses(tmp_path, monkeypatch):
    path = tmp_path / "schemes.yaml"
    path.write_text(f"wide: {{schedule: kway, options: {{lanes: {MOST_LANES + 5}}}}}\n")
    assert described_testbed(tmp_path, monkeypatch, ["wide"], schemes=str(path)).lanes == MOST_LANES


def commands_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> list[list[str]]:
    """The commands of a launch of these schemes, none of them run."""
    path = tmp_path / "tiny.yaml"
    content = {"version": 1, "name": "tiny", "papers": ASC, "emulated": [{**RESNET, "schemes": names}]}
    path.write_text(yaml.safe_dump(content))
    commands: list[list[str]] = []
    monkeypatch.setattr(emulate, "_run", lambda *command, options: commands.append([*command, *words(options)]))
    config = settings.load(path)
    emulate._launch(config.emulated[0], config, tmp_path / "results", str(path))
    return commands


def option(command: list[str], key: str) -> str | None:
    """The value of an option of a command; None if the command does not have it."""
    return next((value for word in command for option, _, value in [word.partition("=")] if option == key), None)


@pytest.mark.parametrize(
    ("names", "lanes"),
    [
        (["wfbp", "optimal", "ring"], None),
        (["wfbp", "tf_ps"], None),  # eight lanes, but not of the backend's own all-reduce
        (["wfbp", "ring", "searched", "tf_ps"], "2"),
    ],
    ids=["one lane", "lanes of another collective", "two lanes"],
)
def test_messages_at_once_are_measured_only_where_a_plan_has_such(tmp_path, monkeypatch, names, lanes):
    commands = commands_of(tmp_path, monkeypatch, names)
    measured = [command for command in commands if command[:2] == ["measure", "contention"]]
    plans = {option(command, "--schedule"): command for command in commands if command[0] == "plan"}
    assert list(plans) == names
    assert [option(command, "--lanes") for command in measured] == ([lanes] if lanes else [])
    native = {"wfbp", "optimal", "searched"}
    points = option(measured[0], "--output") if measured else None
    for name, command in plans.items():
        assert option(command, "--contention") == (points if name in native else None)
    if measured:
        assert commands.index(measured[0]) < min(map(commands.index, plans.values()))
