"""Binary cross-entropy, for examples with several classes at once, and for one yes or no."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import POSITIVE, check_settings
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets


@dataclass(frozen=True)
class BinaryCrossEntropy(Objective):
    """Mean binary cross-entropy over the labels of a batch: each is 0 or 1, and has a logit of its own.

    `positive_weight` is a factor on the losses of positive labels, for labels that are rare.
    """

    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        check_settings("objective 'binary-cross-entropy': ", self, positive_weight=POSITIVE)

    @property
    def targets(self) -> Targets:
        return "labels"

    def bind(self, local: Local) -> LocalLoss:
        forward, task = local.forward, local.task
        device, factor = local.parameters[0].device, self.positive_weight
        weight = None if factor == 1 else torch.tensor(factor, device=device)

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs, truth = task.aligned(forward(inputs), targets)
            return F.binary_cross_entropy_with_logits(outputs, truth, pos_weight=weight)

        return LocalLoss(loss)
