"""Paper files: published numbers agree with their claims, and a bad key is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gradsync import claims
from gradsync.claims.published import load
from gradsync.errors import InputError
from made_up_claims import write_paper

PAPER = Path(__file__).parents[3] / "config/papers/mgwfbp/published.yaml"


def test_every_claim_of_mgwfbp_can_be_read_and_undecided_without_tables(tmp_path: Path) -> None:
    paper = load(PAPER)
    verdicts = claims.evaluate(PAPER, tmp_path)
    assert len(verdicts) == sum(len(claim.rungs) for claim in paper.claims)
    assert {v.verdict for v in verdicts} == {claims.UNDECIDED}
    assert all(v.reason == f"table {v.table} has not been made" for v in verdicts)


def test_published_ratios_agree_with_the_claims() -> None:
    paper = load(PAPER)
    checks = {claim.id: claim.check for claim in paper.claims}
    for entry in paper.published:
        if entry.unit == "ratio":
            assert f"{entry.value:g}, 0.1" in checks[entry.id]


def test_startups_are_those_of_the_cluster_file() -> None:
    cluster = yaml.safe_load(PAPER.with_name("testbed.yaml").read_text())
    startups = cluster["allreduce_startup_seconds"]["value"]
    for entry in load(PAPER).published:
        if entry.table == "fig5b":
            assert startups[entry.nodes] == entry.value
            assert entry.value == pytest.approx(2 * (entry.nodes - 1) * cluster["alpha_seconds"]["value"], rel=1e-12)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"chek": "1 < 2"}, "claims.0.chek"),
        ({"rungs": ["guessed"]}, "claims.0.rungs.0"),
        ({"rungs": []}, "claims.0.rungs"),
        ({"by_construction": True}, "by_construction and why"),
        ({"table": "../t"}, "claims.0.table"),
        ({"exact": {"elsewhere": ["x"]}}, "exact: no claim is about table 'elsewhere'"),
        ({"post_hoc": {"text": ""}}, "claims.0.post_hoc.text"),
        ({"post_hoc": {"text": "x", "rungs": ["measured"]}}, "post_hoc: it is not decided on rung 'measured'"),
        ({"without": [{"point": "a fitted"}]}, "claims.0.without.0.why"),
        ({"check": "x < 1"}, "claim 'c', check: `x`"),
        ({"check": "1 / 0 > 1"}, "claim 'c', check: 1 / 0"),
        ({"check": 'iter_time("dear", "net", 4) > 0'}, "scheme 'dear' is not among the paper's"),
        ({"check": 'value("a", rung="measured") > 0'}, "rung is no key"),
    ],
)
def test_a_bad_key_is_named_with_its_file(tmp_path: Path, claim: dict, message: str) -> None:
    path = write_paper(tmp_path, **claim)
    with pytest.raises(InputError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_two_claims_of_one_id(tmp_path: Path) -> None:
    path = write_paper(tmp_path)
    content = yaml.safe_load(path.read_text())
    content["claims"] *= 2
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="id 'c' appears twice"):
        load(path)


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "\x00"])
def test_what_is_no_paper_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InputError, match=r"p\.yaml"):
        load(tmp_path / "p.yaml")
    with pytest.raises(InputError, match="absent"):
        load(tmp_path / "absent")
