"""The texts of a configuration stay data: a shell runs none of them, and none is read as an option or a wildcard."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fuzz.guard import guarded
from gradsync import cli, clusters, names
from gradsync.claims import published
from gradsync.clusters import parts
from gradsync.configuration import peers, schemes, settings
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.runtime import data, models
from hostile import FOLDER, HOSTILE, MARK, at, changed, positions
from made_up_cluster import four
from project_copy import ROOT, Project

CONFIGURATIONS = ["quick", "measured", "full", "emulated", "bcube", "modern", "overlap", "simultaneous"]
# words that reach no command and are shown as they are, or files, of which every name may be given
FREE = {"label", "place", "paper", "experiment", "tracking_uri"}
FILES = {"data_folder", "external_data", "schemes", "peers", "published", "testbed", "container"}
RECORDER = """\
#!{python}
import json, sys
with open({file!r}, "a") as record:
    record.write(json.dumps(sys.argv[1:]) + "\\n")
"""
CONFIGURATION = """\
version: 1
name: hostile
schemes: {folder}/schemes.yaml
peers: {folder}/peers.yaml
papers: {mgwfbp: {published: {folder}/published.yaml, testbed: {folder}/testbed.yaml}}
external_data: {folder}
training:
- {model: lenet5, ranks: 2, data: mnist, data_folder: {folder}, schemes: [wfbp, hostile], peers: [ddp]}
- {model: lenet5, name: counted, ranks: 2, data_folder: {folder}, schemes: [wfbp], profile_iterations: 0}
mlflow: {experiment: {folder}}
cluster_profile: {name: here}
"""


def test_the_names_are_those_of_the_registries():
    assert sorted(names.MODELS) == sorted(models.MODELS)
    assert tuple(data.SETS) == names.DATA


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_text_of_a_configuration_is_refused_or_harmless(monkeypatch, name):
    """A path may hold what a shell reads, since all words are quoted; a name may not: it becomes a path."""
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(Path(f"config/{name}.yaml").read_text())
    content["training"] = content["training"][:3]  # the others are like them
    known, stock = schemes.load("config/schemes.yaml"), peers.load("config/peers.yaml")
    monkeypatch.setattr(schemes, "load", lambda path: known)
    monkeypatch.setattr(peers, "load", lambda path: stock)
    tried = 0
    for place in of_each_kind(content):
        for value in HOSTILE:
            tried += 1
            if refused(settings.parse, changed(content, place, value), "config"):
                continue
            assert set(place) & (FREE | FILES) or (place[-1] == "name" and not value), (place, value)
            if set(place) & FILES:
                assert not value.startswith("-")
                assert not set(value) & set("{}*\n\0"), (place, value)
    assert tried > 100


def of_each_kind(content: Any, since: int = 0) -> list[tuple[Any, ...]]:
    """The first text of each kind: entries of a list are alike, and so are those below the first `since` keys."""
    kinds = {
        tuple("#" if isinstance(key, int) else key for key in place[since:]): place
        for place in reversed(list(positions(content)))
        if isinstance(at(content, place), str)
    }
    return list(kinds.values())


def refused(read: Any, *arguments: Any) -> bool:
    """Whether a reader refuses its arguments, in one line."""
    try:
        read(*arguments)
    except InputError as error:
        message = str(error)
    else:
        return False
    assert "\n" not in message
    return True


@pytest.mark.parametrize(("file", "load"), [("schemes", schemes.load), ("peers", peers.load)])
def test_every_name_and_text_of_schemes_and_peers_is_refused_or_shown(monkeypatch, file, load):
    monkeypatch.chdir(ROOT)
    path = f"config/{file}.yaml"
    content = yaml.safe_load(Path(path).read_text())
    read_as(monkeypatch, content)
    for place in of_each_kind(content, since=1):
        holder, kept = at(content, place[:-1]), at(content, place)
        for value in HOSTILE:
            holder[place[-1]] = value
            # a peer's plan is held against the schemes of its launch; empty is as if it were left out
            assert refused(load, path) or place[-1] in {*FREE, "plan"} or not value, (place, value)
        holder[place[-1]] = kept
    for value in HOSTILE:
        read_as(monkeypatch, {value: {}})
        assert refused(load, path), value


def read_as(monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    """Every YAML file says `content`, as it is when it is read."""
    monkeypatch.setattr(reading, "parse_yaml", lambda text, where: content)
    monkeypatch.setattr(schemes, "_loaded", getattr(schemes._loaded, "__wrapped__", schemes._loaded))  # it remembers


# the function that reads each file of config/
LOADERS = {
    **{str(path.relative_to(ROOT)): published.load for path in (ROOT / "config/papers").glob("*/published.yaml")},
    **{f"config/{path.name}": settings.load for path in (ROOT / "config").glob("*.yaml")},
    "config/schemes.yaml": schemes.load,
    "config/peers.yaml": peers.load,
}
PLANNED = ["plan", "--workload=net", "--schedule=single", "--ranks=4", "--nodes=2", "--output=plan.json"]
EACH = 1  # how many hostile values there are per position of a file
MOST = 100  # positions of a file: papers state thousands of texts, alike for the reader


@pytest.mark.parametrize("file", LOADERS)
def test_every_position_of_every_file_is_refused_in_one_line_or_stays_text(monkeypatch, tmp_path, file):
    """Keys as well as values, a seeded choice of values at each: nothing but InputError comes of any, and no file."""
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(Path(file).read_text())
    load = LOADERS[file]
    if load is settings.load:
        known, stock = schemes.load("config/schemes.yaml"), peers.load("config/peers.yaml")
        monkeypatch.setattr(schemes, "load", lambda path: known)
        monkeypatch.setattr(peers, "load", lambda path: stock)
    read_as(monkeypatch, content)
    chance = random.Random(file)
    texts = [place for place in positions(content) if isinstance(at(content, place), str)]
    assert texts
    for place in chance.sample(texts, min(MOST, len(texts))):
        holder, kept = at(content, place[:-1]), at(content, place)
        for value in chance.sample(HOSTILE, EACH):
            holder[place[-1]] = value
            refused(load, file)
        holder[place[-1]] = kept
    for place in chance.sample(list(positions(content)), min(40, len(texts))):  # a key that is hostile
        if isinstance(holder := at(content, place[:-1]), dict):
            holder[value := chance.choice(HOSTILE)] = 1
            assert refused(load, file) or len(place) > 1, (place, value)
            del holder[value]
    assert not marks(ROOT)


@pytest.mark.parametrize("file", sorted((ROOT / "config/papers").glob("*/testbed.yaml")), ids=str)
def test_every_text_of_a_described_cluster_stays_text(file, monkeypatch):
    """A described testbed is refused where a measured cluster is wanted, whatever its texts are."""
    content = yaml.safe_load(file.read_text())
    monkeypatch.setattr(reading, "yaml_of", lambda path, what: content)
    for place in [place for place in positions(content) if isinstance(at(content, place), str)]:
        holder, kept = at(content, place[:-1]), at(content, place)
        for value in HOSTILE:
            holder[place[-1]] = value
            assert refused(clusters.load, file)
        holder[place[-1]] = kept


@pytest.mark.deep
def test_every_text_of_a_measured_cluster_is_refused_in_one_line_or_shown(tmp_path, monkeypatch):
    """Whoever plans on a cluster that others have measured runs nothing of what its file says, and reads no other."""
    monkeypatch.chdir(tmp_path)
    profile = tmp_path / "cluster.yaml"
    parts.assemble("four", four(), profile)
    content = yaml.safe_load(profile.read_text())
    accepted = unplanned = 0
    chance = random.Random(0)
    for place in [place for place in positions(content) if isinstance(at(content, place), str)]:
        for value in chance.sample(HOSTILE, 2):
            profile.write_text(yaml.safe_dump(changed(content, place, value)))
            if refused(clusters.load, profile):
                continue
            accepted += 1
            assert place not in [("name",), ("profile",)], value
            with guarded():
                assert cli.main(["cluster", "show", str(profile)]) == 0
                planned = cli.main([*PLANNED, "--cluster", str(profile)])
            assert planned == 0 or (planned == 2 and place[-1] in ("file", "model")), (place, value)
            unplanned += planned == 2
    assert accepted > 30
    assert unplanned  # the layers that the plan is for, too
    assert not marks(tmp_path)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose configuration lies, with all that it names, in a folder of a hostile name."""
    copy = Project(tmp_path_factory.mktemp("a project"))
    folder = copy.folder / FOLDER
    folder.mkdir()
    for file in ("schemes.yaml", "peers.yaml", "papers/mgwfbp/published.yaml", "papers/mgwfbp/testbed.yaml"):
        shutil.copy(copy.folder / "config" / file, folder)
    with open(folder / "schemes.yaml", "a") as file:
        file.write(f"\nhostile: {{schedule: wfbp, label: {yaml_text(FOLDER)}, place: {yaml_text(HOSTILE[0])}}}\n")
    copy.write(f"{FOLDER}/config.yaml", configuration())
    return copy


