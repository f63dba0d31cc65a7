"""What an attack is.

An adversary first does a client's honest work, on labels that it may have changed, and then sends whatever it
likes. It is assumed to know the worst: what every honest party of the round sends.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.types import Reply


@dataclass(frozen=True, eq=False)
class Scene:
    """A round as its adversaries see it."""

    honest: Tensor
    """[H, K], the updates of the honest parties in the order of their ids; they are not to be changed."""
    adversaries: int = 1
    """How many of them there are in this round."""
    round: int = 1

    def known(self, own: Tensor) -> Tensor:
        """The honest updates, at least one: an adversary among its own kind knows only its own work."""
        return self.honest if len(self.honest) else own.unsqueeze(0)


class Attack(ABC):
    """What does an adversary do? Settings only: an attack has no memory, and draws from what it is given."""

    @property
    def poisons(self) -> bool:
        """Whether it changes the labels that it trains on."""
        return False

    @property
    def colludes(self) -> bool:
        """Whether all adversaries of a round draw the same random numbers, so that they agree."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """What must travel besides the mean for the attack to have a meaning."""
        return frozenset()

    def poison(self, labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
        """The labels that it trains on in place of its own [N]."""
        return labels

    @abstractmethod
    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        """What it sends in place of the reply that its training made. Nothing given is changed."""


class VectorAttack(Attack):
    """An attack that sends another update, and for the rest what an honest party sends."""

    @abstractmethod
    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        """The update [K] that it sends in place of its own [K]."""

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        mean = self.send(scene, own.message.mean, generator)
        return replace(own, message=own.message._replace(mean=mean))


@dataclass(frozen=True)
class Wrapper(Attack):
    """An attack around another one, with which it does everything that it does not do itself."""

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
