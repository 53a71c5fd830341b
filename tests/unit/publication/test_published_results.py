"""Published results: made from clean, quiet, timed runs and no others, read again, shown and not counted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from configurations import parse
from gradsync import claims, cli, publication
from gradsync.claims import CONFIRMED, REFUTED, UNDECIDED, Compared, Origin, Verdict
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.site.write import write

ROOT = Path(__file__).parents[3]
CONFIG = "config/emulated.yaml"
COMMIT = "0123456789ab"
PROVENANCE = {
    "code": COMMIT,
    "date": "2026-11-25",
    "cores": 2,
    "nodes": 1,
    "processor": "Intel(R) Xeon(R) Processor",
    "system": "Linux 6.18.44-of-some-host",
    "other_work": 0.02,
}
TABLE = "rung,model,scheme,nodes,iteration_seconds,iteration_seconds_low,note\n"
TIMED = "emulated,googlenet,wfbp,4,0.421,,\nmeasured,googlenet,wfbp,2,0.5,0.4,two ranks\n"
UNTIMED = "emulated,googlenet,wfbp,2,,,no such emulated launch in this configuration\n"
DISPLAY = "Times\n\n| scheme | ms |\n|:--|--:|\n| WFBP | 421 |\n"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def verdict(claim: str, rung: str, kind: str) -> Verdict:
    compared = (Compared("speedup >= 1.2", "", (1.3, 1.3), (1.2, 1.2)),)
    return Verdict("mgwfbp", claim, "Fig. 6", "it is fast", "fig6", rung, kind, "", True, compared=compared, margin=0.1)


def run(results: Path, job: str, **changes: object) -> None:
    folder = results / "runs" / "emulated" / job / "wfbp"
    folder.mkdir(parents=True)
    provenance = {key: value for key, value in {**PROVENANCE, **changes}.items() if value is not None}
    Result(rung="emulated", scheme="wfbp", model="googlenet", ranks=4, provenance=provenance).save(folder)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two emulated launches of two days, a table of theirs and one that is simulated, and verdicts of two rungs."""
    folder = tmp_path / "results"
    run(folder, "googlenet-4")
    run(folder, "googlenet-8", date="2026-11-26")
    tables = folder / "tables" / "mgwfbp"
    tables.mkdir(parents=True)
    (tables / "fig6.csv").write_text(f"{TABLE}simulated,googlenet,wfbp,4,0.4,,\n{TIMED}{UNTIMED}")
    (tables / "fig6.md").write_text(DISPLAY)
    (tables / "gap.csv").write_text(f"{TABLE}simulated,googlenet,wfbp,4,0.4,,\n{UNTIMED}")
    (tables / "gap.md").write_text(DISPLAY)
    ledger = [
        verdict("fig6-order", "emulated", CONFIRMED),
        verdict("fig6-over-wfbp", "emulated", REFUTED),
        verdict("fig6-ps", "emulated", UNDECIDED),
        verdict("fig6-order", "simulated", CONFIRMED),
    ]
    (folder / "claims.json").write_text(claims.ledger_json(ledger, Origin("2026-11-26T12:00:00+00:00", COMMIT)))
    return folder


def publish(results: Path, output: Path) -> publication.Entry:
    publication.publish(CONFIG, results, "emulated", output)
    return publication.load(output)


def test_an_entry_has_the_timed_rows_and_where_they_come_from(results, tmp_path):
    entry = publish(results, tmp_path / "published" / "emulated")
    assert entry.provenance.model_dump() == {
        "version": 1,
        "configuration": "emulated",
        "config": CONFIG,
        "command": f"snakemake --cores 2 --configfile {CONFIG}",
        "commits": [COMMIT],
        "decided_by": COMMIT,
        "first": "2026-11-25",
        "last": "2026-11-26",
        "machines": ["2 cores of Intel(R) Xeon(R) Processor, Linux 6.18"],
        "runs": 2,
        "rungs": ["emulated"],
    }
    assert [(each.claim, each.verdict) for each in entry.verdicts] == [
        ("fig6-order", CONFIRMED),
        ("fig6-over-wfbp", REFUTED),
    ]
    (table,) = entry.tables
    assert (table.paper, table.id, table.rungs) == ("mgwfbp", "fig6", ("emulated", "measured"))
    assert table.written.with_suffix(".csv").read_text() == TABLE + TIMED
    assert table.written.read_text() == DISPLAY
    assert (entry.folder / "configuration.yaml").read_text() == Path(CONFIG).read_text()
    written = "".join(path.read_text() for path in entry.folder.rglob("*") if path.is_file())
    assert str(tmp_path) not in written
    assert "of-some-host" not in written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": f"{COMMIT}-dirty"}, "runs/emulated/more: it was made with uncommitted changes: delete the folder"),
        ({"code": ""}, "runs/emulated/more: the commit that it was made with is not known"),
        ({"code": None}, "runs/emulated/more: the commit that it was made with is not known"),
        ({"date": None}, "runs/emulated/more: the day of the run is not known"),
        ({"other_work": 0.11}, "runs/emulated/more: timed while other work took more than 10% of the cores"),
    ],
)
def test_what_others_could_not_check_is_refused(results, tmp_path, changes, message):
    run(results, "more", **changes)
    with pytest.raises(InputError, match="they can't be published") as error:
        publish(results, tmp_path / "entry")
    assert message in str(error.value)
    assert not (tmp_path / "entry").exists()


