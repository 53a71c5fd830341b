"""Fig. 10 emulated: what launches of both layouts put into the table, and what claims say of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradsync import claims, papers
from gradsync.configuration.launches import Emulation
from gradsync.errors import InputError
from gradsync.papers import figures, tables
from gradsync.papers.coverage import Coverage
from gradsync.papers.easgd_knl import emulation
from gradsync.papers.repeats import samples
from made_up_easgd import PAPER, configured, write_inputs
from made_up_launches import write_launch

LAUNCH = {"paper": "easgd_knl", "model": "alexnet", "ranks": 4, "dilation": 10.0, "schemes": ["single", "naive"]}


def write(results, launch, seconds, difference):
    """A launch of both layouts whose parameters are so far apart; an exchange takes 8 s less than an iteration."""
    write_launch(results, launch, seconds)
    folder = results / "runs" / "emulated" / Emulation(**launch).job
    for name, messages in (("single", 1.0), ("naive", 4.0)):
        path = folder / name / "result.json"
        content = json.loads(path.read_text())
        content["summary"]["messages"] = messages
        content["conformance"] |= {"difference_to_first": difference} if name == "naive" else {}
        path.write_text(json.dumps(content))


def made(tmp_path, *launches, seconds=None, difference=1e-7):
    config, results = configured(emulated=list(launches)), write_inputs(tmp_path)
    for launch in launches:
        write(results, launch, seconds or {"single": 18.0, "naive": 20.0}, difference)
    table = papers.compute("easgd_knl", "fig10", config, results)
    tables.write(table, results / "tables" / "easgd_knl", "fig10")
    verdicts = {v.claim: v for v in claims.evaluate(PAPER, results / "tables") if v.rung == "emulated"}
    return config, results, table, verdicts


def test_a_launch_is_a_row_per_layout_in_the_seconds_of_the_paper(tmp_path):
    _, _, table, _ = made(tmp_path, LAUNCH)
    rows = table.frame[(table.frame.rung == "emulated") & (table.frame.model == "alexnet")].set_index("scheme")
    assert rows.iteration_seconds.to_dict() == {"single": pytest.approx(1.8), "naive": pytest.approx(2.0)}
    for name, exchange in (("single", 1.0), ("naive", 1.2)):
        assert np.median(samples(rows.loc[name], "exchange_seconds")) == pytest.approx(exchange)
    assert rows.messages.to_dict() == {"single": 1, "naive": 4}
    assert set(rows.largest_difference) == {1e-7}  # both are as far from each other
    (shown,) = table.display[table.display.rung == "emulated"].to_dict("records")
    assert shown["packed / per tensor"].startswith("0.83")


def test_both_models_decide_the_claims(tmp_path):
    config, results, _, verdicts = made(tmp_path, LAUNCH, {**LAUNCH, "model": "lenet5"})
    assert {name: v.verdict for name, v in verdicts.items() if v.table == "fig10"} == {
        "fig10-faster": claims.CONFIRMED,
        "fig10-exchange": claims.CONFIRMED,
        "fig10-significant": claims.CONFIRMED,
        "fig10-messages": claims.CONFIRMED,
        "fig10-same-heights": claims.CONFIRMED,
    }
    assert figures.write("easgd_knl", "fig10", config, results)


def test_a_slower_packed_layout_and_other_values_refute(tmp_path):
    launches = (LAUNCH, {**LAUNCH, "model": "lenet5"})
    _, _, _, verdicts = made(tmp_path, *launches, seconds={"single": 21.0, "naive": 20.0}, difference=1e-3)
    for name in ("fig10-faster", "fig10-exchange", "fig10-significant", "fig10-same-heights"):
        assert verdicts[name].verdict == claims.REFUTED


def test_without_one_of_the_launches_nothing_of_it_is_decided_and_the_caption_says_so(tmp_path):
    config, _, table, verdicts = made(tmp_path, LAUNCH)
    assert verdicts["fig10-faster"].verdict == claims.CONFIRMED  # of AlexNet alone
    assert verdicts["fig10-same-heights"].verdict == claims.UNDECIDED
    assert "Emulated: no such emulated launch in this configuration." in table.caption
    covered = {
        (row.keys["model"], row.keys["scheme"]) for row in Coverage("easgd_knl", "fig10", "emulated", config).rows
    }
    assert covered == {("alexnet", "single"), ("alexnet", "naive")}


def test_it_stands_for_the_network_of_the_table(tmp_path):
    launch, config, results = Emulation(**LAUNCH), configured(), write_inputs(tmp_path)
    stand_in = emulation.stand_in(launch, config, results)
    testbed = stand_in.testbed(launch)
    assert testbed.bits_per_second == pytest.approx(1e9)  # a tenth of 10 Gbit/s
    assert testbed.flow_bits_per_second == pytest.approx(0.8e9)
    assert stand_in.startup_seconds == pytest.approx(6 * 8e-6)
    # 1e9 operations forward of each of 64 samples at 6e12 a second, twice as many backward
    assert stand_in.workload.forward_seconds == pytest.approx(64e9 / 6e12)
    assert stand_in.workload.backward_seconds == pytest.approx(128e9 / 6e12)
    with pytest.raises(InputError, match=r"Fig\. 10 has no model 'resnet50'; it has: lenet5, alexnet"):
        emulation.stand_in(Emulation(**{**LAUNCH, "model": "resnet50"}), config, results)
