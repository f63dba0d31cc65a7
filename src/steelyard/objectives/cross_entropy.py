"""The plain classification loss."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.objectives.base import Bound, Local, Objective


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch."""

    label_smoothing: float = 0.0

    def bind(self, local: Local) -> Bound:
        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(local.model(inputs), targets, label_smoothing=self.label_smoothing)

        return Bound(loss)
