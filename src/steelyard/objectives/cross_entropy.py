"""Cross-entropy, optionally adjusted for each client's class frequencies."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import SHARE, InputError, check_settings
from steelyard.objectives.base import Local, LocalLoss, Objective, Targets
from steelyard.task import FittedTask


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy of a batch, or of its tokens or pixels where these have classes.

    With `balance` > 0, the training logits are corrected from the client's class frequencies to those of all
    clients together, fully at 1 (logit adjustment, Menon et al., 2021). A client with few examples of a class
    then does not learn to never predict it. For this, the class counts of all clients are summed before the
    first round and sent to every client. `class_weights` are factors on the losses of each class, [C]; the
    mean is then weighted by them, as in `torch.nn.CrossEntropyLoss`.
    """

    label_smoothing: float = 0.0
    balance: float = 0.0
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_settings("objective 'cross-entropy': ", self, label_smoothing=SHARE, balance=SHARE)
        weights = self.class_weights
        if weights is not None and (not weights or not all(0 <= each < float("inf") for each in weights)):
            raise InputError(
                "objective 'cross-entropy': class_weights must be finite numbers, at least 0, one for each "
                f"class, not {list(weights)}."
            )

    @property
    def targets(self) -> Targets:
        return "classes"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"} if self.balance else ())

    def check(self, task: FittedTask) -> None:
        weights = self.class_weights
        if weights is not None and task.outputs not in (0, len(weights)):
            raise InputError(
                f"objective 'cross-entropy': there are {len(weights)} class_weights, but the model has "
                f"{task.outputs} classes."
            )

    def bind(self, local: Local) -> LocalLoss:
        excess = self.balance * _excess(local) if self.balance else None
        weight = None if self.class_weights is None else _weights(self.class_weights, local)
        forward, task = local.forward, local.task

        settings: dict[str, Any] = {
            "ignore_index": task.ignore_index,
            "label_smoothing": self.label_smoothing,
        }

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs = forward(inputs)
            if excess is not None:
                outputs = outputs + excess
            if not task.plain:
                outputs, targets = task.aligned(outputs, targets)
            return F.cross_entropy(outputs, targets, weight, **settings)

        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            outputs = forward(inputs)
            if not task.plain:
                outputs, targets = task.aligned(outputs, targets)
            return of_each(outputs, targets, **settings)

        return LocalLoss(loss, losses=losses if excess is None and weight is None else None)


def of_each(outputs: Tensor, targets: Tensor, **settings: Any) -> Tensor:
    """The cross-entropy of each example, [B].

    With the examples of a class as neighbours in memory, few classes take torch a fifth of the time.
    """
    if outputs.dim() != 2:
        return F.cross_entropy(outputs, targets, reduction="none", **settings)
    by_class = outputs.T.unsqueeze(0)
    return F.cross_entropy(by_class, targets.unsqueeze(0), reduction="none", **settings).squeeze(0)


def _weights(values: tuple[float, ...], local: Local) -> Tensor:
    return torch.tensor(values, dtype=local.parameters[0].dtype, device=local.parameters[0].device)


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
