"""The plain classification loss."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.objectives.base import Bound, Local, Objective


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch."""

    label_smoothing: float = 0.0

    @property
    def stacks(self) -> bool:
        return True

    def bind(self, local: Local) -> Bound:
        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs = local.model(inputs)
            return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.label_smoothing)

        return Bound(losses)
