"""The loss that fits the targets."""

from dataclasses import dataclass

from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.objectives.binary_cross_entropy import BinaryCrossEntropy
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.model_loss import ModelLoss
from steelyard.objectives.squared_error import SquaredError
from steelyard.task import FittedTask


@dataclass(frozen=True)
class Auto(Objective):
    """The loss that fits the targets, or the one that the model returns.

    Class numbers (also of tokens and pixels): cross-entropy. Several labels at once: binary cross-entropy.
    Numbers: squared error.
    """

    def bind(self, local: Local) -> LocalLoss:
        return usual_objective(local.task).bind(local)


def usual_objective(task: FittedTask) -> Objective:
    """The objective for a task."""
    if task.has_loss or task.targets == "loss":
        return ModelLoss()
    if task.targets == "classes":
        return CrossEntropy()
    return BinaryCrossEntropy() if task.targets == "labels" else SquaredError()
