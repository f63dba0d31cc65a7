"""FedProx (Li et al., 2020): stay near the model that came down."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.objectives.base import Bound, Local, Objective
from steelyard.objectives.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class Proximal(Objective):
    """Add μ/2 ‖w − w_t‖², the distance from the round's model, to another objective (FedProx)."""

    mu: float = 0.01
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def bind(self, local: Local) -> Bound:
        base = self.base.bind(local)
        start = [parameter.detach().clone() for parameter in local.parameters]

        @torch.no_grad()
        def add_gradient(gradients: Sequence[Tensor]) -> None:
            base.add_gradient(gradients)
            for gradient, now, then in zip(gradients, local.parameters, start, strict=True):
                gradient.add_(now - then, alpha=self.mu)

        return Bound(base.loss, add_gradient)
