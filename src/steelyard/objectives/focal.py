"""Focal loss (Lin et al., 2017): examples that are classified well count less."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.errors import NOT_NEGATIVE, check_settings
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets
from steelyard.objectives.cross_entropy import of_each


@dataclass(frozen=True)
class Focal(Objective):
    """Mean of −(1 − p)^γ log p over a batch, with p the probability of the true class."""

    gamma: float = 2.0

    def __post_init__(self) -> None:
        check_settings("objective 'focal': ", self, gamma=NOT_NEGATIVE)

    @property
    def targets(self) -> Targets:
        return "classes"

    def bind(self, local: Local) -> LocalLoss:
        forward, task = local.forward, local.task

        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs, truth = task.aligned(forward(inputs), targets)
            nll = of_each(outputs, truth, ignore_index=task.ignore_index)
            return (-(-nll).expm1()).pow(self.gamma) * nll

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            counted = (targets != task.ignore_index).sum().clamp(min=1)
            return losses(inputs, targets).sum() / counted

        return LocalLoss(loss, losses=losses)
