"""The lists of docs/artifact.md are those that papers declare; how long jobs took is read from Snakemake's records."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from configurations import parse
from gradsync import cli, names, papers
from gradsync.artifact import tour
from gradsync.artifact.job_minutes import Records

ROOT = Path(__file__).parents[3]
RESULTS = Path("results/quick")
MINUTES = 5  # the column of a target's machine minutes


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def rows(text: str) -> list[list[str]]:
    listed = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [cells for cells in listed if cells[0] in ("paper", *names.papers())]


def without_minutes(listed: list[list[str]]) -> list[list[str]]:
    return [[*row[:MINUTES], *row[MINUTES + 1 :]] if len(row) > MINUTES else row for row in listed]


def test_the_page_has_the_lists_that_papers_declare(capsys):
    """`gradsync artifact --tour` prints them, with minutes in the folder of a run."""
    page = rows((ROOT / "docs" / "artifact.md").read_text())
    assert cli.main(["artifact", "--tour"]) == 0
    assert without_minutes(page) == without_minutes(rows(capsys.readouterr().out))
    minutes = [row[MINUTES] for row in page if len(row) > MINUTES and row[0] != "paper"]
    assert len(minutes) > 60
    assert all(0 < float(each) < 20 for each in minutes)


def test_the_lists_go_into_a_file_if_one_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tour, "lists", lambda *_: "| paper |")
    assert cli.main(["artifact", "--tour", "--output", str(tmp_path / "tour.md")]) == 0
    assert (tmp_path / "tour.md").read_text() == "| paper |\n"
    assert capsys.readouterr().out == f"tour: {tmp_path}/tour.md\n"


def test_every_table_is_listed_once_with_its_cores_and_the_configurations_that_time_more_of_it():
    settings = parse()
    listed = [*tour.items(settings, RESULTS, Path("config"))]
    by_id = {(item.paper, item.id): item for item in listed}
    assert len(by_id) == len(listed)
    tables = {(paper, name) for paper in settings.papers for name in papers.declared(paper).tables}
    assert tables <= {*by_id}
    assert by_id["bml_bcube", "fig6"].hardware == "9 cores"
    assert by_id["mgwfbp", "fig1"].longer == ()
    assert "`emulated` (Linux, root)" in by_id["mgwfbp", "fig6"].longer
    assert "`full` (GPUs)" in by_id["mgwfbp", "fig6"].longer
    assert "`measured`" in by_id["mgwfbp", "fig6b"].longer  # its launch has the same name here, and is told less


def test_a_launch_is_listed_where_its_methods_and_workers_are_shown():
    longer = {
        item.id: item.longer for item in tour.items(parse(), RESULTS, Path("config")) if item.paper == "easgd_knl"
    }
    assert longer["fig12"] == ("`chip_parts`",)
    assert longer["determinism"] == ("`measured`",)
    assert longer["batch"] == ("`elastic`",)
    assert not any("`chip_parts`" in names for name, names in longer.items() if name != "fig12")


def test_selections_are_timed_further_where_vectors_are_longer_or_the_device_is_another():
    longer = {
        item.id: item.longer for item in tour.items(parse(), RESULTS, Path("config")) if item.paper == "cloud_topk"
    }
    assert longer["fig6"] == ("`full` (GPUs)", "`measured`", "`one_gpu` (a GPU)", "`public_cloud` (GPUs)")


def test_what_no_configuration_gives_has_a_reason():
    gaps = {(gap.paper, gap.what, gap.rung): gap.why for gap in tour.gaps(parse())}
    assert "shares one network" in gaps["bml_bcube", "Fig. 6", "measured"]
    assert gaps["easgd_knl", "the system intel_caffe", ""] == "no scheme here stands for it yet"
    assert all(gaps.values())


def record(folder: Path, path: str, rule: str, seconds: float, *inputs: str) -> None:
    name = urlsafe_b64encode(path.encode()).decode()
    parts = [name[start : start + 40] for start in range(0, len(name), 40)]
    file = folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"rule": rule, "log": [rule], "input": inputs, "starttime": 10.0, "endtime": 10.0 + seconds}
    file.write_text(json.dumps(content))


def test_minutes_are_those_of_each_job_behind_a_file_once(tmp_path):
    record(tmp_path, "results/quick/a.csv", "a", 30, "results/quick/b.json", "config/quick.yaml")
    record(tmp_path, "results/quick/b.json", "b", 60, "results/quick/c.json")
    record(tmp_path, "results/quick/c.json", "b", 60)  # of the same job
    record(tmp_path, "results/quick/other.csv", "other", 600)
    (tmp_path / "torn").write_text("{")
    assert Records(tmp_path).minutes("results/quick/a.csv") == 1.5
    assert Records(tmp_path).minutes("results/quick/never.csv") is None


@pytest.mark.parametrize("text", ["[]", '{"rule": "a", "endtime": "late", "starttime": 1}', '{"endtime": 2}', "\x00"])
def test_a_record_that_tells_no_times_is_none(tmp_path, text):
    record(tmp_path, "results/quick/a.csv", "a", 30)
    (tmp_path / urlsafe_b64encode(b"results/quick/b.csv").decode()).write_text(text)
    records = Records(tmp_path)
    assert (records.minutes("results/quick/a.csv"), records.minutes("results/quick/b.csv")) == (0.5, None)


def test_as_json_its_lines_are_those_that_are_printed(capsys):
    assert cli.main(["artifact", "--tour"]) == 0
    printed = capsys.readouterr().out
    assert cli.main(["artifact", "--tour", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tour": printed.splitlines()}
