"""FedProx (Li et al., 2020): penalise the distance from the round's shared model."""

from dataclasses import dataclass

import torch

from steelyard.errors import NOT_NEGATIVE, check_settings
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.wrapper import Wrapper


@dataclass(frozen=True)
class Proximal(Wrapper):
    """Add μ/2 ‖w − w_t‖² to another objective, with w_t the round's shared model (FedProx).

    Layers that are not shared stay close to what they were when the round began.
    """

    mu: float = 0.01
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings("objective 'proximal': ", self, mu=NOT_NEGATIVE)

    def bind(self, local: Local) -> LocalLoss:
        base = self.base.bind(local)
        with local.came_down():
            start = [parameter.detach().clone() for parameter in local.parameters]

        @torch.no_grad()
        def add_gradient() -> None:
            base.add_gradient()
            for now, then in zip(local.parameters, start, strict=True):
                if now.grad is not None:
                    now.grad.add_(now - then, alpha=self.mu)

        return LocalLoss(base.loss, add_gradient, base.losses)
