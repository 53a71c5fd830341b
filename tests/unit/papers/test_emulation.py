"""Emulated launches: what they stand for, how they are described and refused, tables and figures of their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gradsync import claims, papers
from gradsync.configuration import schemes, settings
from gradsync.configuration.options import words
from gradsync.costs import Linear
from gradsync.errors import InputError, RunError
from gradsync.experiments import emulate
from gradsync.files.results import Result
from gradsync.measure.allreduce import point, to_csv
from gradsync.papers import figures, tables
from gradsync.papers.emulation import StandIn
from gradsync.papers.table import file, read
from gradsync.plan.workload import Layer, Workload
from gradsync.testbed import description, privileges
from gradsync.testbed.description import Description
from gradsync.testbed.wiring import MOST_LANES
from made_up_repeats import repeated

ROOT = Path(__file__).parents[3]
PAPERS: dict[str, Any] = {"mgwfbp": {}, "bml_bcube": {}}
SLOWER = 4.0
GOOGLENET = {"model": "googlenet", "ranks": 2, "dilation": SLOWER, "schemes": ["wfbp", "mgwfbp"], "peers": ["ddp"]}
NINE = {"paper": "bml_bcube", "model": "lenet5", "ranks": 9, "batch": 128, "dilation": SLOWER}
BML = {**NINE, "name": "bml", "topology": "bcube:3,2", "schemes": ["bml"]}
PS = {**NINE, "name": "ps", "schemes": ["ps_p2p", "tf_ps"]}
RESNET = {"paper": "ascwfbp", "model": "resnet152", "ranks": 4, "dilation": SLOWER, "schemes": ["wfbp", "kway"]}
ASC: dict[str, Any] = {"ascwfbp": {}}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def chosen(*launches: dict[str, Any], **changes: Any) -> settings.Settings:
    content = {"version": 1, "name": "tiny", "papers": PAPERS, "emulated": list(launches), **changes}
    return settings.parse(content, "test")


def write_counted(results: Path, model: str) -> None:
    path = results / "counted" / model / "workload.json"
    path.parent.mkdir(parents=True)
    path.write_text(workload().to_json())


def workload(forward: float = 0.5) -> Workload:
    layers = [Layer(name="b", bytes=4000, backward_seconds=1.0), Layer(name="a", bytes=40, backward_seconds=0.5)]
    return Workload(name="any", forward_seconds=forward, layers=tuple(layers), statistics=7)


# What stands for what


def test_everything_is_slower_by_the_dilation_but_nothing_is_smaller():
    launch = chosen(GOOGLENET).emulated[0]
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
    assert [layer.forward_seconds for layer in stands.replayed(chosen(GOOGLENET).emulated[0]).layers] == [1.0, 1.0]
    assert stands.testbed(chosen(GOOGLENET).emulated[0]).flow_bits_per_second is None


def test_a_server_of_the_bml_paper_computes_at_the_point_that_is_drawn(tmp_path):
    write_counted(tmp_path, "lenet5")
    used = chosen(BML, PS)
    cube, switch = (papers.stand_in(launch, used, tmp_path) for launch in used.emulated)
    bench = yaml.safe_load((ROOT / "config/papers/bml_bcube/testbed.yaml").read_text())
    rate = 2 * bench["gpu_operations_per_second"]["value"] * 0.2
    assert cube.workload.forward_seconds == pytest.approx(0.5 * 128 * 1e12 / rate)
    assert cube.bits_per_second == switch.bits_per_second == pytest.approx(0.3 * 4e10)
    assert (cube.startup_seconds, switch.startup_seconds) == pytest.approx((4e-5, 2e-5))  # four rounds, two
    without = chosen({key: value for key, value in BML.items() if key != "batch"})
    with pytest.raises(InputError, match="lenet5-9-bml: `batch` is missing"):
        papers.stand_in(without.emulated[0], without, tmp_path)


def test_a_node_of_the_asc_wfbp_paper_computes_at_the_middle_of_the_band(tmp_path):
    write_counted(tmp_path, "resnet152")
    used = chosen(RESNET, papers=ASC)
    stands = papers.stand_in(used.emulated[0], used, tmp_path)
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
    used = chosen({**RESNET, "model": "googlenet"}, papers=ASC)
    with pytest.raises(InputError) as caught:
        papers.stand_in(used.emulated[0], used, tmp_path)
    said = "the paper has no model 'googlenet'; it has: resnet152, densenet201, inceptionv4, bert_base"
    assert str(caught.value) == f"emulated launch googlenet-4: {said}"


@pytest.mark.parametrize("launch", [RESNET, {**PS, "ranks": 4}], ids=["ascwfbp", "bml_bcube"])
def test_a_connection_gets_the_share_of_the_link_that_the_launch_says(tmp_path, launch):
    write_counted(tmp_path, launch["model"])
    shares = (None, 0.75, 1)
    launches = [{**launch, "name": f"n{number}", "flow_share": share} for number, share in enumerate(shares)]
    used = chosen(*launches, papers={**PAPERS, **ASC})
    for job, share in zip(used.emulated, shares, strict=True):
        stands = papers.stand_in(job, used, tmp_path)
        testbed = stands.testbed(job)
        assert testbed.bits_per_second == stands.bits_per_second / SLOWER
        assert testbed.flow_bits_per_second == (0.75 * testbed.bits_per_second if share == 0.75 else None)


def test_with_a_share_of_the_link_links_are_as_fast_as_the_connections_of_the_paper():
    stands = StandIn(workload(), 1e10, 4e9, "")
    found = [stands.testbed(chosen({**GOOGLENET, "flow_share": share}).emulated[0]) for share in (None, 0.6, 1)]
    assert [each.bits_per_second * SLOWER for each in found] == [1e10, 4e9, 4e9]
    assert [each.flow_bits_per_second for each in found] == [4e9 / SLOWER, pytest.approx(2.4e9 / SLOWER), None]


def test_a_paper_without_a_testbed_has_nothing_to_emulate(monkeypatch, tmp_path):
    monkeypatch.setattr(papers, "EMULATION", "nosuch")
    used = chosen(GOOGLENET)
    with pytest.raises(InputError, match="paper 'mgwfbp' has nothing that is emulated"):
        papers.stand_in(used.emulated[0], used, tmp_path)


# Lanes, and what several messages at once take


def described(results: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], **changes: Any) -> Description:
    """The testbed of a launch of these schemes, as `gradsync emulate` writes it."""
    monkeypatch.setattr(privileges, "impossible", lambda: "")
    write_counted(results, "resnet152")
    used = chosen({**RESNET, "schemes": names}, papers=ASC, **changes)
    assert emulate._reason(used.emulated[0], used, results) == ""
    return description.read(str(results / "emulated" / "resnet152-4" / "testbed.json"), 1.0)


@pytest.mark.parametrize(
    ("names", "lanes"),
    [(["wfbp", "optimal"], 1), (["wfbp", "ascwfbp"], 2), (["wfbp", "tf_ps", "kway"], 8)],
    ids=["one", "two", "eight"],
)
def test_as_many_lanes_have_connections_as_the_schemes_of_the_launch_have(tmp_path, monkeypatch, names, lanes):
    assert described(tmp_path, monkeypatch, names).lanes == lanes


def test_no_more_lanes_have_connections_than_a_testbed_has_addresses(tmp_path, monkeypatch):
    own = tmp_path / "schemes.yaml"
    own.write_text(f"wide: {{schedule: kway, options: {{lanes: {MOST_LANES + 5}}}}}\n")
    assert described(tmp_path, monkeypatch, ["wide"], schemes=str(own)).lanes == MOST_LANES


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> list[list[str]]:
    """The commands of a launch of these schemes, none of them run."""
    path = tmp_path / "tiny.yaml"
    content = {"version": 1, "name": "tiny", "papers": ASC, "emulated": [{**RESNET, "schemes": names}]}
    path.write_text(yaml.safe_dump(content))
    commands: list[list[str]] = []
    monkeypatch.setattr(emulate, "_run", lambda *command, options: commands.append([*command, *words(options)]))
    loaded = settings.load(path)
    emulate._launch(loaded.emulated[0], loaded, tmp_path / "results", str(path))
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
    told = asked(tmp_path, monkeypatch, names)
    measured = [command for command in told if command[:2] == ["measure", "contention"]]
    plans = {option(command, "--schedule"): command for command in told if command[0] == "plan"}
    assert list(plans) == names
    assert [option(command, "--lanes") for command in measured] == ([lanes] if lanes else [])
    native = {"wfbp", "optimal", "searched"}
    points = option(measured[0], "--output") if measured else None
    for name, command in plans.items():
        assert option(command, "--contention") == (points if name in native else None)
    if measured:
        assert told.index(measured[0]) < min(map(told.index, plans.values()))


# Descriptions


def test_a_description_survives_its_file(tmp_path):
    whole = Description(topology="bcube:3,2", bits_per_second=2e8, flow_bits_per_second=1e8, dilation=16.0, source="x")
    path = tmp_path / "testbed.json"
    path.write_text(whole.to_json())
    assert description.read(str(path), 1.0) == whole
    assert description.read("switch", 2e8) == Description(topology="switch", bits_per_second=2e8)
    assert whole.describe() == "bcube:3,2, 2e+08 bit/s a link, 1e+08 a connection, time 16 times slower"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"topology": "switch"}, "bits_per_second: is missing"),
        ({"topology": "switch", "bits_per_second": 0}, "bits_per_second: must be more than 0"),
        ({"topology": "switch", "bits_per_second": 1e8, "speed": 3}, "speed: no such key"),
    ],
    ids=["no rate", "rate of zero", "unknown key"],
)
def test_a_file_that_describes_no_testbed_is_refused(tmp_path, content, said):
    path = tmp_path / "testbed.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        description.read(str(path), 1e8)
    with pytest.raises(InputError, match="can't be read"):
        description.read(str(tmp_path / "nosuch.json"), 1e8)


@pytest.mark.parametrize(
    ("rate", "flow", "said"),
    [(0.0, None, "rate 0 bit/s"), (1e8, 2e8, "flow rate 2e"), (1e8, 0.0, "flow rate 0 bit/s")],
)
def test_rates_that_make_no_sense_are_refused(rate, flow, said):
    with pytest.raises(InputError, match=said):
        description.read("switch", rate, flow)


# Configurations


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({**GOOGLENET, "dilation": 0}, "emulated.0.dilation"),
        ({**GOOGLENET, "flow_share": 0}, "emulated.0.flow_share"),
        ({**GOOGLENET, "flow_share": 1.5}, "emulated.0.flow_share"),
        ({**GOOGLENET, "topology": "nosuch"}, "emulated.0.topology"),
        ({**GOOGLENET, "topology": "switch:3", "ranks": 4}, "emulated.0.topology"),
        ({**GOOGLENET, "schemes": ["bml"], "ranks": 9}, "bml sends over bcube:3,2, the testbed is switch:9"),
        ({**GOOGLENET, "schemes": ["nosuch"]}, "scheme 'nosuch' does not exist"),
        ({**GOOGLENET, "peers": ["ddp_mgwfbp"], "schemes": ["wfbp"]}, "ddp_mgwfbp needs the scheme 'mgwfbp'"),
        ({**GOOGLENET, "paper": "nosuch"}, "'nosuch' is not one of this configuration"),
        ({**GOOGLENET, "iterations": 1}, "emulated.0.iterations"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_when_it_is_read(launch, said):
    with pytest.raises(InputError, match=said):
        chosen(launch)


def test_numbers_of_hosts_are_launches_and_no_launch_is_there_twice():
    assert [launch.job for launch in chosen({**GOOGLENET, "ranks": [2, 4]}).emulated] == ["googlenet-2", "googlenet-4"]
    with pytest.raises(InputError, match=r"emulated\.1: googlenet-2 is there already"):
        chosen(GOOGLENET, GOOGLENET)


# Tables and figures


def write_launch(
    results: Path,
    launch: dict[str, Any],
    seconds: dict[str, float],
    collective: str = "",
    blocks: tuple[float, ...] = (1.0, 0.99, 1.0, 1.01, 1.0, 1.0),
) -> None:
    """What an emulated launch leaves behind: own seconds of each contender; predictions 10 % below."""
    job = settings.Emulation(**launch)
    runs, made = results / "runs" / "emulated" / job.job, results / "emulated" / job.job
    plans = results / "plans" / "emulated" / job.job
    for folder in (runs, made, plans):
        folder.mkdir(parents=True)
    for name, own in seconds.items():
        planned = name not in ("ddp", "ddp_best")
        times = {"iteration_seconds": own, **({"exposed_communication_seconds": own - 8.0} if planned else {})}
        made_up = repeated(blocks, **times)
        details = {"testbed": Description(topology=job.topology, bits_per_second=1e9).model_dump(exclude_none=True)}
        if planned:
            made_up["summary"]["messages"] = 2.0
            details["collective"] = collective or "native"
            told = {"iteration_seconds": 0.9 * own, "model_bound_seconds": 8.4}
            (plans / f"{name}.prediction.json").write_text(json.dumps(told))
        Result(
            rung="emulated",
            scheme=name,
            model=job.model,
            ranks=job.ranks,
            settings=details,
            **made_up,
            conformance={"oracle_difference": 0.0} if planned else {},
            notes=["computation replayed"],
        ).save(runs / name)
    (runs / "schemes.json").write_text(json.dumps(list(seconds)))
    (runs / "status.json").write_text('{"possible": true, "reason": ""}')
    stands = StandIn(workload(), 4e9, None, "any", 5e-4)
    (made / "replay.json").write_text(stands.replayed(job).to_json())
    measured = "" if not collective else f"{collective}-{job.ranks}"
    points = [point(job.ranks, size, [0.004, 0.004], measured) for size in (40, 4000)]
    (made / "allreduce.csv").write_text(to_csv(points, {}))


def impossible(results: Path, launch: dict[str, Any], reason: str) -> None:
    folder = results / "runs" / "emulated" / settings.Emulation(**launch).job
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"possible": False, "reason": reason}))


def test_the_table_is_in_seconds_of_the_paper_with_predictions_and_ratios(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "mgwfbp": 9.0, "ddp": 12.0, "ddp_best": 9.5})
    used = chosen(GOOGLENET)
    table = papers.compute("mgwfbp", "emulated", used, tmp_path)
    frame = table.frame.set_index("scheme")
    assert frame.iteration_seconds.to_dict() == {"wfbp": 2.5, "mgwfbp": 2.25, "ddp": 3.0, "ddp_best": 2.375}
    assert frame.own_iteration_seconds["wfbp"] == 10.0
    assert frame.predicted_over_emulated[["wfbp", "mgwfbp"]].tolist() == pytest.approx([0.9, 0.9])
    assert frame.predicted_over_emulated[["ddp", "ddp_best"]].isna().all()
    assert frame.over_ddp["mgwfbp"] == pytest.approx(0.75)
    assert frame.over_ddp_best["mgwfbp"] == pytest.approx(9 / 9.5)
    assert frame.over_model_bound.to_list() == pytest.approx([own / 8.4 for own in (10.0, 9.0, 12.0, 9.5)])
    assert frame.repeats.eq(6).all()
    assert set(frame.launch) == {"googlenet-2"}
    assert (frame.iteration_seconds_low["wfbp"], frame.iteration_seconds_high["wfbp"]) == (2.475, 2.525)
    for end in ("low", "high"):  # a moment falls on both of a pair
        assert frame[f"over_ddp_best_{end}"]["mgwfbp"] == pytest.approx(9 / 9.5)
    # 4040 bytes on 1e9 bit/s follow a backward pass of 1.5 s at once, so that S_max is 2
    assert frame.of_largest_speedup.to_list() == pytest.approx([8.0 / own for own in (10.0, 9.0, 12.0, 9.5)])
    assert (frame.startup_seconds == 0.001).all()
    assert (frame.stated_startup_seconds == 5e-4).all()
    assert "mean error 10.0%, worst 10.0%" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    drawn = figures.of("mgwfbp")["emulated"](used, tmp_path)
    assert "googlenet on 2 hosts, switch\n4 Gbit/s" in [axes.get_title(loc="left") for axes in drawn[0].axes]


def test_no_table_is_made_of_a_run_that_is_faster_than_possible(tmp_path):
    """8 s of computation are replayed. A plan, whose bytes are known, is held against its links too."""
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "ddp": 8.0})
    load = workload()
    plan = schemes.plan(schemes.Scheme(name="wfbp"), load, Linear(0.0, 0.0), 2)
    (tmp_path / "plans" / "emulated" / "googlenet-2" / "wfbp.json").write_text(plan.to_json())
    frame = papers.compute("mgwfbp", "emulated", chosen(GOOGLENET), tmp_path).frame.set_index("scheme")
    assert frame.over_hard_bound.to_dict() == pytest.approx({"wfbp": 10 / 8, "ddp": 1.0})
    for name in ("wfbp", "ddp"):
        file = tmp_path / "runs" / "emulated" / "googlenet-2" / name
        result = Result.load(file / "result.json")
        result.model_copy(update={"summary": {**result.summary, "iteration_seconds": 7.9}}).save(file)
        with pytest.raises(RunError, match=f"googlenet-2, {name}, emulated: an iteration of 7.9 s lies below its hard"):
            papers.compute("mgwfbp", "emulated", chosen(GOOGLENET), tmp_path)
        result.save(file)


def test_two_blocks_have_no_interval_and_decide_nothing(tmp_path):
    for ranks in (2, 4, 8):
        seconds = {"wfbp": 10.0, "single": 12.0, "mgwfbp": 9.0}
        write_launch(tmp_path, {**GOOGLENET, "ranks": ranks}, seconds, blocks=(1.0, 1.01))
    used = chosen({**GOOGLENET, "ranks": [2, 4, 8], "schemes": ["wfbp", "single", "mgwfbp"], "peers": []})
    emulated = papers.compute("mgwfbp", "emulated", used, tmp_path)
    assert emulated.frame.filter(regex="_(low|high)$").isna().all(axis=None)
    assert emulated.display["iteration ms"].str.endswith("(no interval)").all()
    tables.write(papers.compute("mgwfbp", "fig6", used, tmp_path), tmp_path / "tables" / "mgwfbp", "fig6")
    found = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", tmp_path / "tables")
    verdicts = {each.claim: each for each in found if each.rung == "emulated" and each.table == "fig6"}
    assert {each.verdict for each in verdicts.values()} == {claims.UNDECIDED}
    assert "2 repeats, 6 are needed" in verdicts["fig6-order"].reason
    assert verdicts["fig6-order"].margin == pytest.approx(0.1, rel=1e-6)  # to be seen, not to be believed


def test_a_launch_that_this_machine_cannot_have_says_why_everywhere(tmp_path):
    impossible(tmp_path, GOOGLENET, "no testbed on this machine: no root")
    used = chosen(GOOGLENET)
    table = papers.compute("mgwfbp", "emulated", used, tmp_path)
    assert table.frame.iteration_seconds.isna().all()
    assert "googlenet-2: no testbed on this machine: no root" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    figures.of("mgwfbp")["emulated"](used, tmp_path)
    speedups = papers.compute("mgwfbp", "fig6", used, tmp_path).frame
    emulated = speedups[speedups.rung == "emulated"]
    assert set(emulated.note[emulated.nodes == 2]) == {"no testbed on this machine: no root"}
    assert set(emulated.note[emulated.nodes == 8]) == {"no such emulated launch in this configuration"}


def test_speed_ups_are_over_the_computation_that_is_replayed(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "mgwfbp": 9.0, "ddp": 12.0})
    frame = papers.compute("mgwfbp", "fig6", chosen(GOOGLENET), tmp_path).frame
    emulated = frame[(frame.rung == "emulated") & (frame.nodes == 2)].set_index("scheme")
    alone = 0.5 + 1.5  # the paper's seconds
    assert emulated.speedup[["wfbp", "mgwfbp", "ddp"]].to_list() == pytest.approx(
        [2 * alone / (own / SLOWER) for own in (10.0, 9.0, 12.0)]
    )
    assert emulated.exposed_communication_seconds["wfbp"] == pytest.approx((10.0 - 8.0) / SLOWER)
    assert emulated.exposed_communication_seconds["ddp"] == pytest.approx(12.0 / SLOWER - alone)  # it does not tell
    assert pd.isna(emulated.speedup["tf_ps"])
    assert emulated.note["tf_ps"] == "tf_ps is not in the launches"


def test_launches_of_another_share_of_the_link_are_in_the_table_and_not_in_the_figures(tmp_path):
    other = {**GOOGLENET, "name": "flows60", "flow_share": 0.6}
    alone = {**other, "ranks": 4}  # no launch as on the paper's testbed between so many
    for launch, own in ((GOOGLENET, 10.0), (other, 12.0), (alone, 14.0)):
        write_launch(tmp_path, launch, {"wfbp": own})
    here = tmp_path / "profile" / "network" / "allreduce.csv"
    here.parent.mkdir(parents=True)
    here.write_text(to_csv([point(2, size, [0.004, 0.004]) for size in (40, 4000)], {"cores": 2}))
    used = chosen(GOOGLENET, other, alone)
    table = papers.compute("mgwfbp", "emulated", used, tmp_path).frame
    assert table[table.scheme == "wfbp"].own_iteration_seconds.to_list() == [10.0, 12.0, 14.0]
    speedups = papers.compute("mgwfbp", "fig6", used, tmp_path).frame
    shown = speedups[(speedups.rung == "emulated") & (speedups.scheme == "wfbp")].set_index("nodes")
    assert shown.index.is_unique
    assert shown.speedup[2] == pytest.approx(2 * 2.0 / (10.0 / SLOWER))
    assert pd.isna(shown.speedup[4])
    assert shown.note[4] == "no such emulated launch in this configuration"
    fitted = papers.compute("mgwfbp", "fig5b_points", used, tmp_path).frame
    assert set(fitted[fitted.rung == "emulated"].source) == {"testbed of googlenet-2"}


def test_all_reduces_of_the_testbed_are_fitted_in_seconds_of_the_paper(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0})
    impossible(tmp_path, {**GOOGLENET, "ranks": 4}, "no root")
    line = Linear(2e-3, 1e-8)
    sizes = [1000 * 2**number for number in range(8)]
    points = [point(2, size, [line.seconds(size)] * 2) for size in sizes]
    (tmp_path / "emulated" / "googlenet-2" / "allreduce.csv").write_text(to_csv(points, {}))
    here = tmp_path / "profile" / "network" / "allreduce.csv"
    here.parent.mkdir(parents=True)
    here.write_text(to_csv(points, {"cores": 2}))
    used = chosen({**GOOGLENET, "ranks": [2, 4]})
    frame = papers.compute("mgwfbp", "fig5b", used, tmp_path).frame
    (emulated,) = frame[frame.rung == "emulated"].itertuples()
    assert (emulated.nodes, emulated.source) == (2, "testbed of googlenet-2")
    assert emulated.a_seconds == pytest.approx(line.a / SLOWER)
    assert emulated.b_seconds_per_byte == pytest.approx(line.b / SLOWER)
    assert (emulated.r_squared_low, emulated.r_squared_high, emulated.repeats) == pytest.approx((1.0, 1.0, 8))
    full = papers.compute("mgwfbp", "fig5b_points", used, tmp_path).frame
    assert (full.rung == "emulated").sum() == len(sizes)


def test_claims_are_decided_on_emulated_launches(tmp_path):
    for ranks in (2, 4, 8):
        write_launch(tmp_path, {**GOOGLENET, "ranks": ranks}, {"wfbp": 10.0, "single": 12.0, "mgwfbp": 9.0})
    used = chosen({**GOOGLENET, "ranks": [2, 4, 8], "schemes": ["wfbp", "single", "mgwfbp"], "peers": []})
    table = papers.compute("mgwfbp", "fig6", used, tmp_path)
    tables.write(table, tmp_path / "tables" / "mgwfbp", "fig6")
    found = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", tmp_path / "tables")
    verdicts = {each.claim: each.verdict for each in found if each.rung == "emulated"}
    assert verdicts["fig6-order"] == claims.CONFIRMED
    assert verdicts["fig6-over-synceasgd"] == claims.CONFIRMED  # 12 / 9 = 1.33 of 1.36 within 15 %
    assert verdicts["fig6-ps"] == claims.UNDECIDED


def test_bml_and_servers_are_compared_over_launches_of_their_own(tmp_path):
    write_counted(tmp_path, "lenet5")
    write_launch(tmp_path, BML, {"bml": 9.0}, "bml")
    write_launch(tmp_path, PS, {"ps_p2p": 12.0, "tf_ps": 18.0}, "ps_p2p")
    frame = papers.compute("bml_bcube", "fig6", chosen(BML, PS), tmp_path).frame
    emulated = frame[frame.rung == "emulated"].set_index(["batch", "scheme"])
    bml = emulated.loc[(128, "bml")]
    assert bml.jct_seconds == 1000 * 9.0 / SLOWER
    assert (bml.reduction_of_ps, bml.reduction_of_tf_ps) == pytest.approx((0.25, 0.5))
    # of launches of their own there are no pairs: each may be anywhere in its interval
    assert (bml.jct_seconds_low, bml.jct_seconds_high) == pytest.approx((990 * 9 / SLOWER, 1010 * 9 / SLOWER))
    ends = (1 - 9 * 1.01 / (12 * 0.99), 1 - 9 * 0.99 / (12 * 1.01))
    assert (bml.reduction_of_ps_low, bml.reduction_of_ps_high) == pytest.approx(ends)
    assert pd.isna(bml.reduction_of_ps_samples)
    assert bml.launch == "lenet5-9-bml"
    assert emulated.loc[(256, "bml")].note == "no such emulated launch in this configuration"
    table = papers.compute("bml_bcube", "emulated", chosen(BML, PS), tmp_path)
    assert table.frame.set_index("scheme").startup_seconds[["bml", "ps_p2p"]].tolist() == [0.001, 0.001]


def test_a_launch_that_has_not_ended_is_named(tmp_path):
    with pytest.raises(InputError, match=r"googlenet-2/status.json: can't be read"):
        papers.compute("mgwfbp", "emulated", chosen(GOOGLENET), tmp_path)


def test_without_launches_the_table_says_so(tmp_path):
    table = papers.compute("mgwfbp", "emulated", chosen(), tmp_path)
    assert "no emulated launch in this configuration" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    assert read(file(tmp_path, "mgwfbp", "emulated")).empty
    figures.of("mgwfbp")["emulated"](chosen(), tmp_path)
