"""Fig. 5 of the BML paper: gradient synchronisation times as bars, two sizes."""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.bml_bcube.synchronisation import DRAWN
from gradsync.papers.table import file, read

SERIES = {
    ("bml", "bcube"): "BML/BCube",
    ("ps_p2p", "bcube"): "PS/BCube",
    ("hierarchical", "fat_tree"): "Hierarchical/Fat-Tree",
    ("ps_p2p", "fat_tree"): "PS/Fat-Tree",
    ("ring", "fat_tree"): "Ring/Fat-Tree (not drawn in the paper)",
}
NETWORKS = {"bcube": "BCube", "fat_tree": "Fat-Tree"}
WIDTH = 0.16


def fig5(settings: Settings, results: Path) -> Drawn:
    """The paper's bars, and a mark if its text states another height."""
    frame = read(file(results, "bml_bcube", "fig5"), ["scheme", "topology", "nodes", "gst", "stated"])
    figure, axes = plt.subplots(figsize=(7.2, 4.0))
    names: dict[tuple[int, str], str] = {}
    for place, servers in enumerate(DRAWN):
        for number, ((scheme, kind), label) in enumerate(SERIES.items()):
            row = frame[(frame.nodes == servers) & (frame.scheme == scheme) & frame.topology.str.startswith(kind)].iloc[
                0
            ]
            names.setdefault((servers, kind), _title(row.topology))
            x = place + WIDTH * (number - (len(SERIES) - 1) / 2)
            axes.bar(x, row.gst, 0.9 * WIDTH, color=f"C{number}", label=None if place else label)
            axes.text(x, row.gst - 0.03, f"{row.gst:.3f}", ha="center", va="top", fontsize=7, color="white")
            if abs(row.stated / row.gst - 1) > 1e-9:
                axes.plot([x - 0.45 * WIDTH, x + 0.45 * WIDTH], [row.stated] * 2, "k--", linewidth=1.2)
                axes.text(x, row.stated, f"{row.stated:.3f}", ha="center", va="bottom", fontsize=7, style="italic")
    axes.set_xticks(
        range(len(DRAWN)),
        [f"{servers} servers: {names[servers, 'bcube']}, {names[servers, 'fat_tree']}" for servers in DRAWN],
    )
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 2.5)
    axes.set_ylabel("GST [$T_F$]")
    axes.set_title("Fig. 5, simulated: every transfer on its links, no start-up", loc="left")
    handles, labels = axes.get_legend_handles_labels()
    handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1.2))
    labels.append("as the paper states it, where that differs: double of BML (BM-E09)")
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure, frame


def _title(topology: str) -> str:
    """As the paper writes it: BCube(4,2)."""
    kind, _, numbers = topology.partition(":")
    return f"{NETWORKS[kind]}({numbers})"
