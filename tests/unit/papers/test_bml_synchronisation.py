"""Fig. 4 and 5 of the BML paper, and what its networks cost: states as printed, times by links against closed forms."""

from __future__ import annotations

import pandas as pd
import pytest

from gradsync import claims
from gradsync.papers import tables
from gradsync.papers.bml_bcube import equipment, states, synchronisation
from made_up_bml import PAPER, configured, table


def test_the_45_states_are_those_of_the_figure(bml_tables):
    frame = table(bml_tables, "fig4")
    assert len(frame) == 45
    assert frame.as_printed.eq(1).all()
    pieces = frame.set_index(["state", "server"])
    # Section 3.2 spells these out
    assert pieces.thread_0["b", "[0,0]"] == "<0,*,0>([0,*])"
    assert pieces.thread_0["c", "[0,0]"] == "<0,0,0>([*,*])"
    # the rule behind the figure, for every server [i,j]
    for i in range(3):
        for j in range(3):
            assert pieces.thread_1["b", f"[{i},{j}]"] == f"<1,{i},*>([*,{j}])"
            assert pieces.thread_0["d", f"[{i},{j}]"] == f"<0,*,{j}>([*,*])"


def test_a_state_that_is_not_as_printed_is_seen_and_refutes_the_claim(tmp_path, monkeypatch):
    printed = pd.read_csv(states.PRINTED, dtype=str)
    assert printed.loc[13].tolist() == ["b", "[1,1]", "<0,*,1>([1,*])", "<1,1,*>([*,1])"]
    printed.loc[13, "thread_0"] = "<0,*,1>([2,*])"
    wrong = tmp_path / "wrong.csv"
    printed.to_csv(wrong, index=False)
    monkeypatch.setattr(states, "PRINTED", wrong)
    fig4 = states.fig4(configured(), tmp_path)
    assert fig4.frame.as_printed.sum() == 44
    assert "44 of 45 states are as printed" in fig4.caption
    tables.write(fig4, tmp_path / "tables" / "bml_bcube", "fig4")
    (verdict,) = [v for v in claims.evaluate(PAPER, tmp_path / "tables") if v.claim == "fig4-states"]
    assert verdict.verdict == claims.REFUTED


def test_steps_take_6_2_2_6_pieces_of_time_on_different_levels(bml_tables):
    frame = table(bml_tables, "fig4_steps")
    steps = frame[frame.step.notna()]
    assert steps.t_c.tolist() == [6, 2, 2, 6]
    assert steps.thread_0_level.tolist() == [0, 1, 1, 0]
    assert steps.thread_1_level.tolist() == [1, 0, 0, 1]
    assert frame[frame.stage == "together"].t_c.tolist() == [16]


def test_synchronisation_times_are_the_closed_forms(bml_tables):
    frame = table(bml_tables, "fig5")
    gst = frame.set_index(["scheme", "topology"]).gst
    for n, k in ((3, 2), (4, 2), (4, 3), (32, 2), (16, 4)):
        servers = n**k
        assert gst["bml", f"bcube:{n},{k}"] == pytest.approx(2 * (servers - 1) / (k * servers), rel=1e-12)
    for servers, ports in ((16, 4), (64, 8), (1024, 16)):
        for scheme in ("ps_p2p", "hierarchical", "ring"):
            assert gst[scheme, f"fat_tree:{ports}"] == pytest.approx(2 * (servers - 1) / servers, rel=1e-12)
    # balanced shortest paths (BM-E09)
    for n, k in ((3, 2), (4, 2), (4, 3), (32, 2)):
        assert gst["ps_p2p", f"bcube:{n},{k}"] == pytest.approx(2 * (n - 1) / n, rel=1e-12)
    over = frame.set_index(["scheme", "topology"]).over_bml
    assert over["ps_p2p", "bcube:4,2"] == pytest.approx(1.6)
    assert over["ps_p2p", "bcube:32,2"] == pytest.approx(1.9375 / 0.9990234375)
    assert set(synchronisation.DRAWN) <= set(frame.nodes)


def test_switches_are_counted_and_every_fat_tree_is_the_smallest_that_holds_the_servers(bml_tables):
    frame = table(bml_tables, "switches").set_index("topology")
    counts = frame.switches
    assert counts["bcube:3,2"] == 6
    assert (counts["bcube:4,2"], counts["fat_tree:4"]) == (8, 20)
    assert (counts["bcube:32,2"], counts["fat_tree:16"]) == (64, 320)
    assert (counts["bcube:16,4"], frame.nodes["bcube:16,4"]) == (16384, 65536)
    for cube, tree in equipment.PAIRS:
        ports = int(tree.partition(":")[2])
        assert ports**3 // 4 >= frame.nodes[cube] > (ports - 2) ** 3 // 4
    assert frame.port_ratio["bcube:32,2"] == pytest.approx(2 / 5)
    assert frame.switch_ratio["bcube:32,2"] == pytest.approx(1 / 5)
