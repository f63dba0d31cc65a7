"""Squared error, for regression."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.objectives.base import Local, LocalLoss, Objective, Targets


@dataclass(frozen=True)
class SquaredError(Objective):
    """Mean squared error of a batch, for regression; with several outputs, the mean over them."""

    @property
    def targets(self) -> Targets:
        return "numbers"

    def bind(self, local: Local) -> LocalLoss:
        forward = local.forward

        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs: Tensor = forward(inputs).reshape(targets.shape)  # fails if the numbers of outputs differ
            return F.mse_loss(outputs, targets.to(outputs.dtype), reduction="none")

        return LocalLoss(lambda inputs, targets: losses(inputs, targets).mean(), losses=losses)
