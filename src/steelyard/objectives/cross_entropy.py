"""The plain classification loss."""

from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from steelyard.objectives.base import Bound, Local, Objective, Targets


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch."""

    label_smoothing: float = 0.0

    @property
    def targets(self) -> Targets:
        return "classes"

    def bind(self, local: Local) -> Bound:
        def loss(inputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
            outputs = local.model(inputs)
            return F.cross_entropy(
                outputs, targets, reduction=reduction, label_smoothing=self.label_smoothing
            )

        return Bound(loss, losses=partial(loss, reduction="none"))
