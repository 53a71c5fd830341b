"""Published results: made from clean, quiet, timed runs and no others, read again, shown and not counted."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from configurations import parse
from gradsync import claims, cli, publication
from gradsync.claims import CONFIRMED, REFUTED, UNDECIDED, Compared, Origin, Verdict
from gradsync.configuration import settings
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.publication import replace, whose
from gradsync.site.write import write
from small_disk import mounted

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
    ranks = int(job.split("-")[1])
    Result(rung="emulated", scheme="wfbp", model="googlenet", ranks=ranks, provenance=provenance).save(folder)


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
    publication.publish(CONFIG, settings.load(CONFIG), results, output)
    return publication.load(output)


def test_an_entry_has_the_timed_rows_and_where_they_come_from(results, tmp_path):
    entry = publish(results, tmp_path / "published" / "emulated")
    provenance = entry.provenance.model_dump()
    assert provenance.pop("files").keys() == {
        *("claims.json", "configuration.yaml", "tables/mgwfbp/fig6.csv", "tables/mgwfbp/fig6.md"),
    }
    assert provenance == {
        "version": 2,
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
        (
            {"code": f"{COMMIT}-dirty"},
            "runs/emulated/resnet50-4: it was made with uncommitted changes: delete the folder",
        ),
        ({"code": ""}, "runs/emulated/resnet50-4: the commit that it was made with is not known"),
        ({"code": None}, "runs/emulated/resnet50-4: the commit that it was made with is not known"),
        ({"date": None}, "runs/emulated/resnet50-4: the day of the run is not known"),
        ({"other_work": None}, "runs/emulated/resnet50-4: whether other work ran on the cores meanwhile is not known"),
        ({"other_work": 0.11}, "runs/emulated/resnet50-4: timed while other work took more than 10% of the cores"),
    ],
)
def test_what_others_could_not_check_is_refused(results, tmp_path, changes, message):
    run(results, "resnet50-4", **changes)
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
    earlier = results / "tables" / "mgwfbp" / "fig6"
    for ending in (".csv", ".md"):
        earlier.with_suffix(ending).rename(earlier.with_name(f"fig7{ending}"))
    assert [table.id for table in publish(results, output).tables] == ["fig7"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").write_text("all of it")
    with pytest.raises(InputError, match="no entry of published results"):
        publish(results, other)
    assert os.listdir(other) == ["thesis.tex"]
    assert sorted(os.listdir(tmp_path)) == ["entry", "mine", "results"]


@pytest.mark.parametrize("exchanged", [True, False], ids=["at once", "one after the other"])
def test_an_entry_comes_whole_or_not_at_all(results, tmp_path, monkeypatch, exchanged):
    output = tmp_path / "entry"
    before = publish(results, output)
    (results / "tables" / "mgwfbp" / "fig6.md").write_text("a later run")
    if not exchanged:
        monkeypatch.setattr(replace, "_exchanged", lambda one, other: False)
        rename = Path.rename

        def refused(self: Path, target: Path) -> Path:
            if self.name == "entry" and self.parent != tmp_path:
                raise PermissionError(errno.EACCES, "refused")
            return rename(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refused)
            with pytest.raises(InputError, match=f"{output}: can't be written: you may not write"):
                publish(results, output)
        assert publication.load(output) == before
    publish(results, output)
    assert (output / "tables" / "mgwfbp" / "fig6.md").read_text() == "a later run"
    assert sorted(os.listdir(tmp_path)) == ["entry", "results"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.md", "notes.md: not as an earlier"),
        ("tables/mgwfbp/fig6.md", "fig6.md: not as an earlier"),
        ("tables/mgwfbp/link.csv", "link.csv: not as an earlier"),
        ("entry.yaml", "move the folder away"),
    ],
)
def test_what_publishing_did_not_make_stays_as_it_is(results, tmp_path, name, message):
    output = tmp_path / "entry"
    publish(results, output)
    path = output / name
    if "link" in name:
        path.symlink_to(results / "tables" / "mgwfbp" / "fig6.csv")
    else:
        path.write_text("version: 1")
    before = {file: file.read_text() for file in output.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=message) as error:
        publish(results, output)
    assert str(output) in str(error.value)
    assert {file: file.read_text() for file in output.rglob("*") if file.is_file()} == before


def test_a_link_and_a_folder_below_a_file_are_no_place_of_an_entry(results, tmp_path):
    publish(results, tmp_path / "entry")
    (tmp_path / "link").symlink_to(tmp_path / "entry")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for name, message in (
        ("link", "link: it is a link, to .*entry"),
        ("broken", "broken: it is a link, to .*nothing"),
        ("file", "file: it is no entry of published results"),
        ("file/entry", "file: can't be made: something on its way is a file"),
    ):
        with pytest.raises(InputError, match=f"{tmp_path}/{message}"):
            publish(results, tmp_path / name)
    assert (tmp_path / "link").is_symlink()


def test_a_read_only_place_is_told(results, tmp_path):
    with mounted(tmp_path / "small", 1 << 20) as small:
        publish(results, small / "entry")
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        with pytest.raises(InputError, match="is on a read-only file system"):
            publish(results, small / "entry")
        assert publication.load(small / "entry").tables


def test_results_of_another_configuration_are_refused_by_what_they_record(results, tmp_path):
    """By the launches that ran, by their settings, and by the configuration that the claims were decided for."""
    with pytest.raises(
        InputError, match=r"not those of the configuration quick: .*googlenet-4 is no launch of it"
    ) as error:
        publication.publish("config/quick.yaml", settings.load("config/quick.yaml"), results, tmp_path / "entry")
    assert str(results) in str(error.value)
    emulated = settings.load(CONFIG)
    fewer = emulated.model_copy(
        update={"emulated": [each.model_copy(update={"ranks": 3, "name": ""}) for each in emulated.emulated]}
    )
    launch = fewer.emulated[0]
    folder = results / "runs" / "emulated" / launch.job / "wfbp"
    Result(rung="emulated", scheme="wfbp", model="googlenet", ranks=3, settings={"iterations": 7}).save(folder)
    with pytest.raises(InputError, match=rf"{launch.job} ran with iterations 7, and it has {launch.iterations}"):
        whose.refuse_others(fewer, results, Origin(), [run for run in whose.runs(results) if launch.job in run.where])
    (results / "claims.json").write_text(claims.ledger_json([], Origin("", COMMIT, "overlap")))
    with pytest.raises(InputError, match=r"claims\.json was decided for overlap"):
        publish(results, tmp_path / "entry")
    assert not (tmp_path / "entry").exists()


def test_profiles_of_which_nobody_knows_whether_the_machine_was_quiet_are_told(results, tmp_path):
    network = results / "profile" / "network"
    network.mkdir(parents=True)
    (network / "allreduce.csv").write_text("# other_work: 0.05\nbytes,seconds\n1,1\n")
    (network / "short.csv").write_text("bytes,seconds\n1,1\n")
    (network / "short.json").write_text('{"provenance": {"cores": 2}}')
    told = publication.publish(CONFIG, settings.load(CONFIG), results, tmp_path / "entry")
    assert told["unwatched"] == ["profile/network/short.csv", "profile/network/short.json"]


def test_cores_that_are_no_number_are_no_traceback(results, tmp_path):
    run(results, "resnet50-4", cores="many", nodes=None)
    assert publish(results, tmp_path / "entry").provenance.runs == 3


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "entry.yaml",
            "version: 2",
            "version: 1",
            "version 1; this gradsync reads version 2",
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
    for path in (ROOT / "config").iterdir():
        if path.name not in (publication.FOLDER, "emulated.yaml"):
            (tmp_path / "config" / path.name).symlink_to(path)
    long = (ROOT / CONFIG).read_text().replace("name: emulated", "name: long")
    (tmp_path / "config" / "long.yaml").write_text(long)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["publish", "--config", "config/long.yaml", "--results", str(results)]) == 0
    assert "published: config/published-results/long" in capsys.readouterr().out
    assert [entry.name for entry in publication.entries(Path("config/published-results"))] == ["long"]
    assert cli.main(["publish", "--config", "config/long.yaml", "--results", "nowhere"]) == 2
    assert cli.main(["publish", "--config", "config/quick.yaml", "--results", str(results)]) == 2
    assert "not those of the configuration quick" in capsys.readouterr().err


def test_every_entry_of_the_checkout_can_be_read_and_is_of_a_configuration_that_is_there():
    for entry in publication.entries(ROOT / "config" / publication.FOLDER):
        assert Path(entry.provenance.config).is_file(), entry.name
        assert entry.tables, entry.name
