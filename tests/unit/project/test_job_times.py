"""What the jobs of each paper took, from Snakemake's records, held against the papers' budgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import job_times
from gradsync import names, papers
from gradsync.statistics import quiet

ROOT = Path(__file__).parents[3]
JOBS = [  # rule, log below results/quick/logs, seconds
    ("train", "train/lenet5-2.log", 100.0),
    ("plan", "plan/lenet5-2/wfbp.log", 2.0),
    ("profile_model", "profile/resnet50.log", 30.0),
    ("table_mgwfbp_gap", "table/mgwfbp_gap.log", 20.0),
    ("train", "train/lenet5-9-batch4.log", 15.0),
    ("figure_bml_bcube_fig4", "figure/bml_bcube_fig4.log", 5.0),
    ("train", "train/bert_base_quarter-2.log", 50.0),
    ("profile_network", "profile/network.log", 7.0),
]
WANTED = {"mgwfbp": 152, "bml_bcube": 20, "ascwfbp": 50, "dear": 0, "easgd_knl": 0, "cloud_topk": 0, "all papers": 7}


def write(folder: Path, jobs: list[tuple[str, str, float]], name: str = "quick") -> Path:
    for number, (rule, log, seconds) in enumerate(jobs):
        record = {"rule": rule, "log": [f"results/{name}/logs/{log}"], "starttime": 9.0, "endtime": 9.0 + seconds}
        for output in ("one", "other"):  # of one job
            (folder / f"{name}{number}{output}").write_text(json.dumps(record))
    return folder


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_every_job_counts_once_for_its_paper(tmp_path, capsys):
    write(tmp_path, [("train", "train/lenet5-2.log", 1e4)], "other")
    assert job_times.main("config/quick.yaml", write(tmp_path, JOBS), tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition(":")[0]: int(line.split(": ")[1].split()[0]) for line in lines} == WANTED
    assert lines[0].endswith("the longest train (lenet5-2), 100 s")


@pytest.mark.parametrize(("times", "status"), [(2.9, 0), (3.1, 1)])
def test_a_paper_over_its_budget_is_an_error(tmp_path, times, status):
    long = times * papers.declared("bml_bcube").quick_seconds + job_times.PAUSE_SECONDS
    assert (
        job_times.main("config/quick.yaml", write(tmp_path, [("train", "train/lenet5-9-batch4.log", long)]), tmp_path)
        == status
    )


def test_a_busy_machine_is_over_no_budget(tmp_path, capsys):
    records, results = tmp_path / "records", tmp_path / "results"
    records.mkdir()
    write(records, [("train", "train/lenet5-9-batch4.log", 1e4)])
    result = results / "runs" / "train" / "lenet5-2" / "wfbp" / "result.json"
    result.parent.mkdir(parents=True)
    for share, status in ((0.05, 1), (0.4, 0)):
        result.write_text(json.dumps({"provenance": {quiet.KEY: share}}))
        assert job_times.main("config/quick.yaml", records, results) == status
    assert capsys.readouterr().out.endswith("other work took up to 40% of the cores: run again on a quiet machine\n")


def test_without_a_run_that_is_said(tmp_path, capsys):
    assert job_times.main("config/quick.yaml", tmp_path) == 2
    assert "no job of config/quick.yaml is recorded" in capsys.readouterr().err


def test_the_papers_together_take_less_than_ten_minutes_with_set_up():
    shared, set_up = 75, 70  # seconds of jobs that all papers need, and before the first job
    at_a_time = 1.25  # jobs, over a whole run: launches are alone, most tables and figures are made two at a time
    jobs = shared + sum(papers.declared(paper).quick_seconds for paper in names.papers())
    assert jobs / at_a_time + set_up <= 600
