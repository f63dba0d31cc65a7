"""Data poisoning: adversaries train honestly on wrong labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene
from steelyard.types import Reply


class LabelAttack(Attack):
    """An attack that changes the labels before the first round and sends the resulting replies unchanged."""

    @property
    def poisons(self) -> bool:
        return True

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        return own


@dataclass(frozen=True)
class LabelFlip(LabelAttack):
    """Train on the labels C − 1 − y instead of y (Fang et al., 2020)."""

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        return num_classes - 1 - labels


@dataclass(frozen=True)
class RandomLabels(LabelAttack):
    """Train on labels drawn uniformly from all classes."""

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        return torch.randint(num_classes, labels.shape, generator=generator, dtype=labels.dtype)
