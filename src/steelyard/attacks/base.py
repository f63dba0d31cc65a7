"""The base classes of attacks.

An adversary first trains like an honest client, on labels that it may have changed, and then replaces its
reply. In the worst case, which is assumed here, it knows the updates of all honest clients of the round.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.types import Reply


@dataclass(frozen=True, eq=False)
class Scene:
    """What the adversaries of a round know."""

    honest: Tensor
    """[H, K], the updates of the honest clients in the order of their ids. Must not be modified."""
    adversaries: int = 1
    """The number of adversaries in this round."""
    round: int = 1

    def known(self, own: Tensor) -> Tensor:
        """The honest updates [H, K], or the adversary's own [1, K] if the round has no honest client."""
        return self.honest if len(self.honest) else own.unsqueeze(0)


class Attack(ABC):
    """What an adversary does. Holds settings only: no state, and random numbers come from `generator`."""

    @property
    def poisons(self) -> bool:
        """Whether it changes the adversary's training labels."""
        return False

    @property
    def colludes(self) -> bool:
        """Whether all adversaries of a round get the same random numbers."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """Message slots that the attack needs besides the mean."""
        return frozenset()

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        """The labels [N] to train on instead of the true ones."""
        return labels

    @abstractmethod
    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        """The reply to send instead of the honest one, `own`. Must not modify its arguments."""


class VectorAttack(Attack):
    """An attack that replaces the update only; the rest of the reply is honest."""

    @abstractmethod
    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        """The update [K] to send instead of the honest one, `own` [K]."""

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        mean = self.send(scene, own.message.mean, generator)
        return replace(own, message=own.message._replace(mean=mean))


@dataclass(frozen=True)
class Wrapper(Attack):
    """An attack that extends another one. Whatever it does not override, it passes on."""

    attack: Attack

    @property
    def poisons(self) -> bool:
        return self.attack.poisons

    @property
    def colludes(self) -> bool:
        return self.attack.colludes

    @property
    def needs(self) -> frozenset[str]:
        return self.attack.needs

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        return self.attack.poison(labels, num_classes, generator)
