"""The settings of the MG-WFBP paper in a configuration: the clusters that Fig. 9 and the gap are simulated on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from gradsync.configuration.launches import Count, Ranks
from gradsync.configuration.settings import PaperSettings, Settings


class Own(PaperSettings):
    """Simulated clusters: the paper's, and the sizes beyond for the gap to the optimum."""

    needs_profiles: ClassVar[Mapping[str, str]] = {
        "resnet50": "Fig. 9(b) is simulated from",
        "googlenet": "Fig. 5(a) is drawn from",
    }

    nodes: list[Ranks] = Field(default=[4, 8, 16, 32, 64], min_length=1)
    gap_nodes: list[Ranks] = Field(default=[4, 8, 16, 32, 64, 128, 256])
    forward_shares: list[float] = Field(default=[0.0, 0.5, 1.0], description="t_f as shares of t_b")
    bucket_sweep: Count = Field(
        default=24, ge=2, description="constant bucket sizes tried between 64 KiB and the model"
    )

    @model_validator(mode="after")
    def _within(self) -> Own:
        beyond = sorted(set(self.nodes) - set(self.gap_nodes))
        if beyond or min(self.gap_nodes, default=0) < 2:
            raise ValueError(f"gap_nodes must hold every one of nodes (not there: {beyond}), each at least 2")
        if 0.5 not in self.forward_shares or min(self.forward_shares) < 0:
            raise ValueError("forward_shares must hold 0.5, the point that is drawn as a line, and nothing below 0")
        return self


def paper_settings(settings: Settings) -> Own:
    """The paper's own settings; raises InputError if the configuration does not show the paper."""
    settings_of_paper = settings.of_paper("mgwfbp")
    assert isinstance(settings_of_paper, Own)
    return settings_of_paper
