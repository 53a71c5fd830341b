"""Panels with nothing to show are left out and named below; legends have what is drawn."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from gradsync.configuration import settings
from gradsync.configuration.settings import Settings
from gradsync.drawing import panels, style
from gradsync.papers import drawn_emulated, figures
from gradsync.papers.labels import MODELS
from gradsync.papers.mgwfbp import convergence, scaling, speedups
from gradsync.papers.mgwfbp.drawing import evaluation
from gradsync.papers.mgwfbp.simulated_testbed import CENTRES

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def styled() -> None:
    style.use()


@pytest.fixture(scope="module")
def config() -> Settings:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return settings.load("config/quick.yaml").model_copy(update={"schemes": str(ROOT / "config" / "schemes.yaml")})


def write_table(results: Path, name: str, frame: pd.DataFrame, paper: str = "mgwfbp") -> None:
    folder = results / "tables" / paper
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{name}.csv", index=False)


def labels(figure: plt.Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return [text.get_text() for each in legends for text in each.get_texts()]


def caption(figure: plt.Figure) -> str:
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


def test_a_legend_has_what_any_panel_shows_once_and_nothing_without_a_place() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    for axes in (left, right):
        axes.plot([1, 2], [1, 2], label="both")
        axes.plot([1, 2], [np.nan, np.nan], label="never")
        axes.errorbar([1, 2], [1, 2], yerr=np.full((2, 2), np.nan), fmt="none", label="no interval")
        axes.bar([1], [np.nan], label="no bar")
    right.plot([1, 2], [np.nan, 2], label="right alone")
    right.errorbar([1, 2], [1, 2], yerr=np.ones((2, 2)), fmt="none", label="interval")
    panels.legend(figure, 2)
    assert labels(figure) == ["both", "right alone", "interval"]
    plt.close(figure)


def test_what_is_left_out_is_told_below_the_legend_and_the_panels(monkeypatch) -> None:
    figure, axes = plt.subplots(figsize=(4, 3))
    axes.plot([1, 2], label="line")
    axes.set_xlabel("below the axis")
    panels.legend(figure, 1)
    panels.left_out(figure, ["one", "two", "one"])
    assert caption(figure) == "Left out: one; two."
    extents = []

    def draw(renderer: Any) -> None:
        """Note where the parts are in the saved figure, which is cut to what is drawn."""
        extents.append([each.get_window_extent(renderer) for each in (figure.texts[0], figure.legends[0], below)])

    below = axes.xaxis.label
    monkeypatch.setattr(figure.texts[0], "draw", draw)
    figure.savefig(io.BytesIO(), format="png", bbox_inches="tight")
    text, legend, label = extents[-1]
    assert text.y1 < legend.y0 < legend.y1 < label.y0
    plt.close(figure)


def test_without_a_reason_nothing_is_told() -> None:
    figure, _ = plt.subplots()
    panels.left_out(figure, [])
    assert caption(figure) == ""
    plt.close(figure)


def gaps(*known: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **{"rung": "simulated", "model": model, "nodes": nodes, "scheme": scheme, "note": "no log of it"},
            **{"assumption": scaling.CENTRE, "iteration_seconds": 1.0, "over_optimal": 1.1 if model in known else None},
        }
        for model in ("googlenet", "resnet50")
        for nodes in (4, 8)
        for scheme in ("mgwfbp", "mgwfbp_as_printed", scaling.BEST_BUCKET, "fixed_buckets")
    )


@pytest.mark.parametrize("known", [("resnet50",), ("googlenet", "resnet50")])
def test_a_model_without_a_gap_has_no_panel(config, tmp_path, known) -> None:
    write_table(tmp_path, "gap", gaps(*known))
    figure, _ = figures.of("mgwfbp")["gap"](config, tmp_path)
    assert [axes.get_title("left") for axes in figure.axes] == [f"{MODELS[model]}, simulated" for model in known]
    assert caption(figure) == ("" if len(known) == 2 else "Left out: googlenet: no log of it.")
    plt.close(figure)


def speedup(rung: str, scheme: str, nodes: int, value: float | None, note: str = "") -> dict:
    times = {"iteration_seconds": value, "computation_seconds": value, "exposed_communication_seconds": value}
    row = {"rung": rung, "model": "resnet50", "nodes": nodes, "scheme": scheme, "note": note, **times}
    return row | {"assumption": CENTRES[1] if rung == "simulated" else "", "speedup": value, "waiting_seconds": 0.0}


def test_a_speed_up_figure_shows_and_names_only_what_there_is(config, tmp_path) -> None:
    rows = [speedup("simulated", "wfbp", n, 0.9 * n) for n in (2, 4)] + [speedup("measured", "tf_ps", 2, None, "none")]
    write_table(tmp_path, "fig7", pd.DataFrame(rows, columns=speedups.COLUMNS))
    write_table(tmp_path, "fig7b", pd.DataFrame(columns=convergence.COLUMNS))
    figure, _ = figures.of("mgwfbp")["fig7"](config, tmp_path)
    assert len(figure.axes) == 1
    assert labels(figure) == ["WFBP", "simulated; shade: band", "linear"]
    assert caption(figure) == "Left out: Fig. 7(b), accuracy: no whole epoch of ResNet-50 in this configuration."
    plt.close(figure)


def test_numbers_of_nodes_without_a_bar_are_told_below(config, tmp_path) -> None:
    rows = [speedup("published", "wfbp", n, 0.5) for n in (2, 4)]
    rows += [speedup("measured", "wfbp", 2, 0.5), speedup("measured", "wfbp", 4, None, "4 ranks share 2 cores")]
    write_table(tmp_path, "fig8", pd.DataFrame(rows, columns=speedups.COLUMNS))
    figure, _ = evaluation.fig8(config, tmp_path)
    ticks = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in figure.axes]
    assert ticks == [["2", "4"], ["2"]]
    assert caption(figure) == "Left out: measured: 4 ranks share 2 cores."
    assert labels(figure) == ["Comp. (forward and backward)", "Comm. (exposed)"]
    plt.close(figure)


def test_an_emulated_launch_that_was_not_possible_is_told_below_the_others(config, tmp_path) -> None:
    row = {"rung": "emulated", "model": "googlenet", "nodes": 2, "scheme": "wfbp", "assumption": "", "note": ""}
    row |= {"launch": "googlenet-2", "batch": None, "topology": "switch", "dilation": 16, "flow_share": 1}
    row |= {"iteration_seconds": 0.4, "computation_seconds": 0.3, "bits_per_second": 1e9, "predicted_seconds": None}
    row |= dict.fromkeys(("iteration_seconds_low", "iteration_seconds_high", "hard_bound_seconds"))
    row |= {"model_bound_seconds": 0.35}
    impossible = row | {"launch": "googlenet-4", "nodes": 4, "iteration_seconds": None, "note": "root is needed"}
    write_table(tmp_path, "emulated", pd.DataFrame([row, impossible]))
    figure, _ = drawn_emulated.emulated("mgwfbp", config, tmp_path)
    assert len(figure.axes) == 1
    assert caption(figure) == "Left out: googlenet-4: root is needed."
    assert labels(figure) == ["model bound, by all-reduces", "computation, replayed", "the rest of the iteration"]
    (axes,) = figure.axes
    assert axes.get_title("left") == "googlenet on 2 hosts, switch\n16 Gbit/s"
    plt.close(figure)


def test_emulated_launches_of_one_model_and_network_have_their_names(config, tmp_path) -> None:
    row = {"rung": "emulated", "model": "resnet50", "nodes": 8, "scheme": "wfbp", "assumption": "", "note": ""}
    row |= {"batch": None, "topology": "switch", "dilation": 16, "flow_share": 1, "predicted_seconds": 0.5}
    row |= {"iteration_seconds": 0.4, "computation_seconds": 0.0, "bits_per_second": 1e9, "model_bound_seconds": None}
    row |= dict.fromkeys(("iteration_seconds_low", "iteration_seconds_high", "hard_bound_seconds"))
    rows = [row | {"launch": "resnet50-8-one"}, row | {"launch": "resnet50-8-two"}]
    write_table(tmp_path, "emulated", pd.DataFrame([*rows, row | {"launch": "resnet50-4", "nodes": 4}]))
    figure, _ = drawn_emulated.emulated("mgwfbp", config, tmp_path)
    titles = [axes.get_title("left").partition(",")[0] for axes in figure.axes]
    assert titles == ["resnet50-8-one", "resnet50-8-two", "resnet50 on 4 hosts"]
    assert "computation, replayed" not in labels(figure)  # there is none
    plt.close(figure)


def test_curves_that_coincide_are_one_and_say_so():
    def curve(scheme: str, nodes: int, *accuracy: float) -> list[dict[str, object]]:
        return [
            dict.fromkeys(("accuracy", "accuracy_least", "accuracy_most"), each)
            | {"scheme": scheme, "nodes": nodes, "epoch": epoch}
            for epoch, each in enumerate(accuracy, 1)
        ]

    same = [row for scheme in ("ddp", "mgwfbp", "wfbp", "naive") for row in curve(scheme, 2, 0.1, 0.5)]
    frame = pd.DataFrame([*same, *curve("easgd", 2, 0.1, 0.4), *curve("wfbp", 4, 0.1, 0.5)])
    labels = [label for label, _ in evaluation._curves(frame)]
    assert labels == ["wfbp, mgwfbp, ddp and 1 more, 2 ranks: these coincide", "easgd, 2 ranks", "wfbp, 4 ranks"]
