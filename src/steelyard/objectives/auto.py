"""The loss that fits the targets."""

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.metrics.scores import Kind
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


USUAL: Mapping[Kind, Objective] = {
    "classes": CrossEntropy(),
    "labels": BinaryCrossEntropy(),
    "numbers": SquaredError(),
    "loss": ModelLoss(),
}


def usual_objective(task: FittedTask) -> Objective:
    """The objective for a task."""
    return USUAL["loss" if task.has_loss else task.targets]
