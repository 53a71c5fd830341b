"""Where tests of the configuration run: paths of a configuration are of the project's folder."""

from __future__ import annotations

import pytest

from configurations import ROOT


@pytest.fixture
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
