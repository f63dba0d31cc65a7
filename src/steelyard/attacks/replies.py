"""Lies about what goes with an update, around an attack on the update itself."""

from dataclasses import dataclass, replace

import torch

from steelyard.attacks.base import Attack, Scene, Wrapper
from steelyard.attacks.vectors import SignFlip
from steelyard.errors import InputError
from steelyard.types import Reply

BELIEVED = 10_000_000  # examples; a server with the default settings sets larger claims aside


@dataclass(frozen=True)
class InflatedCount(Wrapper):
    """Claim `factor` times as many examples as there are, up to ten million, behind another attack."""

    attack: Attack = SignFlip()  # noqa: RUF009 - a frozen value
    factor: float = 100.0

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise InputError(f"attack 'inflated-count': factor must be at least 1, not {self.factor}.")

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        sent = self.attack.reply(scene, own, generator)
        return replace(sent, num_examples=int(min(self.factor * sent.num_examples, BELIEVED)))


@dataclass(frozen=True)
class VarianceDeflation(Wrapper):
    """Claim to be `factor` times as uncertain as one is, behind another attack; a variance must travel.

    Rules that weigh by precision then hear nobody else. Without a variance there is nothing to deflate, and a
    federation refuses the attack.
    """

    attack: Attack = SignFlip()  # noqa: RUF009 - a frozen value
    factor: float = 1e-6

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise InputError(
                f"attack 'variance-deflation': factor must be greater than 0, not {self.factor}."
            )

    @property
    def needs(self) -> frozenset[str]:
        return self.attack.needs | {"variance"}

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        sent = self.attack.reply(scene, own, generator)
        if sent.message.variance is None:
            return sent
        return replace(sent, message=sent.message._replace(variance=self.factor * sent.message.variance))