def test_verdicts_of_a_changed_checkout_loaded_profiles_and_untimed_results_are_refused(results, tmp_path):
    (results / "claims.json").write_text(claims.ledger_json([], Origin("2026-11-26T12:00:00+00:00", "a-dirty")))
    (results / "profile" / "network").mkdir(parents=True)
    (results / "profile" / "network" / "allreduce.csv").write_text("# other_work: 0.5\nbytes,seconds\n1,1\n")
    for file in results.rglob("result.json"):
        file.unlink()
    with pytest.raises(InputError) as error:
        publish(results, tmp_path / "entry")
    assert "allreduce.csv: timed while other work took 50%" in str(error.value)
    assert "claims.json: it was made with uncommitted changes" in str(error.value)
    assert "nothing in them was timed" in str(error.value)


def test_a_later_entry_replaces_an_earlier_one_and_nothing_else(results, tmp_path):
    output = tmp_path / "entry"
    publish(results, output)
    (output / "tables" / "mgwfbp" / "old.csv").write_text(TABLE + TIMED)
    assert [table.id for table in publish(results, output).tables] == ["fig6"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("all of it")
    with pytest.raises(InputError, match="no entry of published results"):
        publish(results, other)
    assert os.listdir(other) == ["thesis.tex"]
    assert sorted(os.listdir(tmp_path)) == ["entry", "mine", "results"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "entry.yaml",
            "version: 1",
            "version: 2",
            "version 2; this gradsync reads version 1",
        ),
        ("entry.yaml", "runs: 2", "runs: two", "runs"),
        ("entry.yaml", "first:", "came:", "came"),
        ("tables/mgwfbp/fig6.csv", "measured", "simulated", "rows that were not timed"),
        ("tables/mgwfbp/fig6.csv", "0.5,0.4,", ",,", "rows that were not timed"),
    ],
)
def test_an_entry_that_is_none_is_refused_by_its_name(results, tmp_path, file, old, new, message):
    path = publish(results, tmp_path / "entry").folder / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        publication.load(tmp_path / "entry")
    assert str(path) in str(error.value)


def test_the_report_shows_entries_beside_the_run_and_counts_none(results, tmp_path):
    """The run at hand decided one of their claims itself; it has no emulated row."""
    folder = tmp_path / "config"
    publish(results, folder / publication.FOLDER / "emulated")
    here = tmp_path / "here"
    (here / "tables" / "mgwfbp").mkdir(parents=True)
    (here / "tables" / "mgwfbp" / "fig6.csv").write_text(f"{TABLE}measured,googlenet,wfbp,2,0.6,,\n{UNTIMED}")
    (here / "claims.json").write_text(
        claims.ledger_json(
            [verdict("fig6-order", "emulated", REFUTED), verdict("fig6-over-wfbp", "emulated", UNDECIDED)]
        )
    )
    write("config/quick.yaml", parse(), here, folder)
    page, ledger, index = (
        " ".join(re.sub(r"<[^>]+>", " ", (here / "site" / f"{name}.html").read_text()).split())
        for name in ("mgwfbp", "ledger", "index")
    )
    assert f"Not run here (emulated); on 2026-11-25 to 2026-11-26 {CONFIG} gave this" in page
    assert "2 cores of Intel(R) Xeon(R) Processor, Linux 6.18. Commit 0123456789ab" in page
    assert "WFBP 421" in page
    assert "not decided here; on 2026-11-25 to 2026-11-26 emulated gave 1.3 (+8.3 %) refuted" in ledger
    assert ledger.count("not decided here") == 1
    assert "MG-WFBP 2 0 1 0 0 1" in index  # claims; confirmed, refuted, no counterexample, void, open
    assert "emulated 2026-11-25 to 2026-11-26 emulated 2 2 2 cores of" in index


def test_the_command_publishes_into_the_folder_of_configurations(results, tmp_path, monkeypatch, capsys):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "long.yaml").write_text("version: 1\nname: long\npapers: {}\n")
    for name in ("schemes.yaml", "peers.yaml"):
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["publish", "--config", "config/long.yaml", "--results", str(results)]) == 0
    assert "published: config/published-results/long" in capsys.readouterr().out
    assert [entry.name for entry in publication.entries(Path("config/published-results"))] == ["long"]
    assert cli.main(["publish", "--config", "config/long.yaml", "--results", "nowhere"]) == 2


def test_every_entry_of_the_checkout_can_be_read_and_is_of_a_configuration_that_is_there():
    for entry in publication.entries(ROOT / "config" / publication.FOLDER):
        assert Path(entry.provenance.config).is_file(), entry.name
        assert entry.tables, entry.name
