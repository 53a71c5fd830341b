"""ZeRO's first stage as torch has it: gradients by DDP, each rank updates some tensors and sends them to the others.

Source: `torch.distributed.optim.ZeroRedundancyOptimizer`; Rajbhandari et al., "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", SC 2020. Each tensor has one owner, which alone holds its momentum.

`overlap_with_ddp` is no variant: torch warns that it may hang on Gloo (its issue 62300).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from gradsync.runtime.peers.ddp import StockDDP


class Zero(StockDDP):
    """DDP as it comes, with `ZeroRedundancyOptimizer` around the optimizer."""

    def _optimizer(self, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(
            self.wrapped.parameters(), optimizer_class=kind, process_group=self.group, **arguments
        )

    def _of_this_rank(self) -> torch.optim.Optimizer:
        """The optimizer of the tensors that this rank owns."""
        return cast(ZeroRedundancyOptimizer, self.optimizer).optim

    def _states(self) -> dict[Any, dict[str, Any]]:
        return self._of_this_rank().state

    def _kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters are alike; momentum is each rank's own."""
        return {"parameters": dict(self.model.named_parameters())}, {"optimizer": self._of_this_rank().state_dict()}

    def _restore_optimizer(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        self._of_this_rank().load_state_dict(own["optimizer"])
