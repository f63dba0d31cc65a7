"""Data poisoning: wrong labels, and for the rest the honest work of a client."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene
from steelyard.types import Reply


class LabelAttack(Attack):
    """An attack that is over before the first round: what comes of the labels is sent as it is."""

    @property
    def poisons(self) -> bool:
        return True

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        return own


@dataclass(frozen=True)
class LabelFlip(LabelAttack):
    """Train on labels counted from the other end, C − 1 − y (Fang et al., 2020)."""

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        return num_classes - 1 - labels


@dataclass(frozen=True)
class RandomLabels(LabelAttack):
    """Train on labels drawn evenly from all classes: a party that knows nothing."""

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        return torch.randint(num_classes, labels.shape, generator=generator, dtype=labels.dtype)
