"""Cross-entropy, optionally adjusted for each client's class frequencies."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import SHARE, check_settings
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch.

    With `balance` > 0, the training logits are corrected from the client's class frequencies to those of all
    clients together, fully at 1 (logit adjustment, Menon et al., 2021). A client with few examples of a class
    then does not learn to never predict it. For this, the class counts of all clients are summed before the
    first round and sent to every client.
    """

    label_smoothing: float = 0.0
    balance: float = 0.0

    def __post_init__(self) -> None:
        check_settings("objective 'cross-entropy': ", self, label_smoothing=SHARE, balance=SHARE)

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
    total = local.broadcast.offers.get("classes", torch.zeros(0))
    return log_excess(local.labels().bincount(minlength=len(total)), total)


def log_excess(own: Tensor, total: Tensor) -> Tensor:
    """log(class frequency at this client / class frequency at all clients), [C], from the counts of both.

    C/2 pseudo-examples with the overall frequencies are added to the client's counts.
    """
    overall = (total + 0.5) / (total + 0.5).sum()
    smoothed = own + len(own) / 2 * overall
    return (smoothed / smoothed.sum() / overall).log()
