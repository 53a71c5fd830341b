"""Explains a failed build, and says what to do about it, in one message out of hundreds of lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The words with which Apptainer's log announces each stage.
STAGES = {
    "Running post scriptlet": "%post",
    "Running testscript": "%test",
    "Creating SIF file": "packing",
}
UNREACHABLE = (
    r"Temporary failure in name resolution|Could not resolve|no such host|Network is unreachable|Unable to connect|"
    r"Connection refused|NewConnectionError|ConnectTimeout|ReadTimeout|i/o timeout|Failed getting release file|"
    r"Couldn't download"
)
MEANINGS = (
    (
        r"[Nn]o space left on device|Disk quota exceeded",
        "a disk is full: make room, or set APPTAINER_TMPDIR to a folder with more",
    ),
    (
        r"no mapping entry found|newuidmap|could not use fakeroot|user namespace",
        "this user can't build without privileges (fakeroot): ask an administrator for `apptainer config fakeroot "
        "--add USER`, and for user namespaces where they are switched off",
    ),
    (
        r"No such script: \S*/scripts/(?P<what>\S+)",
        "debootstrap does not know the suite {what}: name another with --suite",
    ),
    (
        r"Couldn't find these debs: (?P<what>[\w.+ -]+)",
        "the mirror's component main has no {what}: name another suite or mirror, or take --bootstrap docker",
    ),
    (
        r"certificate verify failed|x509: |CERTIFICATE_VERIFY_FAILED",
        "a certificate is not trusted: set SSL_CERT_FILE to those that this network's servers are signed with",
    ),
    (UNREACHABLE, "the {source} can't be reached: check the network, the proxy (https_proxy) and its address"),
    (
        r"No matching distribution found for (?P<what>torch==\S*\+cpu)",
        "pip finds no {what}: point it at an index with CPU builds of torch (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS)",
    ),
    (
        r"No matching distribution found for (?P<what>torch===\S+)",
        "pip finds no {what}: point it at an index with CUDA builds of torch (PIP_INDEX_URL or PIP_EXTRA_INDEX_URL)",
    ),
    (
        r"No matching distribution found for (?P<what>\S+)",
        "pip finds no {what} that is a wheel for this Python: check the index that pip is pointed at",
    ),
    (r"gradsync needs Python [\d.]+ or newer", "the Python of that suite is too old: name a newer suite with --suite"),
)


def stage(lines: Sequence[str]) -> str:
    """The stage at which a build ended: bootstrap, %post, %test or packing."""
    reached = [name for line in lines for text, name in STAGES.items() if text in line]
    return reached[-1] if reached else "bootstrap"


def explain(lines: Sequence[str]) -> str:
    """Sum up a failed build's log: at which stage it failed, why, and what to do."""
    where = stage(lines)
    if where == "%test":
        return f"the image was built, but its %test failed: {_last(lines)}"
    log = "\n".join(lines)
    source = "package index" if "/torch/" in log or "pip install" in log else "mirror or registry"
    for pattern, meaning in MEANINGS:
        match = re.search(pattern, log)
        if match:
            return f"{where}: {meaning.format(source=source, **match.groupdict())} ({_line_of(log, match)})"
    return f"{where}: {_last(lines)}"


def _line_of(log: str, match: re.Match[str]) -> str:
    return _bare(log[log.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0])


def _last(lines: Sequence[str]) -> str:
    """The last line that is not blank and, if there is such a line, not Apptainer's own."""
    not_blank = [line for line in lines if line.strip()]
    of_program = [line for line in not_blank if not line.startswith(("FATAL:", "INFO:", "WARNING:", "+ "))]
    return _bare((of_program or not_blank or ["no output"])[-1])


def _bare(line: str) -> str:
    return re.sub(r"^(FATAL|ERROR|WARNING|INFO):\s*", "", line.strip())[:300]
