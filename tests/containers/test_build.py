"""Images are really built, from a definition that is tiny; what can go wrong does, for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_project import ROOT

from gradsync.images import build, fingerprint
from waiting import HANGS_SECONDS, until

as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: it mounts over files of the system, for itself alone"
)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "containers").iterdir() if path.name not in ("base.def", "base.log"))


def test_an_image_is_built_labelled_and_runs(tiny):
    # a folder that jobs see, and that is no part of the image
    ended = tiny.build(
        "--json", "--mirror", "http://mirror.invalid/debian", "--suite", "sid", APPTAINER_BIND="/usr/share"
    )
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["bytes"] == tiny.image.stat().st_size
    assert "Running testscript" in ended.stderr
    assert "Build complete" in (tiny.folder / "containers" / "base.log").read_text()
    labels = build.labels(tiny.image)
    assert labels["gradsync.base.definitions"] == fingerprint("base", tiny.folder)
    assert labels["gradsync.base.from"] == "debootstrap http://mirror.invalid/debian sid none"
    assert tiny.inside("sh", "-c", "echo $((20 + 3))") == "23\n"
    assert leftovers(tiny.folder) == ["base.sif"]


def test_an_image_that_is_there_is_kept_until_its_definition_changes(tiny):
    assert tiny.build("--bootstrap", "docker").returncode == 0
    built_at = tiny.image.stat().st_mtime_ns
    again = tiny.build("--json", "--bootstrap", "docker")
    assert json.loads(again.stdout)["built"] is False
    tiny.define(post="echo changed > /changed")
    refused = tiny.build("--bootstrap", "docker")
    assert refused.returncode == 2
    assert "was built from other definitions: --force replaces it" in refused.stderr
    assert tiny.image.stat().st_mtime_ns == built_at
    assert tiny.build("--bootstrap", "docker", "--force").returncode == 0
    assert tiny.inside("cat", "/changed") == "changed\n"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"test": "echo all-reduce gave 3, not 2 >&2; exit 1"}, "its %test failed: all-reduce gave 3, not 2"),
        ({"post": "echo no compiler here >&2; exit 1"}, "%post: no compiler here"),
    ],
    ids=["test", "post"],
)
def test_a_build_that_fails_leaves_the_image_that_was_there(tiny, broken, message):
    assert tiny.build("--bootstrap", "docker").returncode == 0
    before = tiny.image.read_bytes()
    tiny.define(**broken)
    ended = tiny.build("--bootstrap", "docker", "--force")
    assert ended.returncode == 1
    assert message in ended.stderr.splitlines()[-1]
    assert "the whole log: containers/base.log" in ended.stderr.splitlines()[-1]
    assert tiny.image.read_bytes() == before
    assert leftovers(tiny.folder) == ["base.sif"]


def test_a_definition_that_is_none_is_refused(tiny):
    (tiny.folder / "containers" / "base.def").write_text("Bootstrap: nosuch\n%arguments\n    from=x\n")
    ended = tiny.build("--bootstrap", "docker")
    assert ended.returncode == 1
    assert "gradsync: image base: bootstrap: " in ended.stderr
    assert leftovers(tiny.folder) == []


def test_what_the_host_lends_is_inside_during_the_build_alone(tiny, tmp_path):
    wheels = tmp_path / "packages"
    wheels.mkdir()
    (wheels / "marker").write_text("a wheel\n")
    tiny.define(post="cat /mnt/pip.conf /mnt/environment > /seen; ls /mnt/1 >> /seen")
    ended = tiny.build(
        "--bootstrap",
        "docker",
        PIP_CONFIG_FILE=os.devnull,
        PIP_FIND_LINKS=str(wheels),
        PIP_EXTRA_INDEX_URL="https://index.invalid/simple",
        https_proxy="http://proxy.invalid:3128",
    )
    assert ended.returncode == 0, ended.stderr
    lent = tiny.inside("cat", "/seen")
    assert "find-links = /mnt/1\n" in lent
    assert "extra-index-url = https://index.invalid/simple\n" in lent
    assert "export https_proxy=http://proxy.invalid:3128\n" in lent
    assert lent.endswith("marker\n")
    assert tiny.inside("ls", "/mnt") == ""


def test_a_build_ends_with_the_job_that_started_it(tiny):
    tiny.define(post="echo started; while true; do :; done")
    command = [sys.executable, "-m", "gradsync", "image", "base", "--bootstrap", "docker"]
    with subprocess.Popen(command, cwd=tiny.folder, stderr=subprocess.PIPE, text=True) as child:
        log = tiny.folder / "containers" / "base.log"
        until(lambda: log.is_file() and "started" in log.read_text())
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANGS_SECONDS) == 128 + signal.SIGTERM
    until(lambda: not any(_points_below(path, tiny.folder) for path in Path("/proc").glob("[0-9]*/cwd")))
    assert leftovers(tiny.folder) == []


def _points_below(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except OSError:
        return False


def test_without_apptainer_it_says_how_to_get_it(tiny, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    ended = tiny.build(PATH=str(programs))
    assert ended.returncode == 2
    assert ended.stderr.startswith("gradsync: image base: apptainer is not on PATH: install Apptainer 1.2 or newer")


@as_root
def test_without_ids_to_build_with_it_says_whom_to_ask(tiny):
    ended = tiny.build(wrapped="mount --bind /dev/null /etc/subuid; mount --bind /dev/null /etc/subgid")
    assert ended.returncode == 2
    assert "/etc/subuid has no entry for root" in ended.stderr
    assert "apptainer config fakeroot --add root" in ended.stderr


@as_root
def test_a_full_disk_is_seen_before_the_build(tiny, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    ended = tiny.build(wrapped=f"mount -t tmpfs -o size=2m tmpfs {small}", APPTAINER_TMPDIR=str(small))
    assert ended.returncode == 2
    assert f"{small} has 0.00 GB free" in ended.stderr
    assert "APPTAINER_TMPDIR" in ended.stderr


def test_outside_a_checkout_it_says_so(tiny):
    shutil.rmtree(tiny.folder / "containers")
    ended = tiny.build()
    assert ended.returncode == 2
    assert "containers/base.def is missing: run this in the root of a checkout" in ended.stderr


def test_an_image_is_not_built_on_a_base_of_other_definitions(tiny):
    assert tiny.build("--bootstrap", "docker").returncode == 0
    for folder in ("containers", "envs"):
        kept = shutil.ignore_patterns("base.*", "*.sif", "*.log")
        shutil.copytree(ROOT / folder, tiny.folder / folder, ignore=kept, dirs_exist_ok=True)
    tiny.define(post="echo changed > /changed")
    ended = tiny.build(kind="cpu")
    assert ended.returncode == 2
    assert "containers/base.sif was built from other definitions: `gradsync image base --force" in ended.stderr


def test_an_image_that_is_there_is_not_blamed_for_a_missing_apptainer(tiny, tmp_path):
    tiny.image.write_text("any")
    ended = tiny.build(PATH=str(tmp_path))
    assert ended.returncode == 2
    assert "containers/base.sif: apptainer is not on PATH" in ended.stderr


def test_an_image_that_is_none_is_refused(tiny):
    tiny.image.write_text("not an image")
    ended = tiny.build()
    assert ended.returncode == 2
    assert "not an image that Apptainer reads" in ended.stderr


def test_the_rule_builds_the_base(tiny):
    (tiny.folder / "workflow").mkdir()
    shutil.copytree(Path(__file__).parents[2] / "workflow" / "rules", tiny.folder / "workflow" / "rules")
    (tiny.folder / "Snakefile").write_text('include: "workflow/rules/containers.smk"\n')
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "containers/base.sif"]
    for expected in ("1 of 1 steps (100%) done", "Nothing to be done"):
        ended = subprocess.run(command, cwd=tiny.folder, capture_output=True, text=True, timeout=HANGS_SECONDS)
        assert ended.returncode == 0, ended.stderr
        assert expected in ended.stderr
    assert tiny.inside("sh", "-c", "echo in").startswith("in")
