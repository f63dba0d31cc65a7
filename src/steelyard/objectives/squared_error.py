"""Squared error, for regression."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from steelyard.objectives.base import Local, LocalLoss, Objective, Targets


@dataclass(frozen=True)
class SquaredError(Objective):
    """Mean squared error of a batch, for regression with a model that has one output."""

    @property
    def targets(self) -> Targets:
        return "numbers"

    def bind(self, local: Local) -> LocalLoss:
        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs: Tensor = local.model(inputs).reshape(targets.shape)  # fails for more than one output
            return F.mse_loss(outputs, targets.to(outputs.dtype), reduction="none")

        return LocalLoss(lambda inputs, targets: losses(inputs, targets).mean(), losses=losses)
