"""The simulated testbed of the MG-WFBP paper: closed forms, the band of networks, parameter servers, published logs."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync import claims, papers
from gradsync.costs import alpha_beta
from gradsync.costs.fitted import fit
from gradsync.measure import carried
from gradsync.papers.mgwfbp import simulated_testbed, testbed
from gradsync.plan.workload import Layer, Workload
from made_up_mgwfbp_runs import (
    ALPHA,
    BETA,
    GOOGLENET_ALONE,
    LAYERS,
    REAL,
    RESNET50_ALONE,
    configured,
    make,
    verdict_of,
    write_inputs,
)

pytestmark = pytest.mark.usefixtures("logs_of_runs")


def test_a_cost_scaled_as_a_ring_is_that_ring():
    sizes = np.geomspace(1e3, 1e7, 20)
    eight, four = alpha_beta.ring(8, ALPHA, BETA), alpha_beta.ring(4, ALPHA, BETA)
    fitted = fit(sizes, eight.seconds(sizes))
    np.testing.assert_allclose(simulated_testbed.as_ring(fitted, 8, 4).seconds(sizes), four.seconds(sizes), rtol=1e-9)
    assert simulated_testbed.as_ring(fitted, 8, 8) is fitted


def test_closed_forms_of_the_simulated_testbed(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frame = make(results, configured(), "fig6")["fig6"]
    frame = frame[(frame.rung == "simulated") & (frame.assumption == simulated_testbed.LINE_RATE)]
    seconds = frame.set_index(["scheme", "nodes"]).iteration_seconds
    sizes = np.array([4 * (elements + 64) for elements, _ in LAYERS[::-1]], float)
    backward = np.array([1e-6 * microseconds for _, microseconds in LAYERS[::-1]])
    for n in testbed.NODES:
        a, b = 2 * (n - 1) * ALPHA, 2 * (n - 1) / n * BETA
        wfbp = 0.0
        for ready, size in zip(GOOGLENET_ALONE - backward.sum() + backward.cumsum(), sizes, strict=True):  # Eq. 7
            wfbp = max(wfbp, ready) + a + b * size
        assert seconds["wfbp", n] == pytest.approx(wfbp, rel=1e-7)
        assert seconds["single", n] == pytest.approx(GOOGLENET_ALONE + a + b * sizes.sum(), rel=1e-7)
        assert seconds["optimal", n] <= seconds["mgwfbp", n] * (1 + 1e-12)
    np.testing.assert_allclose(frame.computation_seconds.dropna(), GOOGLENET_ALONE, rtol=1e-9)
    known = frame[frame.iteration_seconds.notna()]
    np.testing.assert_allclose(known.speedup, known.nodes * GOOGLENET_ALONE / known.iteration_seconds, rtol=1e-12)


def test_the_band_has_three_networks_and_says_where_it_extrapolates(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frames = make(results, configured(), "fig6", "fig7")
    networks = {simulated_testbed.BENCHMARK, simulated_testbed.IN_TRAINING, simulated_testbed.LINE_RATE}
    for name, prefixes in (("fig6", [""]), ("fig7", ["t_f=0 t_b, ", "t_f=0.5 t_b, ", "t_f=1 t_b, "])):
        frame = frames[name][frames[name].rung == "simulated"]
        assert set(frame.assumption.dropna()) == {prefix + network for prefix in prefixes for network in networks}
        single = frame[(frame.scheme == "single") & frame.assumption.str.endswith(simulated_testbed.BENCHMARK)]
        assert single.note.str.contains("extrapolated from at most 1.0 MiB").all()
        line = frame[frame.assumption.fillna("").str.endswith(simulated_testbed.LINE_RATE)]
        servers = line.scheme == simulated_testbed.PARAMETER_SERVER
        assert line.note[~servers].isna().all()
        assert line.note[servers].str.startswith("transfers of T(m) = 4.526e-05 s + 8e-10 s/B m").all()
        alone = {"fig6": GOOGLENET_ALONE, "fig7": RESNET50_ALONE}[name]
        np.testing.assert_allclose(frame.computation_seconds.dropna(), alone, rtol=1e-9)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_parameter_servers_take_what_their_links_take(n):
    (scheme,) = (each for each in simulated_testbed.compared(configured()) if each.name == "tf_ps")
    size, cost = 4_000_000, alpha_beta.ring(n, ALPHA, BETA)

    def exposed(tensors: int, **changes: str) -> float:
        layers = tuple(Layer(name=f"t{i}", bytes=size, backward_seconds=0.0) for i in range(tensors))
        load = Workload(name="net", forward_seconds=1.0, layers=layers)
        changed = scheme.model_copy(update=changes)
        row = simulated_testbed._timed(changed, load, cost, n)
        assert row["iteration_seconds"] == pytest.approx(1.0 + row["exposed_communication_seconds"], rel=1e-12)
        return row["exposed_communication_seconds"]

    # all others push to the server of the tensor, which sends the sum to each of them
    once = 2 * ALPHA + 2 * (n - 1) * size * BETA
    assert exposed(1) == pytest.approx(once, rel=1e-9)
    # servers of different tensors work side by side; a single one does not
    assert exposed(n) == pytest.approx(once, rel=0.01)
    assert exposed(n, collective="ps_central") == pytest.approx(2 * ALPHA + n * (once - 2 * ALPHA), rel=0.01)


def test_parameter_servers_are_simulated_and_decide_what_a_lower_bound_can(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frames = make(results, configured(), "fig6", "fig7")
    for name, points in (("fig6", 3), ("fig7", 9)):
        frame = frames[name][frames[name].scheme == "tf_ps"]
        simulated = frame[frame.rung == "simulated"]
        assert len(simulated) == points * len(testbed.NODES)
        assert simulated.iteration_seconds.notna().all()
        published = frame[frame.rung == "published"]
        assert published.iteration_seconds.isna().all()
        assert set(published.note) == {"drawn in the paper, without a number"}
        rows = frames[name][(frames[name].rung == "simulated") & frames[name].iteration_seconds.notna()]
        assert (rows.iteration_seconds >= rows.hard_bound_seconds * (1 - 1e-9)).all()
        assert (rows.iteration_seconds >= rows.model_bound_seconds * (1 - 1e-9)).all()
        assert (rows.hard_bound_seconds >= rows.computation_seconds * (1 - 1e-9)).all()
    decided = verdict_of(results, "fig6-ps", "simulated")
    assert decided.verdict == claims.UNDECIDED
    assert decided.reason.endswith("TensorFlow's own time comes on top")
    assert decided.points == 3
    display = papers.compute("mgwfbp", "fig6", configured(), results).display
    assert list(display[display.scheme == "tf_ps"].rung) == ["published", "simulated", "emulated", "measured"]


def test_googlenet_on_the_published_layer_log_comes_out_near_the_published_ratios(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    with pytest.MonkeyPatch.context() as patch:  # undone before `logged` is
        for name, file in REAL.items():
            patch.setattr(carried, name, file)
        frames = make(results, configured(), "fig5b", "fig6")
    frame = frames["fig6"]
    simulated = frame[(frame.rung == "simulated") & (frame.assumption == simulated_testbed.IN_TRAINING)]
    seconds = simulated.set_index(["scheme", "nodes"]).iteration_seconds
    assert seconds["mgwfbp", 8] < seconds["wfbp", 8] < seconds["single", 8]
    assert seconds["wfbp", 8] / seconds["mgwfbp", 8] == pytest.approx(1.2, rel=0.15)
    assert seconds["single", 8] / seconds["mgwfbp", 8] == pytest.approx(1.36, rel=0.15)
    fits = frames["fig5b"].set_index("source")
    assert fits.line_error["allreduce8.log"] > 10 * fits.pieces_error["allreduce8.log"]  # no line
