"""The site of a made-up folder of results: numbers, links, escaping, order, and what is missing."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from configurations import parse
from gradsync import claims, cli, papers
from gradsync.claims import CONFIRMED, REFUTED, UNDECIDED, Change, Changes, Compared, Origin, Verdict
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.site import titles, written_tables
from gradsync.site.coverage import coverage
from gradsync.site.sections import in_order
from gradsync.site.write import write

ROOT = Path(__file__).parents[3]
VOID = {"meta", "link", "img", "input", "br"}
CONFIG = "config/quick.yaml"
HOSTILE = "<script>alert('a & b')</script>"


class Page(HTMLParser):
    """Texts, ids and addresses of a page; refuses elements that are closed in another order than opened."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(file.read_text())
        self.close()
        assert not self.open, f"{file.name}: not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.addresses += [values[key] for key in ("href", "src") if key in values]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} closed at {self.getpos()}"

    def handle_data(self, data):
        self.texts += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def verdict(claim: str, rung: str, kind: str, **more: object) -> Verdict:
    fields = {"paper": "mgwfbp", "place": "Fig. 6", "text": "it is fast", "table": "fig6", "reason": "", **more}
    return Verdict(claim=claim, rung=rung, verdict=kind, counted=True, **fields)


def pages(results: Path) -> dict[str, Page]:
    write(CONFIG, parse(), results, Path("config"))
    return {file.stem: Page(file) for file in (results / "site").glob("*.html")}


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three claims on a table, which is there with its figure; two runs, one of them in MLflow's books."""
    folder = tmp_path / "made-up"
    compared = (Compared("speedup >= 1.2", "", (1.19, 1.49), (1.2, 1.2)),)
    ledger = [
        verdict("fig6-over-wfbp", "simulated", CONFIRMED, margin=0.25, compared=compared),
        verdict("fig6-over-wfbp", "measured", UNDECIDED, reason=HOSTILE),
        verdict("fig6-order", "measured", REFUTED, margin=-0.5, text=HOSTILE, note="See MG-E09."),
        verdict("fig6-ps", "measured", UNDECIDED, reason="table fig6 has not been made"),
    ]
    files = {
        "claims.json": claims.ledger_json(ledger),
        "tables/mgwfbp/fig6.md": f"Speeds, {HOSTILE}\n\n| a | b |\n|:--|--:|\n| x | 12.5 |\n| y | nan |\n",
        "tables/mgwfbp/fig6.csv": "rung,model,scheme\nsimulated,resnet152,wfbp\nmeasured,resnet152,mgwfbp\n",
        "figures/mgwfbp/fig6.svg": "<svg/>",
        "plans/lenet5-2/wfbp.prediction.json": "{}",
        "logs/train/lenet5-2.log": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    summary = {"iteration_seconds": 0.0123, "iteration_seconds_low": 0.012, "iteration_seconds_high": 0.0125}
    run = Result(rung="measured", paper="mgwfbp", scheme="wfbp", model="lenet5", ranks=2, summary=summary)
    (folder / "runs/train/lenet5-2/wfbp").mkdir(parents=True)
    run.save(folder / "runs/train/lenet5-2/wfbp")
    tracked = {"tracking_uri": "sqlite:////a/mlflow.db", "experiment_id": "7", "runs": {run.key(): "0a1b"}}
    (folder / "tracked.json").write_text(json.dumps(tracked))
    return folder


def test_every_address_on_every_page_leads_somewhere(results):
    found = pages(results)
    assert {"index", "mgwfbp", "ledger", "coverage", "runs"} < {*found}
    for name, page in found.items():
        assert len({*page.ids}) == len(page.ids), name
        assert len(page.addresses) > 5
        for address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme:
                assert parts.netloc == "127.0.0.1:5000", f"{name}: {address}"
                continue
            target = results / "site" / unquote(parts.path or f"{name}.html")
            assert target.is_file(), f"{name}: {address}"
            assert not parts.fragment or parts.fragment in found[target.stem].ids, f"{name}: {address}"


def test_claims_are_counted_once_and_told_with_their_numbers(results):
    found = pages(results)
    row = "MG-WFBP 3 1 1 0 0 1 0 1 0 1"  # claims; confirmed, refuted, no counterexample, void, open; the four rungs
    assert row in found["index"].text
    for name in ("ledger", "mgwfbp"):
        assert "1.19 to 1.49 (-0.8 to +24.2 %) confirmed margin +25.0 %" in found[name].text
    assert "its table has not been made" in found["index"].text


def test_texts_of_results_are_shown_and_never_run(results):
    found = pages(results)
    for name in ("mgwfbp", "ledger"):
        assert HOSTILE in found[name].text
        assert HOSTILE not in (results / "site" / f"{name}.html").read_text()


def test_a_written_table_and_its_figure_are_shown_and_missing_ones_told_with_their_command(results):
    page = pages(results)["mgwfbp"]
    assert "a b x 12.5 y" in page.text
    assert "../figures/mgwfbp/fig6.svg" in page.addresses
    assert "../tables/mgwfbp/fig6.csv" in page.addresses
    made, missing = (
        f"snakemake --cores 2 {results}/tables/mgwfbp/",
        "table has not been made yet. This command makes it:",
    )
    assert f"{missing} {made}fig7.csv --configfile {CONFIG}" in page.text
    assert f"{missing} {made}fig6.csv" not in page.text


def test_errata_stand_where_the_paper_errs(results):
    """One that a claim's note refers to stands at the claim's table, one that nothing refers to at the end."""
    page = pages(results)["mgwfbp"].text
    end = page.index("Errata and remarks on the rest of the paper")
    assert page.index(" Fig. 6 MG-E") < page.index("MG-E09 , Theorem 1") < end
    assert page.count("MG-E09 , Theorem 1") == 1
    assert "MG-E" in page[end:]


def test_runs_have_their_files_and_their_address_in_mlflow(results):
    page = pages(results)["runs"]
    assert "0.0123 0.012 to 0.0125 result , prediction , log run" in page.text
    assert "mlflow ui --backend-store-uri sqlite:////a/mlflow.db" in page.text
    assert [each for each in page.addresses if each.startswith("http")] == [
        "http://127.0.0.1:5000/#/experiments/7/runs/0a1b"
    ]


def test_what_changed_since_the_run_before_stands_on_the_first_page(results):
    ledger = claims.read(results / "claims.json")
    changes = Changes(
        Origin("2026-11-23T10:00:00+00:00", "0123456789ab"),
        (
            Change("mgwfbp", "fig6-order", "measured", CONFIRMED, REFUTED),
            Change("mgwfbp", "fig6-ps", "measured", "-", UNDECIDED),
            Change("mgwfbp", "is-gone", "derived", CONFIRMED, "-"),
        ),
    )
    assert "What changed since" not in pages(results)["index"].text
    (results / "claims.json").write_text(claims.ledger_json(ledger, changes=changes))
    page = pages(results)["index"]
    assert "2026-11-23T10:00:00+00:00 by 0123456789ab" in page.text
    assert "fig6-order measured confirmed refuted" in page.text
    assert "fig6-ps measured new open" in page.text
    assert "is-gone derived confirmed gone" in page.text
    assert "ledger.html#mgwfbp-fig6-order" in page.addresses
    assert "ledger.html#mgwfbp-is-gone" not in page.addresses


def test_coverage_tells_what_ran_what_was_refused_and_every_papers_systems(results):
    covered = coverage(parse(), results)
    assert covered.states["lenet5", "wfbp"] == ("measured", "simulated")  # a result and a prediction
    assert covered.states["resnet152", "mgwfbp"] == ("measured",)  # a row of a table
    assert covered.states["resnet50", "bml"] == ("refused",)
    assert ("resnet50", "wfbp") not in covered.states  # nothing of it is there
    text = pages(results)["coverage"].text
    assert "resnet50 bml resnet50-2: scheme 'bml': topology 'bcube': 2 is no n^k" in text
    assert "MG-WFBP wfbp WFBP wfbp measured simulated" in text
    assert "MG-WFBP naive naive S-SGD naive there; no result of this configuration has it" in text
    assert "intel_caffe not there yet" in text  # of a paper that the configuration doesn't show


def test_a_folder_without_results_gives_pages_that_say_so(tmp_path):
    found = pages(tmp_path)
    assert f"This command makes them: snakemake --cores 2 {tmp_path}/claims.json" in found["index"].text
    assert "Nothing has run yet" in found["runs"].text


def test_the_command_writes_the_pages_and_says_where(results, capsys):
    assert cli.main(["site", "--config", CONFIG, "--results", str(results)]) == 0
    assert f"site: {results}/site/index.html" in capsys.readouterr().out


@pytest.mark.parametrize("ledger", ["{}", '{"version": 1}', '{"version": 2, "verdicts": [{"paper": 1}]}', "no"])
def test_a_ledger_that_is_none_is_refused_by_its_name(ledger, results):
    (results / "claims.json").write_text(ledger)
    with pytest.raises(InputError, match=r"ledger .*claims\.json"):
        pages(results)


def test_a_ledger_is_read_as_it_was_written(results):
    verdicts = claims.read(results / "claims.json")
    assert claims.ledger_json(verdicts) == (results / "claims.json").read_text()
    assert verdicts[0].compared[0].left == (1.19, 1.49)


def test_sections_stand_in_the_order_of_print_and_what_is_not_printed_comes_last():
    tables, figures = ["table2", "gap", "fig5", "fig5_points", "fig7a"], ["fig1", "fig5", "fig7a", "timelines", "gap"]
    printed = ("fig1", "fig5", "table2", "fig7")
    assert in_order(tables, figures, printed) == ["fig1", "fig5", "fig5_points", "table2", "fig7a", "gap", "timelines"]


@pytest.mark.parametrize("paper", sorted(parse().papers))
def test_a_paper_declares_the_order_of_print_of_all_that_has_a_number(paper):
    declared = papers.declared(paper)
    numbered = {titles.printed(name) for name in (*declared.tables, *declared.figures)} - {""}
    assert numbered == {*declared.printed}
    assert len(numbered) == len(declared.printed)


def test_titles_and_the_places_that_name_them():
    assert [titles.title(name) for name in ("fig5a_tensors", "table2", "algorithm1", "own_model")] == [
        "Fig. 5(a), tensors",
        "Table 2",
        "Algorithm 1",
        "Own model",
    ]
    assert titles.names("Section V-A, Fig. 5(a) prose", "fig5a")
    assert titles.names("Section V, prose of Fig. 6 and 7", "fig7")
    assert titles.names("Section VI-B with Table IV", "table4")
    assert not titles.names("Fig. 5(a)", "fig5b")
    assert not titles.names("Fig. 12", "fig1")
    assert not titles.names("Table 5", "fig5")
    assert titles.names("Section 3.1 with Algorithm 1, lines 8 and 9", "algorithm1")
    assert not titles.names("Algorithm 1", "fig1")


def test_a_table_whose_cells_cannot_be_told_apart_is_shown_as_it_is(tmp_path):
    file = tmp_path / "t.md"
    file.write_text("C\n\n| a | b |\n|:--|--:|\n| x | y | z |\n\nD\n\n| a |\n|---|\n| 1 |\n")
    first, second = written_tables.parts(file)
    assert (first.head, first.caption) == ((), "C")
    assert "| x | y | z |" in first.text
    assert second == written_tables.Part("D", ("a",), (("1",),))
