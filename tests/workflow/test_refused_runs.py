"""Runs that are refused with one clear message before anything is made."""

from __future__ import annotations

import pytest

from project_copy import path_without
from tiny_workflow import QUICK_TARGETS, RESULTS, TINY


def test_a_run_in_images_is_refused_without_apptainer(own_project, tmp_path):
    ended = own_project.snakemake(
        *("--profile", "slurm", *QUICK_TARGETS), PATH=path_without("apptainer", tmp_path / "bin")
    )
    assert ended.returncode != 0
    assert "jobs are to run in an image, and apptainer is not on the PATH: install Apptainer 1.2" in ended.stdout
    assert "Traceback" not in ended.stdout
    assert not (own_project.folder / RESULTS).exists()


def test_missing_data_is_named_before_anything_runs(own_project):
    own_project.write(
        "config/data.yaml", TINY.replace("batch: 8,", "batch: 8, data: mnist, data_folder: data/nowhere,")
    )
    ended = own_project.snakemake(configuration="config/data.yaml")
    assert ended.returncode != 0
    assert "data_folder does not exist (lenet5-2: data/nowhere)" in ended.stdout
    assert not (own_project.folder / RESULTS).exists()


NESTED = "[" * 50_000 + "]" * 50_000
BAD = {
    "unknown key": (TINY + "sede: 1\n", "config/bad.yaml: sede: no such key"),
    "unknown scheme": (
        TINY.replace("ranks: 2", "ranks: 2, schemes: [nosuch]"),
        "training.0.schemes: scheme 'nosuch' does not exist",
    ),
    "missing schemes": (TINY + "schemes: config/nosuch.yaml\n", "config/nosuch.yaml: can't be read"),
    # Snakemake's own parser would end in a traceback
    "nested": (TINY + "seeds: " + NESTED, "config/bad.yaml: lists and mappings are nested more than 32"),
    "date": (TINY + "since: 2026-13-45\n", "config/bad.yaml: not YAML that means anything: month must be in 1..12"),
}
# they take the way of an unknown key: tests/unit/configuration/test_settings.py
ALIKE = {
    "no ranks": (TINY.replace("ranks: 2", "ranks: 1"), "config/bad.yaml: training.0.ranks: "),
    "unknown peer": (TINY.replace("[ddp]", "[nosuch]"), "training.0.peers: peer 'nosuch' does not exist"),
    "newer": (TINY.replace("version: 1", "version: 2"), "version 2; this gradsync reads version 1"),
    "nodes": (TINY.replace("[4, 8]", "[8]"), "gap_nodes must hold every one of nodes"),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(pytest.param(*each, id=name) for name, each in BAD.items()),
        *(pytest.param(*each, id=name, marks=pytest.mark.deep) for name, each in ALIKE.items()),
    ],
)
def test_a_bad_configuration_ends_with_one_clear_message(project, text, message):
    project.write("config/bad.yaml", text)
    ended = project.snakemake("-n", configuration="config/bad.yaml")
    assert ended.returncode == 2
    assert ended.stdout.count(message) == 1, ended.stdout
    assert ended.stdout.count("\n") == 2  # the first is Snakemake's, about its profile
    assert "Traceback" not in ended.stdout
    assert "Job stats" not in ended.stdout


def test_settings_on_the_command_line_are_refused_not_ignored(project):
    ended = project.snakemake("-n", "--config", "seed=3")
    assert ended.returncode != 0
    assert "--config is not read" in ended.stdout


def test_a_missing_configuration_is_named(project):
    ended = project.snakemake("-n", configuration="config/nosuch.yaml")
    assert ended.returncode == 2
    assert "configuration 'config/nosuch.yaml' does not exist" in ended.stdout
    assert "Traceback" not in ended.stdout


def test_a_target_after_the_configuration_is_told_where_it_belongs(project):
    target = f"{RESULTS}/claims.md"
    ended = project.run("snakemake", "-n", "--cores", "2", "--configfile", "config/tiny.yaml", target)
    assert ended.returncode == 2
    assert f"{target}' too" in ended.stdout
    assert "TARGET --configfile config/tiny.yaml" in ended.stdout
    assert "Traceback" not in ended.stdout
