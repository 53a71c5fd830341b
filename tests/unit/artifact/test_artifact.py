"""The archive of results: the same bytes each time, what it promises, and runs that are held against it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path, PurePath

import pytest

from configurations import parse
from gradsync import artifact, claims, cli
from gradsync.artifact import archive
from gradsync.artifact.check import MORE, NOTHING, TIMES
from gradsync.artifact.promises import IDENTICAL, RUNS, TIMING, TOLERANCE, Promises
from gradsync.claims import CONFIRMED, REFUTED, Origin, Verdict
from gradsync.errors import InputError
from gradsync.files.results import Result

ROOT = Path(__file__).parents[3]
CONFIG = "config/quick.yaml"
COMMIT = "0123456789ab"
BLOCKS = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]
TABLES = {
    "bml_bcube/switches": "rung,ports,seconds_samples\nderived,48,[1.0]\n",  # nothing timed goes into it
    "mgwfbp/table2": "rung,algorithm,seconds\nderived,ring,0.25\nsimulated,ring,0.5\n",
    # the first row predicts a launch, by what was measured before it
    "mgwfbp/training": "rung,scheme,launch,iteration_seconds\nsimulated,wfbp,net-2,0.2\nmeasured,wfbp,net-2,0.1\n",
    "mgwfbp/fig6": "rung,scheme,launch,iteration_seconds\nsimulated,wfbp,,0.75\nmeasured,wfbp,net-2,0.1\n",
}


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def verdict(claim: str, table: str, rung: str, kind: str = CONFIRMED) -> Verdict:
    return Verdict("mgwfbp", claim, "Fig. 1", "it is fast", table, rung, kind, "", True)


LEDGER = (verdict("in-table", "table2", "simulated"), verdict("is-fast", "training", "measured"))


def results(folder: Path, seconds: float = 0.1, parameters: str = "w1") -> Path:
    """Those of one run: its times are multiples of `seconds`."""
    for name, text in TABLES.items():
        for ending, content in ((".csv", text), (".md", f"of {seconds}")):
            path = folder / "tables" / f"{name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content.replace("net-2,0.1", f"net-2,{seconds}"))
    run = Result(
        rung="measured",
        scheme="wfbp",
        model="lenet5",
        ranks=2,
        settings={"plan": "p1"},
        samples={"iteration_seconds": [seconds * block for block in BLOCKS]},
        conformance={"parameters_sha256": parameters},
    )
    run.save(folder / "runs" / "train" / "lenet5-2" / "wfbp")
    files = {
        "counted/lenet5/workload.json": '{"layers": [1, 2]}',
        "figures/mgwfbp/gap.csv": "x\n1\n",
        "profile/network/allreduce.csv": "bytes,seconds\n8,1.0\n",
        "logs/claims.log": "done",
        "site/index.html": "<html>",
        "tracked.json": "{}",
        "claims.json": claims.ledger_json(LEDGER, Origin("2026-11-25T12:00:00+00:00", COMMIT)),
        "claims.md": "claims",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, made once: papers are asked what each table is made of."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        artifact.write(CONFIG, parse(), results(folder / "first"), folder / "a.tar.gz")
    return folder / "a.tar.gz"


@pytest.fixture
def packed(tmp_path: Path, once: Path) -> Path:
    """A copy of it beside the results that it is of."""
    results(tmp_path / "first")
    return shutil.copy(once, tmp_path / "a.tar.gz")


def test_the_same_results_give_the_same_bytes(tmp_path, packed):
    artifact.write(CONFIG, parse(), results(tmp_path / "again" / "first"), tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_bytes() == packed.read_bytes()


def test_it_holds_results_environment_configuration_and_what_each_file_promises(packed, once):
    listed, files = archive.read(packed)
    assert (listed.code, listed.configuration, listed.made) == (COMMIT, "quick", "2026-11-25T12:00:00+00:00")
    promised = {each.path: each.promise for each in listed.files}
    assert promised["results/counted/lenet5/workload.json"] == IDENTICAL
    assert promised["results/tables/bml_bcube/switches.csv"] == IDENTICAL
    assert promised["results/tables/mgwfbp/table2.csv"] == TOLERANCE
    assert promised["results/tables/mgwfbp/training.csv"] == RUNS
    assert promised["results/runs/train/lenet5-2/wfbp/result.json"] == TIMING
    assert {"results/site/index.html", "results/tracked.json"}.isdisjoint(promised)
    assert {"checkout/config/quick.yaml", "checkout/envs/constraints.txt", "checkout/CITATION.cff"} <= {*promised}
    assert f"pytest=={pytest.__version__}" in files["environment/installed.txt"].decode().splitlines()
    assert str(once.parent) not in "".join(content.decode() for content in files.values())


def test_large_traces_are_left_out_by_name_and_tables_never(tmp_path):
    first = results(tmp_path / "first")
    (first / "runs/train/lenet5-2/wfbp/trace.json").write_bytes(b" " * (archive.MOST_BYTES + 1))
    (first / "tables/mgwfbp/gap.csv").write_bytes(b"a\n" * archive.MOST_BYTES)
    told = artifact.write(CONFIG, parse(), first, tmp_path / "a.tar.gz")
    assert told["left_out"] == ["runs/train/lenet5-2/wfbp/trace.json"]


def test_a_run_of_the_same_commit_differs_in_timing_only(tmp_path, packed, capsys):
    told = artifact.check(packed, results(tmp_path / "second", seconds=0.3))
    assert (told["what_differs"], told["unexplained"]) == (TIMES, [])
    assert told["commits"] == [COMMIT, COMMIT]
    assert told["promised"][IDENTICAL] == 3  # counts, and a table in two forms
    assert artifact.check(packed, tmp_path / "first")["what_differs"] == NOTHING
    assert cli.main(["compare", str(packed), str(tmp_path / "second")]) == 0
    assert "what_differs: timing only" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "wanted"),
    [
        ("counted/lenet5/workload.json", "[1, 2]", "[1, 3]", "counted/lenet5/workload.json: its content"),
        ("tables/bml_bcube/switches.csv", "[1.0]", "[1.0000001]", "switches.csv: row 1, seconds_samples"),
        ("tables/mgwfbp/table2.csv", "ring,0.5", "ring,0.5001", "table2.csv: row 2, seconds (0.5 and 0.5001)"),
        ("tables/mgwfbp/table2.csv", "derived", "simulated", "table2.csv: row 1, rung"),
        ("tables/mgwfbp/fig6.csv", ",,0.75", ",,0.76", "fig6.csv: row 1, iteration_seconds (0.75 and 0.76) is another"),
        ("tables/mgwfbp/fig6.csv", "measured,wfbp", "measured,single", "1 and 0 rows of rung measured, scheme wfbp"),
        ("claims.json", "", "", "verdict on mgwfbp: in-table (simulated): confirmed and refuted"),
        ("runs/train/lenet5-2/wfbp/result.json", '"w1"', '"w2"', "other parameters after training by the same plan"),
    ],
)
def test_what_breaks_a_promise_is_named_and_ends_with_1(tmp_path, packed, capsys, file, old, new, wanted):
    second = results(tmp_path / "second", seconds=0.3)
    path = second / file
    if file == "claims.json":
        path.write_text(claims.ledger_json([verdict("in-table", "table2", "simulated", REFUTED), LEDGER[1]]))
    else:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    told = artifact.check(packed, second)
    assert told["what_differs"] == MORE
    (difference,) = told["unexplained"]
    assert wanted in difference
    assert cli.main(["compare", str(packed), str(second), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == told


def test_an_archive_in_the_second_place_is_refused_with_the_right_order(tmp_path, packed, capsys):
    first = tmp_path / "first"
    for command, right in (((first, packed), f"{packed} {first}"), ((packed, packed), f"{packed} the folder that")):
        assert cli.main(["compare", *map(str, command)]) == 2
        assert f"in this order: gradsync compare {right}" in capsys.readouterr().err


def test_rounding_and_verdicts_on_what_was_timed_are_no_broken_promise(tmp_path, packed):
    second = results(tmp_path / "second")
    table = second / "tables/mgwfbp/table2.csv"
    table.write_text(table.read_text().replace("ring,0.5", "ring,0.50000001"))
    (second / "claims.json").write_text(
        claims.ledger_json([LEDGER[0], verdict("is-fast", "training", "measured", REFUTED)])
    )
    told = artifact.check(packed, second)
    assert (told["what_differs"], [each["claim"] for each in told["verdicts"]]) == (TIMES, ["mgwfbp: is-fast"])


def test_a_missing_file_is_named_once_whatever_was_promised_of_it(tmp_path, packed):
    second = results(tmp_path / "second")
    shutil.rmtree(second / "counted")
    shutil.rmtree(second / "logs")  # which jobs have written since depends on what was there before
    (second / "tables/mgwfbp/table2.csv").unlink()
    (second / "tables/mgwfbp/training.md").unlink()
    (second / "profile/network/allreduce.csv").unlink()
    told = artifact.check(packed, second)
    assert told["what_differs"] == MORE
    assert told["unexplained"] == [
        f"tables/mgwfbp/table2.csv: only in {packed}",
        "counted/lenet5/workload.json: it is missing, and was promised to be identical",
        f"profile/network/allreduce.csv: only in {packed}",
        f"tables/mgwfbp/training.md: only in {packed}",
    ]


def test_a_file_that_only_the_run_has_is_named_and_one_that_was_too_large_is_not(tmp_path):
    first = results(tmp_path / "first")
    (first / "runs/train/lenet5-2/wfbp/trace.json").write_bytes(b" " * (archive.MOST_BYTES + 1))
    artifact.write(CONFIG, parse(), first, tmp_path / "a.tar.gz")
    for name in ("figures/mgwfbp/more.csv", "notes.txt", "tracked.json"):
        (first / name).write_text("x")
    assert artifact.check(tmp_path / "a.tar.gz", first)["unexplained"] == [f"figures/mgwfbp/more.csv: only in {first}"]


def test_predictions_of_launches_follow_what_was_measured(tmp_path, packed):
    second = results(tmp_path / "second")
    table = second / "tables/mgwfbp/training.csv"
    table.write_text(table.read_text().replace("net-2,0.2", "net-2,0.3"))
    told = artifact.check(packed, second)
    assert (told["what_differs"], [*told["simulated_otherwise"]]) == (TIMES, ["tables/mgwfbp/training.csv"])


@pytest.mark.parametrize("whose", ["archive", "run"])
def test_a_broken_file_is_named_by_its_place(tmp_path, capsys, whose):
    """Of the archive by its member, and never by the folder that it was unpacked into."""
    for name, text, wanted in (
        ("counted/lenet5/workload.json", '{"layers"', "not JSON"),
        ("claims.json", '{"version": 2, "verdicts": [1]}', "run gradsync claims again"),
    ):
        first, second = results(tmp_path / "first"), results(tmp_path / "second")
        broken, path = (first if whose == "archive" else second), tmp_path / "a.tar.gz"
        artifact.write(CONFIG, parse(), first, path)
        (broken / name).write_text(text)
        if whose == "archive":
            repacked(path, {f"results/{name}": text.encode()})
        assert cli.main(["compare", str(path), str(second)]) == 2
        said = capsys.readouterr().err
        assert wanted in said
        assert (f"{path}, results/{name}" if whose == "archive" else f"{second}/{name}") in said


def repacked(path: Path, contents: dict[str, bytes]) -> None:
    """Pack an archive again with other contents, which its manifest knows of."""
    listed, files = archive.read(path)
    files |= contents
    for each in listed.files:
        each.bytes, each.sha256 = len(files[each.path]), hashlib.sha256(files[each.path]).hexdigest()
    changed(path, "MANIFEST.json", listed.model_dump_json().encode())
    for name, content in contents.items():
        changed(path, name, content)


def changed(path: Path, name: str, content: bytes | None) -> None:
    """Pack an archive again with one file changed, or left out."""
    with tarfile.open(path) as old:
        files = {each.name: old.extractfile(each).read() for each in old}
    (key,) = [each for each in files if each.endswith(f"/{name}")] or [name]
    files.pop(key, None)
    with tarfile.open(path, "w:gz") as new:
        for each, data in {**files, **({} if content is None else {key: content})}.items():
            member = tarfile.TarInfo(each)
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("claims.md", b"changed", "results/claims.md' is not what the manifest says"),
        ("claims.md", None, "results/claims.md' is not what the manifest says"),
        ("gradsync-quick/more.txt", b"", "more.txt' is not what the manifest says"),
        ("MANIFEST.json", None, "it has no MANIFEST.json"),
        ("MANIFEST.json", b'{"version": 1}', "version 1; this gradsync reads version 2"),
        ("MANIFEST.json", b'{"version": 2}', "not a manifest"),
        ("gradsync-quick/results/claims.md/more", b"", "results/claims.md/more' lies in what is a file"),
        ("other/results/claims.md", b"claims", "results/claims.md' is there twice"),
        ("gradsync-quick/" + "x" * 300, b"", "and 255 of each folder and name"),
        ("gradsync-quick/../../evil", b"", "is no file of an archive of gradsync"),
        ("/etc/evil", b"", "is no file of an archive of gradsync"),
    ],
)
def test_an_archive_that_is_not_as_it_was_written_is_refused(packed, capsys, name, content, message):
    changed(packed, name, content)
    with pytest.raises(InputError, match=message) as error:
        archive.read(packed)
    assert str(packed) in str(error.value)
    assert cli.main(["compare", str(packed), str(packed.parent / "first")]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("cut", [0, 40, 2000])
def test_half_an_archive_is_refused(packed, cut):
    packed.write_bytes(packed.read_bytes()[:cut])
    with pytest.raises(InputError, match="can't be read"):
        archive.read(packed)


def test_members_that_no_archive_of_ours_has_are_refused(tmp_path, monkeypatch):
    """A size below zero, names that are longer than all files together."""
    monkeypatch.setattr(archive, "MOST_UNPACKED", 1 << 20)
    for name, size, wanted in (("a/" + "x" * (2 << 20), 0, "more than 1 MiB unpacked"), ("a/x", -512, "is no file of")):
        member = tarfile.TarInfo(name)
        member.size = size
        content = member.tobuf(tarfile.GNU_FORMAT)
        path = tmp_path / "odd.tar.gz"
        path.write_bytes(gzip.compress(content + bytes(1024)))
        with pytest.raises(InputError, match=wanted):
            archive.read(path)


def test_results_of_another_configuration_are_not_packed(tmp_path, capsys):
    first = results(tmp_path / "first")
    command = ["artifact", "--results", str(first), "--output", str(tmp_path / "a.tar.gz")]
    assert cli.main([*command, "--config", "config/emulated.yaml"]) == 2
    assert "runs/train/lenet5-2 is no launch of it" in capsys.readouterr().err
    shutil.rmtree(first / "runs")
    (first / "claims.json").write_text(claims.ledger_json(LEDGER, Origin("", COMMIT, "emulated")))
    assert cli.main(command) == 2
    assert "claims.json was decided for emulated" in capsys.readouterr().err
    assert not (tmp_path / "a.tar.gz").exists()


def test_a_run_of_another_configuration_is_not_held_against_an_archive(tmp_path, packed):
    (tmp_path / "first/claims.json").write_text(claims.ledger_json(LEDGER, Origin("", COMMIT, "measured")))
    with pytest.raises(InputError, match=r"those of the configuration measured, and .*a\.tar\.gz is of quick"):
        artifact.check(packed, tmp_path / "first")


def test_links_among_results_are_refused(tmp_path):
    first = results(tmp_path / "first")
    (first / "runs/more").symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"runs/more: it is a link, and an archive holds files alone"):
        artifact.write(CONFIG, parse(), first, tmp_path / "a.tar.gz")


def test_promises_follow_from_what_tables_and_figures_are_made_of(tmp_path):
    promises = Promises(parse(), results(tmp_path / "first"))
    assert promises.of(PurePath("tables/mgwfbp/gap.csv")) == TIMING  # layers of ResNet-50 are measured
    assert promises.of(PurePath("figures/mgwfbp/fig1.svg")) == TOLERANCE
    assert promises.of(PurePath("figures/mgwfbp/gap.svg")) == TIMING
    assert promises.of(PurePath("plans/lenet5-2/wfbp.json")) == TIMING


def test_the_command_writes_the_archive_and_says_where(tmp_path, capsys):
    first = results(tmp_path / "first")
    command = ["artifact", "--config", CONFIG, "--results", str(first), "--output", str(tmp_path / "a.tar.gz")]
    assert cli.main(command) == 0
    assert f"artifact: {tmp_path}/a.tar.gz" in capsys.readouterr().out
    (first / "claims.json").unlink()
    assert cli.main(command) == 2
