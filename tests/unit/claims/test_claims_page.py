"""The page of claims: counted and listed by claim; undecided ones last, with commands that would decide them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradsync import claims
from gradsync.claims import CONFIRMED, CONSTRUCTED, REFUTED, UNDECIDED, Remedies, Remedy, Verdict, published
from gradsync.configuration import settings
from gradsync.configuration.settings import Settings
from gradsync.papers import coverage
from gradsync.papers.ascwfbp import testbed as asc_testbed
from gradsync.papers.ascwfbp import timed_runs
from gradsync.papers.bml_bcube import completion
from gradsync.papers.bml_bcube import testbed as bml_testbed
from gradsync.papers.emulated import NO_LAUNCH
from gradsync.papers.mgwfbp import speedups

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = ("quick", "emulated", "bcube", "simultaneous", "full", "one_gpu")
WHY = "made impossible"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def judged(
    claim: str, rung: str, verdict: str, margin: float | None = None, reason: str = "", **more: object
) -> Verdict:
    fields = {"paper": "p", "place": "Fig. 1", "text": "a | b", "table": "t", "counted": verdict != CONSTRUCTED, **more}
    return Verdict(claim=claim, rung=rung, verdict=verdict, margin=margin, reason=reason, **fields)  # type: ignore[arg-type]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    part = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")] for line in lines[2:]]


# What the page has on each claim


def test_a_claim_is_one_line_with_all_its_rungs_and_counts_once() -> None:
    verdicts = [
        judged("a", "simulated", CONFIRMED, 0.25, "holds at 2 of 2 points", note="a remark"),
        judged("a", "measured", UNDECIDED, None, "nothing ran"),
        judged("b", "simulated", CONSTRUCTED, 0.0, note="a remark"),
        judged("b", "emulated", REFUTED, -0.5),
        judged("c", "measured", UNDECIDED, None, "nothing ran"),
    ]
    text = claims.page(verdicts)
    assert text.split("\n\n")[0].splitlines() == [
        "3 claims of the paper.",
        "2 are decided here: confirmed 1, refuted 1.",
        "1 is decided on no rung here: last table of the page.",
        "1 is decided on several rungs, which disagree on 1 (b).",
    ]
    assert "| claim | place | what the paper says | simulated | emulated | values and reason |" in text  # no measured
    a, b = rows(text, "p: decided")
    assert a == ["[`a`](tables/p/t.csv)", "Fig. 1", "a / b", "**confirmed** +25.0 %", "", "holds at 2 of 2 points"]
    assert b[3:] == ["by construction", "**refuted** -50.0 %", "RUNGS DISAGREE; emulated:"]
    assert "- `a`, `b`: a remark" in text
    assert text.index("## p: decided") < text.index("## Not decided here")
    # bold: on no rung
    assert rows(text, "Not decided here") == [["measured: nothing ran", "p: `a`, **`c`**", ""]]
    assert claims.counts(claims.by_claim(verdicts))[UNDECIDED] == 1


def test_what_proves_nothing_stands_last_and_speaks_for_no_claim_that_another_rung_decides() -> None:
    verdicts = [
        judged("a", "simulated", CONSTRUCTED, 0.0),
        judged("b", "simulated", CONFIRMED, 12.345),
        judged("c", "measured", claims.HOLDS_AS_CHANGED, 0.1, counted=False),
        judged("c", "derived", REFUTED, -0.0001),
    ]
    assert [each.kind for each in claims.by_claim(verdicts)] == [CONSTRUCTED, CONFIRMED, REFUTED]
    cells = rows(claims.page(verdicts), "p: decided")
    assert [row[0].split("`")[1] for row in cells] == ["b", "c", "a"]
    assert cells[0][4] == "**confirmed** +1234 %"
    assert cells[1][3:6] == ["**refuted** 0.0 %", "", "holds, changed +10.0 %"]


def test_where_everything_or_nothing_is_decided_there_is_one_table() -> None:
    assert "Not decided here" not in claims.page([judged("a", "derived", CONFIRMED, 0.1)])
    text = claims.page([judged("a", "derived", UNDECIDED)])
    assert "decided\n\n| claim" not in text
    assert "0 are decided here." in text


def test_several_papers_are_counted_one_by_one() -> None:
    other = judged("a", "derived", REFUTED, -0.1, paper="q")
    lines = claims.page([judged("a", "derived", CONFIRMED, 0.1), other]).splitlines()
    assert lines[0] == "2 claims of the papers."
    assert "| p | 1 | 1 | 0 |" in lines
    assert "| q | 1 | 0 | 1 |" in lines


def test_one_reason_and_remedy_are_one_line_with_all_that_would_have_to_be_added() -> None:
    verdicts = [judged(name, "measured", UNDECIDED, holds=1, points=4) for name in ("a", "b")]
    text = claims.page(verdicts, lambda verdict: Remedy("why", "`do`, a copy with", ("x", verdict.claim)))
    assert rows(text, "Not decided here") == [
        ["why", "p: **`a`** (1 of 4), **`b`** (1 of 4)", "`do`, a copy with: x; a; b"],
    ]


# What would decide the rest


@pytest.fixture(scope="module")
def checkout() -> dict[str, Settings]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return {f"config/{name}.yaml": settings.load(f"config/{name}.yaml") for name in CONFIGURATIONS}


@pytest.fixture(scope="module")
def papers() -> dict[str, published.Paper]:
    files = sorted((ROOT / "config" / "papers").glob("*/published.yaml"))
    return {file.parent.name: published.load(file) for file in files}


def remedy_of(
    checkout: dict, papers: dict, claim: str, rung: str, reason: str, config: str = "quick", **more: object
) -> Remedy:
    """The remedy of a verdict that decides nothing, for a reason as its table has it."""
    key = more.pop("paper", "mgwfbp")
    table = next(each.table for each in papers[key].claims if each.id == claim)
    known = {f"config/{config}.yaml": checkout[f"config/{config}.yaml"], **checkout}
    remedies = Remedies(f"config/{config}.yaml", known, papers.values())
    return remedies.remedy(
        judged(claim, rung, UNDECIDED, more.pop("margin", None), reason, paper=key, table=table, **more)
    )


@pytest.mark.parametrize(
    ("paper", "claim", "rung", "command"),
    [
        ("mgwfbp", "fig6-order", "emulated", "snakemake --cores 2 --configfile config/emulated.yaml"),
        ("mgwfbp", "fig5b-startup-8", "emulated", "snakemake --cores 2 --configfile config/emulated.yaml"),
        ("bml_bcube", "fig6-range", "emulated", "snakemake --cores 2 --configfile config/bcube.yaml"),
        # two repeats of ResNet-152 have no interval; DenseNet-201 runs longer, and on the paper's eight nodes
        ("ascwfbp", "table4-densenet201-over-wfbp", "emulated", "--configfile config/simultaneous.yaml"),
        ("ascwfbp", "table4-resnet152-over-wfbp", "emulated", "--configfile config/mine.yaml"),
        (
            "cloud_topk",
            "fig6-negligible",
            "measured",
            "on one GPU: `snakemake --cores 2 --configfile config/one_gpu.yaml`",
        ),
        ("ascwfbp", "table4-fastest", "measured", "snakemake --profile slurm --configfile config/full.yaml"),
        ("ascwfbp", "fig4a-affine", "measured", "snakemake --profile slurm --configfile config/full.yaml"),
        ("mgwfbp", "fig6-order", "measured", "snakemake --profile slurm --configfile config/full.yaml"),
        ("mgwfbp", "fig7-order", "measured", "snakemake --profile slurm --configfile config/full.yaml"),
        ("mgwfbp", "fig8-very-small", "measured", "snakemake --profile slurm --configfile config/full.yaml"),
        ("bml_bcube", "fig6-range", "measured", "no configuration does"),
        ("ascwfbp", "table5-mean", "measured", "no configuration does"),
    ],
)
def test_the_command_is_of_a_configuration_that_has_what_the_claim_asks_for(
    checkout, papers, paper, claim, rung, command
):
    assert command in remedy_of(checkout, papers, claim, rung, "nothing here", paper=paper).remedy


def test_where_no_configuration_has_it_the_launches_are_told_that_a_copy_would_need(checkout, papers):
    """NCCL has no parameter server: ranks on CPUs alone can run it."""
    remedy = remedy_of(checkout, papers, "fig6-ps", "measured", "no training of googlenet on 4 ranks")
    assert remedy.remedy.startswith("on 8 cores: `snakemake --cores 8 --configfile config/mine.yaml`, a copy of")
    assert set(remedy.add) >= {"googlenet on 4 nodes", "googlenet on 8 nodes"}


def test_a_launch_has_the_model_and_the_servers_of_its_table_though_no_claim_says_so(checkout, papers):
    claim = next(each.id for each in papers["bml_bcube"].claims if each.table == "fig7" and "batch" in each.check)
    remedy = remedy_of(checkout, papers, claim, "emulated", "no launch", paper="bml_bcube")
    assert remedy.add
    assert all("vgg19 on 9 nodes, batch" in each for each in remedy.add), remedy


def test_a_copy_of_short_launches_would_need_longer_ones(checkout, papers):
    remedy = remedy_of(
        checkout, papers, "table4-bert", "emulated", "no launch of bert_base on 8 nodes", paper="ascwfbp"
    )
    assert "a copy of `config/simultaneous.yaml` with" in remedy.remedy
    assert remedy.add[-1] == "`iterations` of at least 6 blocks"  # those there have two
    assert set(remedy.add[:-1]) >= {"bert_base on 8 nodes"}


def test_more_ranks_than_cores_need_a_larger_machine(checkout, papers):
    remedy = remedy_of(
        checkout, papers, "fig5b-startup-4", "measured", "4 ranks share 2 cores: not decidable on this machine"
    )
    assert remedy == Remedy(
        "measured: more ranks than this machine's 2 cores",
        "on 4 cores: `snakemake --cores 4 --configfile config/quick.yaml`",
    )


def test_one_seed_decides_nothing_on_more_cores_either(checkout, papers):
    """The quick configuration trains from one seed; what trains from six stops at a larger error than Table 3 has."""
    reason = "5 ranks share 2 cores: not decidable on this machine"
    remedy = remedy_of(checkout, papers, "table3-speedup", "measured", reason, paper="easgd_knl")
    assert "--configfile config/quick.yaml" not in remedy.remedy
    assert remedy.reason == "measured: not in this configuration, nor in any other here"


def test_photographs_are_for_the_user_to_give(checkout, papers):
    command = "on one GPU: `snakemake --cores 2 --configfile config/one_gpu.yaml` with"
    for config, reason in (("quick", "nothing here"), ("one_gpu", "no interval of io_seconds")):
        remedy = remedy_of(checkout, papers, "fig9-io", "measured", reason, config, paper="cloud_topk")
        assert (remedy.remedy, remedy.add) == (command, ("`loading.data_folder` on the storage in question",))


def test_what_no_training_here_tells_has_no_command(checkout, papers):
    remedy = remedy_of(checkout, papers, "table2-imagenet-order", "measured", "nothing", "quick", paper="cloud_topk")
    assert remedy == Remedy(
        "measured: accuracy on ImageNet is published as top-5, and here it is top-1", "no configuration does"
    )


def test_seeds_that_do_not_get_there_need_longer_trainings_and_no_more_cores(checkout, papers):
    reason = "3 of 6 seeds get to an accuracy of 0.97; 5 ranks share 2 cores: not decidable on this machine"
    known = {**checkout, "config/elastic.yaml": settings.load(ROOT / "config" / "elastic.yaml")}
    remedy = remedy_of(known, papers, "table3-speedup", "measured", reason, "elastic", paper="easgd_knl")
    assert remedy.add == ("more `iterations` of its launch, or other rates",)
    # one that trains from one seed is not made longer
    remedy = remedy_of(
        known, papers, "table3-speedup", "measured", reason.replace("3 of 6", "0 of 1"), paper="easgd_knl"
    )
    assert remedy == Remedy(
        "measured: not in this configuration", "on 5 cores: `snakemake --cores 5 --configfile config/elastic.yaml`"
    )


def test_repeats_of_a_training_are_seeds(checkout, papers):
    reason = "no interval of it: 5 repeats, 6 are needed"
    remedy = remedy_of(checkout, papers, "table2-digits-slight", "measured", reason, "quick", paper="cloud_topk")
    assert remedy.reason == "measured: too few repeats"
    assert remedy.add == ("more `seeds` of its launch: at least 6",)
    reason = "within what was measured: a margin of -1.0 to +2.0 % over the 95 % intervals"
    remedy = remedy_of(
        checkout, papers, "table2-digits-slight", "measured", reason, "quick", margin=-0.01, paper="cloud_topk"
    )
    assert remedy.reason == "measured: an interval that holds both answers"
    assert remedy.add == ("more `seeds` of its launch: the interval narrows with the square root of their number",)


def test_other_reasons_have_remedies_of_their_own(checkout, papers, monkeypatch):
    band = remedy_of(checkout, papers, "fig6-over-wfbp", "simulated", "holds at 1 of 3 points", margin=-0.1)
    assert band.remedy == "no command: a published number would"
    not_made = remedy_of(checkout, papers, "fig6-over-wfbp", "simulated", "table fig6 has not been made")
    assert not_made == Remedy("its table has not been made", "`snakemake --cores 2 --configfile config/quick.yaml`")
    with monkeypatch.context() as unwritten:
        unwritten.setattr("gradsync.claims.remedies.declared", lambda paper: SimpleNamespace(tables={}))
        no_code = remedy_of(checkout, papers, "fig6-over-wfbp", "simulated", "table fig6 has not been made")
    assert no_code == Remedy("no code makes its table yet", "no configuration does")
    impossible = remedy_of(checkout, papers, "fig6-order", "emulated", "root is needed", "emulated")
    assert impossible.reason == "emulated: root is needed"
    assert "config/emulated.yaml" in impossible.remedy
    short = remedy_of(
        checkout, papers, "fig6-order", "emulated", "no interval of it: 2 repeats, 6 are needed", "emulated"
    )
    assert short.add == ("more `iterations` of its launch: at least 6 blocks",)


def test_a_configuration_that_cannot_be_read_is_left_out(checkout, papers, tmp_path):
    for name in ("emulated", "peers"):
        (tmp_path / f"{name}.yaml").write_text((ROOT / "config" / f"{name}.yaml").read_text())
    (tmp_path / "broken.yaml").write_text("version: [")
    quick = checkout["config/quick.yaml"]
    remedies = Remedies.of("config/quick.yaml", quick, papers.values(), tmp_path)
    assert [*remedies.known] == ["config/quick.yaml", str(tmp_path / "emulated.yaml")]


# A command is shown if the tables would really have the rows


def write_impossible(config: Settings, results: Path) -> None:
    """Write of every emulated launch that it was not possible: its rows are there, with that reason."""
    for launch in config.emulated:
        folder = results / "runs" / "emulated" / launch.job
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps({"possible": False, "reason": WHY}))


@pytest.mark.parametrize("name", ["emulated", "bcube", "simultaneous"])
def test_coverage_is_what_the_tables_take_from_emulated_launches(checkout, tmp_path, name):
    config = checkout[f"config/{name}.yaml"]
    write_impossible(config, tmp_path)
    with_every_paper = config.model_copy(update={"papers": checkout["config/quick.yaml"].papers})
    asc, bml = asc_testbed.bench(with_every_paper), bml_testbed.bench(with_every_paper, "lenet5")
    rows_of = {
        ("mgwfbp", "fig6"): list(speedups._emulated("googlenet", config, tmp_path)),
        ("mgwfbp", "fig7"): list(speedups._emulated("resnet50", config, tmp_path)),
        ("bml_bcube", "fig6"): list(completion._emulated(bml, "lenet5", config, tmp_path)),
        ("ascwfbp", "table4"): list(timed_runs.emulated(config, tmp_path, asc)),
    }
    shown = 0
    for (paper, table), table_rows in rows_of.items():
        if paper not in config.papers:
            continue
        covered = coverage.Coverage(paper, table, "emulated", config)
        keys = ("model", "nodes", "scheme", *(["batch"] if paper == "bml_bcube" else []))
        for row in table_rows:
            assert row["note"] in (WHY, NO_LAUNCH)
            keys_of_row = {key: row[key] for key in keys}
            launches = [
                each for each in config.emulated_of(paper) if (each.model, each.ranks) == (row["model"], row["nodes"])
            ]
            decides = any(row["scheme"] in each.schemes and coverage.has_interval(each) for each in launches)
            expected = row["note"] == WHY and decides
            assert (not covered.lacking([keys_of_row])) == expected, (paper, table, keys_of_row)
            shown += expected
    assert shown
