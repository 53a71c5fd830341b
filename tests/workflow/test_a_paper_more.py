"""A paper is added by one folder of facts, one folder of code and one line of the configuration."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from project_copy import ROOT, Project

TOY = ROOT / "tests" / "toy_paper"
RESULTS = "results/toy"
CONFIGURATION = """\
version: 1
name: toy
papers: {toy: {message_bytes: 2500000000}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    copy = Project(tmp_path_factory.mktemp("with-toy"))
    shutil.copytree(TOY / "facts", copy.folder / "config/papers/toy")
    shutil.copytree(TOY / "code", copy.folder / "workflow/src/gradsync/papers/toy")
    copy.write("config/toy.yaml", CONFIGURATION)
    return copy


def test_its_table_figure_and_verdicts_are_made(project):
    ended = project.snakemake(configuration="config/toy.yaml")
    assert ended.returncode == 0, ended.stdout
    frame = pd.read_csv(project.folder / RESULTS / "tables/toy/transfer.csv")
    assert frame.seconds.tolist() == [2.0, 1.0]  # 2.5 GB at 1.25 GB/s
    folder = project.folder / RESULTS / "figures/toy"
    assert sorted(file.name for file in folder.iterdir()) == [f"transfer.{end}" for end in ("csv", "pdf", "png", "svg")]
    verdicts = {
        each["claim"]: each["verdict"] for each in json.loads(project.read(f"{RESULTS}/claims.json"))["verdicts"]
    }
    assert verdicts == {"linear": "confirmed", "free": "refuted"}


def test_its_table_is_made_again_once_what_is_set_of_it_changes(project):
    project.write("config/toy.yaml", CONFIGURATION.replace("2500000000", "1250000000"))
    ended = project.snakemake(configuration="config/toy.yaml")
    assert ended.returncode == 0, ended.stdout
    frame = pd.read_csv(project.folder / RESULTS / "tables/toy/transfer.csv")
    assert frame.seconds.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("toy: {message_bytes: 0}", r"config/toy.yaml: papers.toy.message_bytes: must be at least 1, not 0"),
        ("toy: {message_byte: 1}", r"papers.toy.message_byte: no such key; did you mean message_bytes?"),
        ("toy: {published: config/papers/bml_bcube/published.yaml}", "meta.key: must be toy, not 'bml_bcube'"),
    ],
)
def test_what_makes_no_sense_of_it_is_named(project, line, message):
    project.write("config/toy.yaml", CONFIGURATION.replace("toy: {message_bytes: 2500000000}", line))
    Path(project.folder / RESULTS).mkdir(parents=True, exist_ok=True)
    ended = project.run("gradsync", "claims", "--config", "config/toy.yaml")
    assert ended.returncode == 2
    assert message in ended.stdout
    assert ended.stdout.count("\n") == 1
