"""Emulated launches: what they stand for, how they are described and refused, tables and figures of their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gradsync import claims, papers, settings
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.measure.allreduce import point, to_csv
from gradsync.papers.emulation import NotHereError, StandIn
from gradsync.papers.table import file, read
from gradsync.render import figures, tables
from gradsync.results import Result
from gradsync.testbed import description
from gradsync.testbed.description import Description
from gradsync.workload import Layer, Workload

ROOT = Path(__file__).parents[2]
PAPERS = [f"config/papers/{name}.yaml" for name in ("mgwfbp", "bml_bcube")]
SLOWER = 4.0
GOOGLENET = {"model": "googlenet", "ranks": 2, "dilation": SLOWER, "schemes": ["wfbp", "mgwfbp"], "peers": ["ddp"]}
NINE = {"paper": "bml_bcube", "model": "lenet5", "ranks": 9, "batch": 128, "dilation": SLOWER}
BML = {**NINE, "name": "bml", "topology": "bcube:3,2", "schemes": ["bml"]}
PS = {**NINE, "name": "ps", "schemes": ["ps_p2p", "tf_ps"]}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def chosen(*launches: dict[str, Any], **changes: Any) -> settings.Settings:
    content = {"version": 1, "name": "tiny", "papers": PAPERS, "emulated": list(launches), **changes}
    return settings.parse(content, "test")


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


def external(results: Path, available: bool) -> None:
    (results / "external").mkdir(parents=True)
    content = {"available": available, "reason": "logs are missing: say where they are"}
    (results / "external" / "status.json").write_text(json.dumps(content))


@pytest.mark.parametrize("model", ["googlenet", "resnet50"])
def test_a_launch_whose_logs_are_missing_says_so(tmp_path, model):
    external(tmp_path, False)
    profile = tmp_path / "profile" / "resnet50" / "workload.json"
    profile.parent.mkdir(parents=True)
    profile.write_text(workload().to_json())
    used = chosen({**GOOGLENET, "model": model})
    with pytest.raises(NotHereError, match="logs are missing: say where they are"):
        papers.stand_in(used.emulated[0], used, tmp_path)


def test_a_server_of_the_bml_paper_computes_at_the_point_that_is_drawn(tmp_path):
    counted = tmp_path / "counted" / "lenet5" / "workload.json"
    counted.parent.mkdir(parents=True)
    counted.write_text(workload().to_json())
    used = chosen(BML, PS)
    cube, switch = (papers.stand_in(launch, used, tmp_path) for launch in used.emulated)
    bench = yaml.safe_load((ROOT / "config" / "clusters" / "k40-40gbe.yaml").read_text())
    rate = 2 * bench["gpu_operations_per_second"]["value"] * 0.2
    assert cube.workload.forward_seconds == pytest.approx(0.5 * 128 * 1e12 / rate)
    assert cube.bits_per_second == switch.bits_per_second == pytest.approx(0.3 * 4e10)
    assert (cube.startup_seconds, switch.startup_seconds) == pytest.approx((4e-5, 2e-5))  # four rounds, two
    without = chosen({key: value for key, value in BML.items() if key != "batch"})
    with pytest.raises(InputError, match="lenet5-9-bml: `batch` is missing"):
        papers.stand_in(without.emulated[0], without, tmp_path)


def test_a_paper_without_a_testbed_has_nothing_to_emulate(monkeypatch, tmp_path):
    monkeypatch.setattr(papers, "MODULE", "nosuch")
    used = chosen(GOOGLENET)
    with pytest.raises(InputError, match="paper 'mgwfbp' has nothing that is emulated"):
        papers.stand_in(used.emulated[0], used, tmp_path)


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
        ({"topology": "switch"}, "bits_per_second: Field required"),
        ({"topology": "switch", "bits_per_second": 0}, "bits_per_second: Input should be greater than 0"),
        ({"topology": "switch", "bits_per_second": 1e8, "speed": 3}, "speed: Extra inputs are not permitted"),
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


def write_launch(results: Path, launch: dict[str, Any], seconds: dict[str, float], collective: str = "") -> None:
    """What an emulated launch leaves behind: own seconds of each contender; predictions 10 % below."""
    job = settings.Emulation(**launch)
    runs, made = results / "runs" / "emulated" / job.job, results / "emulated" / job.job
    plans = results / "plans" / "emulated" / job.job
    for folder in (runs, made, plans):
        folder.mkdir(parents=True)
    for name, own in seconds.items():
        planned = name not in ("ddp", "ddp_best")
        summary = {f"iteration_seconds{end}": own * by for end, by in (("", 1), ("_low", 0.99), ("_high", 1.01))}
        details = {"testbed": Description(topology=job.topology, bits_per_second=1e9).model_dump(exclude_none=True)}
        if planned:
            summary |= {"messages": 2.0, "exposed_communication_seconds": own - 8.0}
            details["collective"] = collective or "native"
            told = {"iteration_seconds": 0.9 * own, "lower_bound_seconds": 8.4}
            (plans / f"{name}.prediction.json").write_text(json.dumps(told))
        Result(
            rung="emulated",
            scheme=name,
            model=job.model,
            ranks=job.ranks,
            settings=details,
            summary=summary,
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
    assert frame.over_lower_bound.to_list() == pytest.approx([own / 8.4 for own in (10.0, 9.0, 12.0, 9.5)])
    assert (frame.startup_seconds == 0.001).all()
    assert (frame.stated_startup_seconds == 5e-4).all()
    assert "mean error 10.0%, worst 10.0%" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    drawn = figures.of("mgwfbp")["emulated"](used, tmp_path)
    assert "googlenet on 2 hosts, switch" in [axes.get_title(loc="left") for axes in drawn[0].axes]


def test_a_launch_that_this_machine_cannot_have_says_why_everywhere(tmp_path):
    external(tmp_path, False)
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
    external(tmp_path, False)
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


def test_all_reduces_of_the_testbed_are_fitted_in_seconds_of_the_paper(tmp_path):
    external(tmp_path, False)
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
    full = papers.compute("mgwfbp", "fig5b_points", used, tmp_path).frame
    assert (full.rung == "emulated").sum() == len(sizes)


def test_claims_are_decided_on_emulated_launches(tmp_path):
    for ranks in (2, 4, 8):
        write_launch(tmp_path, {**GOOGLENET, "ranks": ranks}, {"wfbp": 10.0, "single": 12.0, "mgwfbp": 9.0})
    external(tmp_path, False)
    used = chosen({**GOOGLENET, "ranks": [2, 4, 8], "schemes": ["wfbp", "single", "mgwfbp"], "peers": []})
    table = papers.compute("mgwfbp", "fig6", used, tmp_path)
    tables.write(table, tmp_path / "tables" / "mgwfbp", "fig6")
    found = claims.evaluate(ROOT / "config" / "papers" / "mgwfbp.yaml", tmp_path / "tables")
    verdicts = {each.claim: each.verdict for each in found if each.rung == "emulated"}
    assert verdicts["fig6-order"] == claims.CONFIRMED
    assert verdicts["fig6-over-synceasgd"] == claims.CONFIRMED  # 12 / 9 = 1.33 of 1.36 within 15 %
    assert verdicts["fig6-ps"] == claims.UNDECIDED


def test_bml_and_servers_are_compared_over_launches_of_their_own(tmp_path):
    counted = tmp_path / "counted" / "lenet5" / "workload.json"
    counted.parent.mkdir(parents=True)
    counted.write_text(workload().to_json())
    write_launch(tmp_path, BML, {"bml": 9.0}, "bml")
    write_launch(tmp_path, PS, {"ps_p2p": 12.0, "tf_ps": 18.0}, "ps_p2p")
    frame = papers.compute("bml_bcube", "fig6", chosen(BML, PS), tmp_path).frame
    emulated = frame[frame.rung == "emulated"].set_index(["batch", "scheme"])
    bml = emulated.loc[(128, "bml")]
    assert bml.jct_seconds == 1000 * 9.0 / SLOWER
    assert (bml.reduction_of_ps, bml.reduction_of_tf_ps) == pytest.approx((0.25, 0.5))
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
