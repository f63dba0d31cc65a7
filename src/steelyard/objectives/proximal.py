"""FedProx (Li et al., 2020): penalise the distance from the round's shared model."""

from dataclasses import dataclass

import torch

from steelyard.objectives.base import Local, LocalLoss, Objective, Wrapper
from steelyard.objectives.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class Proximal(Wrapper):
    """Add μ/2 ‖w − w_t‖² to another objective, with w_t the round's shared model (FedProx)."""

    mu: float = 0.01
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def bind(self, local: Local) -> LocalLoss:
        base = self.base.bind(local)
        start = [parameter.detach().clone() for parameter in local.parameters]

        @torch.no_grad()
        def add_gradient() -> None:
            base.add_gradient()
            for now, then in zip(local.parameters, start, strict=True):
                if now.grad is not None:
                    now.grad.add_(now - then, alpha=self.mu)

        return LocalLoss(base.loss, add_gradient, base.losses)
