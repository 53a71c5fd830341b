"""README and docs name files, pages, commands and options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gradsync import cli
from gradsync.errors import InputError
from pages import PAGES, ROOT, called, lines, spans

TOP = ("config/", "workflow/", "tests/", "docs/", "envs/", "containers/")


def commands(page: Path) -> list[tuple[list[str], bool]]:
    """Words of every `gradsync` command in a page; whether it is whole, as in a block, or only named in the text."""
    blocks, texts = called("gradsync", lines(page)), called("gradsync", spans(page))
    return [(shlex.split(words), words in blocks) for words in [*blocks, *texts] if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            assert (page.parent / path).exists(), target
            headings = re.findall(r"^#+ (.*)$", (page.parent / path).read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_are_there(page):
    """Those of the project; a name in capitals stands for one of the reader's own, as `mine` does."""
    for name in re.findall(r"`([\w./-]+)`", page.read_text()):
        if name.startswith(TOP) and not re.search(r"[A-Z]{4}|mine|\.sif$", name):
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_commands_of_a_page_are_understood(page):
    for words, whole in commands(page):
        try:
            cli._parser().parse_args(words)
        except InputError as error:
            if whole or "needed, and not given" not in str(error):
                pytest.fail(f"gradsync {' '.join(words)}: {error}")
