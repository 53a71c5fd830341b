"""Failed builds in one message. The logs are the ends of real ones."""

from __future__ import annotations

import pytest

from gradsync.images import failures

POST = "INFO:    Running post scriptlet"
INSTALL = "+ /opt/v/bin/python -m pip install --no-index torch==2.13.0+cpu"
NONE_FOUND = "ERROR: No matching distribution found for torch==2.13.0+cpu"
REFUSED = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f563b5566d0>: Failed to "
    "establish a new connection: [Errno 111] Connection refused')': /torch/"
)
POST_FAILED = "FATAL:   While performing build: while running engine: while running %post section: exit status 1"
BOOTSTRAP_FAILED = "FATAL:   While performing build: conveyor failed to get: while debootstrapping: exit status 1"


@pytest.mark.parametrize(
    ("lines", "where", "advice"),
    [
        ([POST, INSTALL, NONE_FOUND, POST_FAILED], "%post", "an index with CPU builds of torch (PIP_EXTRA_INDEX_URL"),
        (
            [POST, INSTALL, NONE_FOUND.replace("==2.13.0+cpu", "===2.13.0"), POST_FAILED],
            "%post",
            "pip finds no torch===2.13.0: point it at an index with CUDA builds",
        ),
        ([POST, INSTALL, REFUSED, NONE_FOUND, POST_FAILED], "%post", "the package index can't be reached"),
        (
            ["E: Failed getting release file http://127.0.0.1:9/debian/dists/bookworm/Release", BOOTSTRAP_FAILED],
            "bootstrap",
            "the mirror or registry can't be reached",
        ),
        (
            ["E: No such script: /usr/share/debootstrap/scripts/nosuch", BOOTSTRAP_FAILED],
            "bootstrap",
            "debootstrap does not know the suite nosuch: name another with --suite",
        ),
        (
            ["E: Couldn't find these debs: python3-nosuch", BOOTSTRAP_FAILED],
            "bootstrap",
            "component main has no python3-nosuch: name another suite or mirror",
        ),
        (
            [
                'FATAL:   While performing build: conveyor failed to get: Get "https://registry.invalid/v2/": dial '
                "tcp: lookup registry.invalid on 10.255.255.53:53: no such host"
            ],
            "bootstrap",
            "the mirror or registry can't be reached",
        ),
        (
            ["FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid for root"],
            "bootstrap",
            "ask an administrator for `apptainer config fakeroot --add USER`",
        ),
        (
            [
                "INFO:    Extracting local image...",
                "ERROR:   unpackSIF failed: root filesystem extraction failed: failed to copy content in staging file: "
                "write /tmp/small/build-temp-3075313734/archive-2624230039: no space left on device",
            ],
            "bootstrap",
            "a disk is full: make room, or set APPTAINER_TMPDIR",
        ),
    ],
    ids=[
        "no CPU build",
        "no CUDA build",
        "no index",
        "no mirror",
        "no suite",
        "no package",
        "no registry",
        "no ids",
        "full",
    ],
)
def test_a_log_comes_down_to_where_why_and_what_to_do(lines, where, advice):
    message = failures.explain(["INFO:    Starting build...", *lines])
    assert message.startswith(f"{where}: ")
    assert advice in message
    assert "\n" not in message
    assert len(message) < 600


def test_a_failed_test_is_told_by_its_last_words_whatever_they_look_like():
    lines = [POST, "Downloading", "INFO:    Running testscript", "Traceback (most recent call last):"]
    error = "AssertionError: torch 2.13.0+cu130 is a CUDA build; No matching distribution found for torch==1+cpu"
    message = failures.explain([*lines, error, "FATAL:   While performing build: failed to execute %test script"])
    assert message == f"the image was built, but its %test failed: {error}"
