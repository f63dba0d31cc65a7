"""The loss that a model computes itself, such as the models of Hugging Face with `labels`."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective
from steelyard.task import own_loss


@dataclass(frozen=True)
class ModelLoss(Objective):
    """The loss that the model returns: an output with `.loss`, one number, or a tuple that begins with it.

    A model whose `forward` takes `labels` (or `targets`, ...) gets them with the inputs of a dict batch.
    """

    def bind(self, local: Local) -> LocalLoss:
        model, task = local.model, local.task

        def loss(inputs: Any, targets: Any) -> Tensor:
            value = own_loss(task.raw(model, inputs, targets))
            if value is None:
                raise InputError(
                    "objective 'model-loss': the model returns no loss; take the objective 'auto'."
                )
            return value

        return LocalLoss(loss)
