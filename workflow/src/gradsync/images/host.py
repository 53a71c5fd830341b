"""What this host lends to a build: its mirror and suite, package index, certificates, proxies and settings of apt.

A folder with all of it is mounted at /mnt while the image is built, and does not stay in the image. Folders of this
host that serve as a package index are mounted below it.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

from gradsync.errors import InputError

INSIDE = "/mnt"
PIP_KEYS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "proxy"),
    *("timeout", "default-timeout", "retries"),
)
PIP_SECTIONS = ("global", "install", ":env:")  # a later one wins, as in pip
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
APT_KEYS = re.compile(r"Acquire::(https?|Check-|Retries|ForceIPv)", re.IGNORECASE)
FILES = re.compile(r"::(Ca(Info|Path)|Crl|Ssl(Cert|Key))", re.IGNORECASE)  # they name files that the image lacks
SECONDS = 60.0  # the limit for a question to pip or apt


def mirror_and_suite(mirror: str | None, suite: str | None) -> tuple[str, str]:
    """Mirror and suite to bootstrap from: the arguments, else those of this host's own apt.

    Raises InputError if neither names them.
    """
    release_text = Path("/etc/os-release").read_text() if Path("/etc/os-release").is_file() else ""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', release_text, re.MULTILINE))
    suite = suite or release.get("VERSION_CODENAME")
    if mirror is None:
        # one line per index: who publishes it, component, suite, address
        targets = _ask(
            "apt-get",
            "indextargets",
            "--format",
            "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)",
            "Created-By: Packages",
        )
        rows = [fields for line in targets.splitlines() if len(fields := line.split()) == 4]
        matching = [
            row for row in rows if row[0].lower() == release.get("ID") and row[1] == "main" and "-" not in row[2]
        ]
        chosen = next((row for row in matching if row[2] == suite), matching[0] if matching and not suite else None)
        if chosen is None:
            wanted = f" of {suite}" if suite else ""
            raise InputError(
                f"image base: this host's apt names no mirror{wanted} to build from: run `apt-get update`, give "
                "--mirror URL and --suite NAME of a Debian or Ubuntu mirror, or build it from a registry: "
                "`gradsync image base --bootstrap docker`"
            )
        suite, mirror = chosen[2], chosen[3]
    if not suite:
        raise InputError(
            "image base: --suite NAME is needed beside --mirror: the suite of the mirror to bootstrap from"
        )
    return mirror.rstrip("/"), suite


def lend(folder: Path) -> list[str]:
    """Fill `folder` with what a build needs of this host; returns the mounts (`source:target:ro`) for it."""
    folder.chmod(0o755)  # apt inside fetches as a user of its own
    mounts = [f"{folder}:{INSIDE}:ro"]
    settings = pip_settings()
    certificates = settings.pop("cert", None) or _certificates()
    lent = {"PIP_CONFIG_FILE": f"{INSIDE}/pip.conf", "APT_CONFIG": f"{INSIDE}/apt.conf"}
    apt = [line for line in _ask("apt-config", "dump").splitlines() if APT_KEYS.match(line) and not FILES.search(line)]
    if certificates and Path(certificates).is_file():
        shutil.copyfile(certificates, folder / "certificates.pem")
        settings["cert"] = lent["SSL_CERT_FILE"] = f"{INSIDE}/certificates.pem"
        apt.append(f'Acquire::https::CaInfo "{INSIDE}/certificates.pem";')
    client_certificate = settings.get("client-cert")
    if client_certificate and Path(client_certificate).is_file():
        shutil.copyfile(client_certificate, folder / "client.pem")
        (folder / "client.pem").chmod(0o600)
        settings["client-cert"] = f"{INSIDE}/client.pem"
    for key in ("index-url", "extra-index-url", "find-links"):
        if key in settings:
            settings[key] = " ".join(_lent_place(place, key, folder, mounts) for place in settings[key].split())
    for name in (variant for proxy in PROXIES for variant in (proxy, proxy.upper())):
        if os.environ.get(name):
            lent[name] = os.environ[name]
    _write(folder / "pip.conf", ["[global]", *(f"{key} = {value}" for key, value in settings.items())])
    _write(folder / "environment", [f"export {name}={shlex.quote(value)}" for name, value in lent.items()])
    _write(folder / "apt.conf", apt)
    return mounts


def pip_settings() -> dict[str, str]:
    """The settings of pip's configuration files and environment variables that say where pip gets packages."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in _ask(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator and section in by_section and key in PIP_KEYS:
            by_section[section][key] = " ".join(str(ast.literal_eval(value)).split())
    return {key: value for section in PIP_SECTIONS for key, value in by_section[section].items()}


def _lent_place(place: str, key: str, folder: Path, mounts: list[str]) -> str:
    """An index or folder of packages as the build names it: one of this host is mounted, another stays as it is."""
    is_url = place.startswith("file:")
    path = Path(unquote(re.sub("^file:(//)?", "", place))) if is_url else Path(place).expanduser()
    if not path.is_absolute() or not path.exists():
        return place
    # the pages of an index lead to files beside it
    whole = path.parent if path.is_file() or (key != "find-links" and path.parent != Path("/")) else path
    number = len(mounts)
    (folder / str(number)).mkdir()
    mounts.append(f"{whole}:{INSIDE}/{number}:ro")
    inside = f"{INSIDE}/{number}/{path.relative_to(whole)}".removesuffix("/.")
    return f"file://{inside}" if is_url else inside


def _certificates() -> str | None:
    named = (os.environ.get(name, "") for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"))
    return next((path for path in (*named, *CERTIFICATES) if path and Path(path).is_file()), None)


def _ask(*command: str) -> str:
    """What a program prints; nothing if it is missing or fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o644)
