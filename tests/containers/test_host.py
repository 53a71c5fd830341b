"""What a host lends to a build is read from its own pip and apt, and mounted at the right places."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest

from gradsync.errors import InputError
from gradsync.images import host


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only configuration file of pip, with no variable besides it."""
    for name in ("FIND_LINKS", "INDEX_URL", "EXTRA_INDEX_URL", "CERT", "DEFAULT_TIMEOUT", "NO_INDEX"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    path = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


def lent(folder: Path) -> tuple[dict[str, str], list[str]]:
    folder.mkdir()
    mounts = host.lend(folder)
    read = configparser.RawConfigParser()
    read.read(folder / "pip.conf")
    return dict(read["global"]), mounts


def test_a_variable_wins_over_a_file_as_in_pip(pip, monkeypatch):
    pip.write_text(
        "[global]\nindex-url = https://one.invalid/simple\ntimeout = 7\n[install]\nno-index = true\nuser = 1\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://two.invalid/simple")
    settings = host.pip_settings()
    assert settings["index-url"] == "https://two.invalid/simple"
    assert (settings["timeout"], settings["no-index"]) == ("7", "true")
    assert "user" not in settings  # where to install is the image's own


def test_an_index_of_this_host_is_mounted_with_what_its_pages_lead_to(pip, tmp_path):
    for folder in ("own/simple", "own/files", "wheels"):
        (tmp_path / folder).mkdir(parents=True)
    pip.write_text(
        f"[global]\nextra-index-url = file://{tmp_path}/own/simple https://far.invalid/simple\n"
        f"find-links = {tmp_path}/wheels\n   {tmp_path}/nosuch\n"
    )
    settings, mounts = lent(tmp_path / "lent")
    assert settings["extra-index-url"] == "file:///mnt/1/simple https://far.invalid/simple"
    assert settings["find-links"] == f"/mnt/2 {tmp_path}/nosuch"
    assert mounts == [
        f"{tmp_path}/lent:/mnt:ro",
        f"{tmp_path}/own:/mnt/1:ro",
        f"{tmp_path}/wheels:/mnt/2:ro",
    ]
    assert (tmp_path / "lent" / "1").is_dir()


def test_certificates_go_along(pip, tmp_path, monkeypatch):
    certificates = tmp_path / "own.pem"
    certificates.write_text("certificates\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # no file at all, not that of the virtual environment either
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    settings, _ = lent(tmp_path / "lent")
    assert settings["cert"] == "/mnt/certificates.pem"
    assert (tmp_path / "lent" / "certificates.pem").read_text() == "certificates\n"
    assert "export SSL_CERT_FILE=/mnt/certificates.pem\n" in (tmp_path / "lent" / "environment").read_text()
    assert 'Acquire::https::CaInfo "/mnt/certificates.pem";\n' in (tmp_path / "lent" / "apt.conf").read_text()


def test_a_secret_certificate_is_for_its_owner_alone(pip, tmp_path):
    (tmp_path / "key.pem").write_text("secret\n")
    pip.write_text(f"[global]\nclient-cert = {tmp_path}/key.pem\n")
    settings, _ = lent(tmp_path / "lent")
    assert settings["client-cert"] == "/mnt/client.pem"
    assert (tmp_path / "lent" / "client.pem").stat().st_mode & 0o077 == 0


def test_what_is_given_wins_over_the_hosts_own_mirror():
    assert host.mirror_and_suite("http://mirror.invalid/debian/", "sid") == ("http://mirror.invalid/debian", "sid")


def test_without_a_mirror_it_says_what_to_give(monkeypatch, tmp_path):
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/none";\nDir::Etc::sourceparts "{tmp_path}";\n'
    )
    with pytest.raises(
        InputError, match=r"give --mirror URL and --suite NAME .*, or build it from a registry: `gradsync image base"
    ):
        host.mirror_and_suite(None, None)