def yaml_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def configuration() -> str:
    named = r"(?<= )\{folder\}(/[a-z0-9.-]+)?"
    return re.sub(named, lambda match: yaml_text(FOLDER + (match[1] or "")), CONFIGURATION)


def marks(folder: Path) -> list[Path]:
    return [*folder.glob(MARK), *folder.glob(f"[!.]*/**/{MARK}")]


def test_no_command_of_a_dry_run_runs_what_a_configuration_says(project, tmp_path):
    """Every command that Snakemake would run, run by its shell with a recorder in place of Python."""
    targets = ("all", "results/hostile/external/status.json")
    ended = project.snakemake("-n", "-p", "--forceall", *targets, configuration=f"{FOLDER}/config.yaml")
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert not marks(project.folder)
    commands = re.findall(r"^Shell command: (.*)$", ended.stdout, re.MULTILINE)
    commands = [command for command in commands if command != "None"]  # of rules that run Python
    for log in re.findall(r"(results/hostile/\S+)\.(?:log|json)\b", ended.stdout):
        (project.folder / log).parent.mkdir(parents=True, exist_ok=True)
    recorder, record = tmp_path / "bin" / "python", tmp_path / "record"
    recorder.parent.mkdir()
    recorder.write_text(RECORDER.format(python=sys.executable, file=str(record)))
    recorder.chmod(0o755)
    environment = {"PATH": f"{recorder.parent}:/usr/bin:/bin"}
    for command in commands:
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=project.folder, env=environment, check=True)
    assert not marks(project.folder)
    recorded = [json.loads(line) for line in record.read_text().splitlines()]
    names_of_commands = {"external", "measure", "plan", "train", "table", "figure", "claims", "track"}
    assert {command[2] for command in recorded} >= names_of_commands
    words = {word for command in recorded for word in command}
    assert {str(project.folder / FOLDER / "config.yaml"), f"{FOLDER}/schemes.yaml", f"{FOLDER}/peers.yaml"} <= words
    assert f"--data-folder={FOLDER}" in words


@pytest.mark.deep
def test_a_real_rule_takes_its_files_from_a_hostile_folder(project):
    target = "results/hostile/plans/lenet5-2-counted/wfbp.json"
    ended = project.snakemake(target, configuration=f"{FOLDER}/config.yaml")
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert (project.folder / target).is_file()
    assert not marks(project.folder)


def test_rules_quote_all_that_their_commands_take():
    """Code of a shell, which `slurm/launch.py` quotes itself, and numbers are what is left as it is."""
    unquoted = {"{params.launch}", "{params.start}", "{resources.tasks}"}
    for file in [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").rglob("*.smk")]:
        fields = r"\{(?:input|output|params|wildcards|log|threads|resources)\b[^{}]*\}"
        for field in re.findall(fields, re.sub(r'f"[^"]*"', "", file.read_text())):
            assert field in unquoted or field.endswith(":q}"), (file.name, field)
