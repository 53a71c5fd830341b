"""Table II and the drawn examples of the MG-WFBP paper: closed forms and equations."""

from __future__ import annotations

from math import log2
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradsync import papers
from gradsync.errors import InputError
from gradsync.papers import figures
from made_up_mgwfbp_scaling import configured


def test_table2_has_the_closed_forms_and_the_rounds_agree():
    both = papers.compute("mgwfbp", "table2", configured(), Path("nowhere")).frame
    frame, closed = both[both.rung == "simulated"], both[both.rung == "derived"]
    startups = {
        "ring": lambda n: 2 * (n - 1),
        "binary_tree": lambda n: 2 * log2(n),
        "recursive_doubling": log2,
        "halving_doubling": lambda n: 2 * log2(n),
    }
    slopes = {
        "ring": lambda n: 2 * (n - 1) / n,
        "binary_tree": lambda n: 2 * log2(n),
        "recursive_doubling": log2,
        "halving_doubling": lambda n: 2 - 2 / n,
    }
    assert set(frame.algorithm) == set(startups)
    assert (frame.groupby("algorithm").nodes.apply(list) == [[*range(2, 65)]] * 4).all()
    known = frame[frame.seconds_formula.notna()]
    powers = {2, 4, 8, 16, 32, 64}
    assert {(row.algorithm, row.nodes) for row in known.itertuples()} == {
        (name, n) for name in startups for n in range(2, 65) if name == "ring" or n in powers
    }
    assert closed[["algorithm", "nodes"]].to_numpy().tolist() == known[["algorithm", "nodes"]].to_numpy().tolist()
    assert known.a_over_alpha.isna().all()
    for row in closed.itertuples():
        assert row.a_over_alpha == pytest.approx(startups[row.algorithm](row.nodes), rel=1e-12)
        assert row.b_over_beta == pytest.approx(slopes[row.algorithm](row.nodes), rel=1e-12)
    np.testing.assert_allclose(known.seconds_rounds, known.seconds_formula, rtol=1e-9)
    # beyond a power of two: the rest hands its data in and gets the sum back; of a tree one level more each way
    extra = frame[~frame.nodes.isin(powers) & (frame.algorithm != "ring")]
    assert set(extra.extra_rounds) == {2.0}
    assert (frame[frame.nodes.isin(powers) & (frame.algorithm != "ring")].extra_rounds == 0).all()


def test_timelines_are_those_of_the_equations():
    frame = papers.compute("mgwfbp", "timelines", configured(), Path("nowhere")).frame
    seconds = {(row.case, row.scheme): row.iteration_seconds for row in frame.itertuples()}
    rows = {(row.case, row.scheme): row for row in frame.itertuples()}
    naive = rows["case3", "naive"]  # Eq. 3
    assert naive.iteration_seconds == pytest.approx(naive.t_f + naive.t_b + naive.t_c_sum, rel=1e-12)
    hidden = rows["case1", "wfbp"]  # only the last message is not hidden
    assert hidden.iteration_seconds == pytest.approx(hidden.t_f + hidden.t_b + hidden.t_c_first, rel=1e-12)
    assert seconds["case3", "mgwfbp"] < seconds["case3", "wfbp"] < seconds["case3", "naive"]
    assert seconds["counterexample", "mgwfbp"] == pytest.approx(48.0, rel=1e-12)
    assert seconds["counterexample", "optimal"] == pytest.approx(45.0, rel=1e-12)
    for row in frame.itertuples():
        exposed = row.iteration_seconds - row.t_f - row.t_b
        assert row.exposed_communication_seconds == pytest.approx(exposed, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3", "fig4", "counterexample"])
def test_drawn_examples_need_no_results(tmp_path, name):
    written = [Path(path) for path in figures.write("mgwfbp", name, configured(), tmp_path)]
    frame = pd.read_csv(written[-1])
    assert {"panel", "operation", "start", "end"} <= set(frame.columns)
    svg = written[0].read_text()
    for panel in frame.panel.unique():
        assert panel in svg
    # the same input gives the same bytes
    first = [path.read_bytes() for path in written]
    assert [Path(path).read_bytes() for path in figures.write("mgwfbp", name, configured(), tmp_path)] == first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: 3\n", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: {value: fast}\n", r"alpha_seconds\.value: needs a number"),
        ("alpha_seconds: {value: 1.0e-5}\n", r"link_bits_per_second\.value: needs a number"),
        ("a: [", "testbed .*parsing"),
    ],
)
def test_a_broken_cluster_is_named(tmp_path, content, message):
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("mgwfbp", "table2", configured(testbed=str(path)), tmp_path)
    assert str(path) in str(refused.value)
