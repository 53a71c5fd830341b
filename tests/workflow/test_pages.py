"""Commands of README and docs: cheap ones are run, and make, Snakemake and Python know the words of the others."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from snakemake.cli import get_argument_parser

from batches import batches
from gradsync import cli
from gradsync.configuration import settings
from pages import PAGES, ROOT, calls, lines, spans
from project_copy import Project

RUN = ("plan", "check", "simulate", "draw", "export", "collective")  # these start no ranks, measure and send nothing
POINTS = "bytes,seconds\n1024,1e-4\n65536,2e-4\n1048576,1e-3\n16777216,1.6e-2\n"
OWN = re.compile(r"\b[A-Z]{4,}\b|mine")  # a word that stands for a file or name of the reader
QUICK = "config/quick.yaml"


def snakemake_calls() -> Iterator[argparse.Namespace]:
    parser = get_argument_parser()
    for page in PAGES:
        for words in calls("snakemake", page):
            yield parser.parse_args(shlex.split(words))


def drawn_and_computed() -> Iterator[tuple[str, str]]:
    """Figures and tables that the page of a paper lists, as targets, and the configuration that makes them."""
    for page in (page for page in PAGES if page.parent.name == "papers"):
        folders = dict(re.findall(r"`([FT])` is `([\w/]+)`", page.read_text()))
        for row in re.findall(r"^\|.*\|$", page.read_text(), re.MULTILINE):
            configfile = re.search(r"--configfile (config/\w+\.yaml)", row)
            for first, last in re.findall(r"`([FT]/\w+\.\w+)`(?: \.\. `([FT]/\w+\.\w+)`)?", row):
                ends = [int(re.findall(r"\d+", name)[0]) for name in (first, last)] if last else [0, 0]
                for number in range(ends[0], ends[1] + 1):
                    name = re.sub(r"\d+", str(number), first) if last else first
                    yield f"{folders[name[0]]}{name[1:]}", configfile[1] if configfile else QUICK


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("project"))


def test_make_has_the_targets_and_variables_that_pages_name():
    makefile = (ROOT / "Makefile").read_text()
    called = [words for page in PAGES for words in calls("make", page)]
    assert len(called) > 5
    for words in called:
        assert all(f"$({word.split('=')[0]})" in makefile for word in shlex.split(words) if "=" in word), words
    targets = {word for words in called for word in shlex.split(words) if "=" not in word}
    dry = ["make", "--dry-run", "PYTHON=python3", *sorted(targets)]
    ended = subprocess.run(dry, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ended.returncode == 0, ended.stdout


def test_snakemake_knows_the_options_and_configurations_that_pages_name():
    called = [*snakemake_calls()]
    assert len(called) > 5
    for options in called:
        for file in options.configfile or []:
            assert OWN.search(str(file)) or settings.load(ROOT / file).name, file
        assert all((ROOT / profile / "config.yaml").exists() for profile in options.profile or []), options.profile


def test_the_workflow_makes_every_target_that_a_page_names(project):
    """Those of the quick configuration, in one dry run; figures and tables of others are those of their papers."""
    named = {target for call in snakemake_calls() if not call.configfile for target in call.targets}
    listed = [*drawn_and_computed()]
    assert len(listed) > 40
    of_quick = {*named, *(target for target, configuration in listed if configuration == QUICK)}
    targets = sorted(target for target in of_quick if not OWN.search(target) and not target.endswith(".sif"))
    ended = project.snakemake("--dry-run", *targets, configuration=QUICK)
    assert ended.returncode == 0, ended.stdout
    for target, configuration in listed:
        outputs = {
            (kind, batch.paper, name)
            for kind, kind_batches in batches(settings.load(ROOT / configuration)).items()
            for batch in kind_batches
            for name in batch.names
        }
        kind, paper, file = Path(target).parts[-3:]
        assert (kind.removesuffix("s"), paper, Path(file).stem) in outputs, f"{target} of {configuration}"


@pytest.mark.parametrize("page", [page for page in PAGES if calls("gradsync", page)], ids=lambda page: page.stem)
def test_commands_that_start_nothing_do_what_a_page_says(page, tmp_path, monkeypatch, capsys):
    """In the order of the page, from its own example of a workload; what only a measurement gives is not run."""
    example = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "your-model.md").read_text(), re.DOTALL)
    (tmp_path / "mine.json").write_text(example[1])
    (tmp_path / "points.csv").write_text(POINTS)
    monkeypatch.chdir(tmp_path)
    ran, unmade = 0, {"contention.json", "config/clusters/mine.yaml"}
    for words in (shlex.split(line) for line in lines(page) if line.startswith("gradsync ")):
        measures = words[1] not in RUN or "--model" in words
        if measures or any(word in unmade or word.startswith("here/") for word in words[2:]):
            unmade |= {file for option, file in pairwise(words) if option == "--output" and not Path(file).exists()}
            continue
        assert cli.main(words[1:]) == 0, f"{words}: {capsys.readouterr().err}"
        screen = capsys.readouterr().out
        if "--json" in words:
            json.loads(screen)
        for option, file in pairwise(words):
            made = Path(f"{file}.0.et" if "chakra" in words else file)  # a trace of each rank
            assert option not in ("--output", "--chrome") or made.stat().st_size, words
        ran += 1
    assert ran or page.stem not in ("your-model", "collectives", "schedules"), "no command of this page was run"


@pytest.mark.parametrize("words", sorted({words for page in PAGES for words in calls("python", page)}))
def test_programs_of_the_tests_have_the_options_that_pages_name(words):
    program, *rest = shlex.split(words)
    ended = subprocess.run([sys.executable, program, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert (ROOT / program).exists()
    assert all(word in ended.stdout for word in rest if word.startswith("--")), ended.stdout


def test_options_that_stand_in_the_text_exist():
    # of sbatch, tests/kills, tests/fuzz, mlflow, torchrun, docs/examples, ASTRA-sim, srun, numactl
    known = {"--wait", "--table", "--keep", "--backend-store-uri", "--nproc-per-node", "--beside-ddp"}
    known |= {"--workload-configuration", "--cpu-bind", "--preferred"}
    waiting = [cli._parser(), get_argument_parser()]
    while waiting:
        for action in waiting.pop()._actions:
            known |= {*action.option_strings}
            waiting += action.choices.values() if isinstance(action, argparse._SubParsersAction) else []
    for page in PAGES:
        for span in spans(page):
            for option in re.findall(r"(?:^|\s)(--[a-z][\w-]*)", span):
                assert option in known or span.startswith(("PYTHONPATH=", "python ")), f"{page.name}: {span}"
