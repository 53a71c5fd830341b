"""The pages in a real browser: what a click and a word do, what the console says, and whether everybody can use them.

Skipped where there is no Chromium.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import browser
from configurations import parse
from gradsync import claims
from gradsync.claims import CONFIRMED, REFUTED, UNDECIDED, Change, Changes, Origin, Verdict
from gradsync.files.results import Result
from gradsync.site.write import write

ROOT = Path(__file__).parents[3]
PAGES = ("index", "mgwfbp", "ledger", "coverage", "runs")
SECONDS = {"wfbp": "12.5", "single": "1e3", "mgwfbp": "9", "optimal": "", "naive": "-2.5", "kway": "none", "ddp": "9"}
ROWS = [*SECONDS.items()]
# the run's own: published ones of earlier runs follow
TABLE = "document.querySelector('#fig6 table.sortable:has(caption)')"
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" height="30"/></svg>'
AXE = importlib.util.find_spec("axe_core_python")


def verdict(claim: str, rung: str, kind: str) -> Verdict:
    return Verdict("mgwfbp", claim, "Fig. 6", "it is fast", "fig6", rung, kind, "nothing ran", True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages with claims, changes, a table of seven rows and its figure, and a run."""
    results = tmp_path_factory.mktemp("made-up")
    body = "".join(f"| {scheme} | {seconds} |\n" for scheme, seconds in ROWS)
    ledger = [
        verdict("fig6-over-wfbp", "simulated", CONFIRMED),
        verdict("fig6-order", "measured", REFUTED),
        verdict("fig6-ps", "measured", UNDECIDED),
    ]
    changes = Changes(Origin("2026-11-23T10:00:00+00:00"), (Change("mgwfbp", "fig6-order", "measured", "-", REFUTED),))
    files = {
        "claims.json": claims.ledger_json(ledger, changes=changes),
        "claims.md": "claims",
        "tables/mgwfbp/fig6.md": f"Times\n\n| scheme | seconds |\n|:--|--:|\n{body}",
        "tables/mgwfbp/fig6.csv": "rung,model,scheme\nsimulated,googlenet,wfbp\n",
        "figures/mgwfbp/fig6.svg": PICTURE,
    }
    for name, content in files.items():
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(content)
    run = Result(rung="measured", paper="mgwfbp", scheme="wfbp", model="lenet5", ranks=2)
    run.save(results / "runs/train/lenet5-2/wfbp")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        write("config/quick.yaml", parse(), results, Path("config"))
    return results / "site"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if (path := browser.program()) is None:
        pytest.skip("no Chromium on this machine")
    with browser.opened(path, tmp_path_factory.mktemp("profile")) as page:
        yield page


def column(page: browser.Browser, number: int = 0, rows: str = "tr") -> list[str]:
    """The texts of a column of the table, from those of its rows that are seen."""
    cells = f"[...{TABLE}.querySelectorAll('tbody {rows}')].filter(row => row.getClientRects().length)"
    return list(page.value(f"{cells}.map(row => row.cells[{number}].textContent)"))


def head(number: int) -> str:
    return f"{TABLE}.querySelectorAll('th button')[{number}]"


def test_a_click_on_a_heading_sorts_by_it_and_another_turns_it_round(site, chromium):
    """Numbers come before words, and empty cells last, either way."""
    chromium.open(site / "mgwfbp.html")
    assert column(chromium) == [scheme for scheme, _ in ROWS]
    chromium.click(head(1))
    assert column(chromium, 1) == ["-2.5", "9", "9", "12.5", "1e3", "none", ""]
    assert column(chromium) == ["naive", "mgwfbp", "ddp", "wfbp", "single", "kway", "optimal"]
    chromium.click(head(1))
    assert column(chromium, 1) == ["1e3", "12.5", "9", "9", "-2.5", "none", ""]
    chromium.click(head(0))
    assert column(chromium) == sorted(scheme for scheme, _ in ROWS)
    sorted_by = f"[...{TABLE}.querySelectorAll('th')].map(head => head.getAttribute('aria-sort'))"
    assert chromium.value(sorted_by) == ["ascending", None]


def test_the_enter_key_sorts_too(site, chromium):
    chromium.open(site / "mgwfbp.html")
    chromium.value(f"{head(0)}.focus()")
    chromium.enter()
    assert column(chromium) == sorted(scheme for scheme, _ in ROWS)


def test_a_word_in_the_field_leaves_the_rows_that_have_it(site, chromium):
    chromium.open(site / "mgwfbp.html")
    field = f"{TABLE}.parentElement.previousElementSibling"
    chromium.click(field)
    chromium.type("WFBP")
    assert column(chromium) == ["wfbp", "mgwfbp"]
    chromium.type(" 12")
    assert column(chromium) == ["wfbp"]
    chromium.value(f"{field}.select()")
    chromium.type("nowhere")
    assert column(chromium) == []
    chromium.value(f"{field}.select()")
    chromium.type(" ")
    assert len(column(chromium)) == len(ROWS)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_pages_load_whole_without_a_word_of_the_console_and_fit_the_window(site, chromium, name, width):
    chromium.open(site / f"{name}.html", width)
    pictures = (
        "Promise.all([...document.images].map(async image => { image.loading = 'eager'; await image.decode();"
        " return image.naturalWidth; }))"
    )
    widths = chromium.value(pictures)
    assert all(widths)
    assert len(widths) == (name == "mgwfbp")
    missing = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => !document.getElementById(id))"
    )
    assert chromium.value(missing) == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.problems == []


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_that_keeps_anybody_from_using_a_page(site, chromium, name):
    """By all rules of axe-core for WCAG 2.1, levels A and AA."""
    chromium.open(site / f"{name}.html")
    chromium.value(Path(AXE.submodule_search_locations[0], "axe.min.js").read_text() + "\n; true")
    tags = json.dumps(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"])
    found = chromium.value(
        f"axe.run(document, {{runOnly: {{type: 'tag', values: {tags}}}}}).then(result => result.violations.map("
        "each => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 200)]))"
    )
    assert found == []
