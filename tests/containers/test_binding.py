"""Which folders of the host a job in an image sees."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from gradsync.images.binding import bound
from project_copy import ROOT

IMAGE = ROOT / "containers" / "cpu.sif"


def test_folders_and_where_their_links_lead(tmp_path, monkeypatch):
    checkout, away = tmp_path / "checkout", tmp_path / "away"
    for folder in (checkout / "data", checkout / "plain", away / "imagenet" / "train", away / "mnist"):
        folder.mkdir(parents=True)
    (checkout / "data" / "imagenet").symlink_to(away / "imagenet")
    monkeypatch.chdir(checkout)
    assert bound("", [None, "", "plain", "nowhere"], checkout) == ""
    assert bound("", ["data"], checkout) == str(away / "imagenet")
    assert bound("", ["data/imagenet"], checkout) == str(away / "imagenet")
    assert bound("/a:/b", [str(away / "mnist"), "/not/there"], checkout) == f"/a:/b,{away}/mnist"
    once = bound("", ["data", str(away / "mnist")], checkout)
    assert bound(once, ["data", str(away / "mnist")], checkout) == once  # a job on a node does the same again


@pytest.mark.skipif(
    not (IMAGE.is_file() and shutil.which("apptainer")), reason="no containers/cpu.sif: build it with `make image`"
)
def test_a_job_reads_through_a_link(tmp_path):
    # outside the folders that Apptainer brings in any case (the working folder, the home folder and /tmp)
    away = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        (away / "file").write_text("seen")
        (tmp_path / "data").symlink_to(away)
        exec_ = ["apptainer", "exec", "--no-home", "--no-privs", "--no-mount", "tmp"]
        command = [*exec_, "--bind", bound(str(tmp_path), [str(tmp_path / "data")], Path.cwd()), str(IMAGE)]
        read = subprocess.run([*command, "cat", str(tmp_path / "data" / "file")], capture_output=True, text=True)
        assert read.stdout == "seen", read.stderr
    finally:
        shutil.rmtree(away)
