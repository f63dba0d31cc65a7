"""The plain classification loss."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch.

    With `balance` above 0, a client's own mix of classes is taken out of its logits in training, wholly at 1,
    and that of all clients together put in its place (logit adjustment, Menon et al., 2021): a client that
    has hardly seen a class does not learn, or teach, that there is none. For that, all class counts are added
    up before the first round, and everyone is told the sum.
    """

    label_smoothing: float = 0.0
    balance: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.balance <= 1:
            raise InputError(f"objective 'cross-entropy': balance must be from 0 to 1, not {self.balance}.")

    @property
    def targets(self) -> Targets:
        return "classes"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"} if self.balance else ())

    def bind(self, local: Local) -> LocalLoss:
        excess = self.balance * _excess(local) if self.balance else None

        def loss(inputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
            outputs = local.model(inputs)
            if excess is not None:
                outputs = outputs + excess
            return F.cross_entropy(
                outputs, targets, reduction=reduction, label_smoothing=self.label_smoothing
            )

        return LocalLoss(loss, losses=None if self.balance else partial(loss, reduction="none"))


def _excess(local: Local) -> Tensor:
    everyone = local.broadcast.offers.get("classes", torch.zeros(0))
    return log_excess(local.labels().bincount(minlength=len(everyone)), everyone)


def log_excess(own: Tensor, everyone: Tensor) -> Tensor:
    """How much more frequent each class is here than among all, [C], from the counts of both.

    Half an example for each class, in the mix of all, is taken to have been seen as well.
    """
    usual = (everyone + 0.5) / (everyone + 0.5).sum()
    seen = own + len(own) / 2 * usual
    return (seen / seen.sum() / usual).log()
