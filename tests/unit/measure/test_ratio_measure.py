"""What is timed of LARS's and LAMB's ratios: the plans, the file that tables read, and what is refused beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.costs.ratio_times import RatioPoint, RatioTimes
from gradsync.errors import InputError
from gradsync.measure import ratios
from gradsync.plan import Collective
from tiny_workloads import workload

LOAD = workload([400, 8, 2000], [1.0, 1.0, 1.0])


def times(**changes: object) -> RatioTimes:
    point = RatioPoint(optimizer="lars", serial_seconds=(2.0, 4.0), pto_seconds=(1.0, 1.0))
    known = {"device": "cpu", "workload": "net", "tensors": 3, "elements": 602, "ranks": 2, "points": (point,)}
    return RatioTimes.model_validate({**known, **changes})


@pytest.mark.parametrize(("name", "read"), [("lars", 2), ("lamb", 4)])
def test_a_turn_is_the_ratios_and_what_gathers_them(name: str, read: int) -> None:
    serial, dealt = (ratios.alone(LOAD, name, 2, dealt=each) for each in (False, True))
    (computed,) = serial.roles[0].flat
    assert len(computed.reads) == read * len(LOAD.layers)
    computed, gather = dealt.roles[0].flat
    assert isinstance(gather, Collective)
    assert (gather.kind, gather.after) == ("all_gather", (computed.name,))
    assert computed.after_previous == (gather.name,)  # ratios that are still on their way are not overwritten
    for plan in (serial, dealt):
        assert {buffer.role for buffer in plan.buffers} == {"scratch"}
        assert len(plan.buffers) == read + 1


def test_ratios_of_both_times_are_those_of_each_round() -> None:
    (row,) = ratios.rows(times())
    assert row["pto_over_serial"] == (1 / 2 + 1 / 4) / 2
    assert row["pto_over_serial_low"] is None  # two rounds say nothing
    assert "every rank, all [ms]" in ratios.columns(times())


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(times().to_json())
    assert RatioTimes.load(tmp_path / "t.json") == times()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 2 of ratio times"),
        ({"points": 2 * times().points}, "two points have the same optimizer"),
        ({"points": [{"optimizer": "lars", "serial_seconds": [1, 2], "pto_seconds": [1]}]}, "other numbers of rounds"),
        ({"points": [{"optimizer": "lars", "serial_seconds": [0], "pto_seconds": [1]}]}, "must be 1e-12 to 1e"),
        ({"ranks": 1}, "ranks"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    content = times().model_dump(mode="json") | changes
    path = tmp_path / "t.json"
    path.write_text(RatioTimes.model_construct(**content).model_dump_json())
    with pytest.raises(InputError, match=message) as refused:
        RatioTimes.load(path)
    assert f"ratio times {path}" in str(refused.value)
    assert "gradsync measure ratios" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--optimizer", "sgd"), "optimizer 'sgd' has no ratios of norms: take lars or lamb"),
        (("--optimizer", "lars", "lars"), "--optimizer: name each once"),
        (("--optimizer", "lamp"), "optimizer 'lamp' does not exist"),
        (("--ranks", "1"), "--ranks must be at least 2"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_what_can_not_be_timed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "w.json").write_text(LOAD.to_json())
    given = ["measure", "ratios", "--workload", str(tmp_path / "w.json"), "--output", str(tmp_path / "t.json")]
    assert main([*given, "--ranks", "2", *words]) == 2
    assert message in capsys.readouterr().err


def test_tensors_of_an_unknown_type_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.json").write_text(workload([401, 8], [1.0, 1.0]).to_json())
    given = ["measure", "ratios", "--workload", str(tmp_path / "w.json"), "--output", str(tmp_path / "t.json")]
    assert main([*given, "--ranks", "2"]) == 2
    assert "Traceback" not in capsys.readouterr().err
