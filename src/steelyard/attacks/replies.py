"""Lies about what goes with an update, around an attack on the update itself."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene, Wrapper
from steelyard.attacks.vectors import Gaussian, SignFlip
from steelyard.errors import InputError
from steelyard.types import Message, Reply

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

    Rules that weigh by precision then hear nobody else. A factor above 1 inflates: rules that add variances
    up then know nothing any more. Without a variance there is nothing to change, and a federation refuses
    the attack.
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


@dataclass(frozen=True)
class Tail(Wrapper):
    """Attack the last `size` coordinates only, the output layer say, and be honest in all others.

    An update is then foreign in so few places that its length and its angles hardly show it.
    """

    attack: Attack = Gaussian()  # noqa: RUF009 - a frozen value
    size: int = 850

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"attack 'tail': size must be at least 1, not {self.size}.")

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        sent = self.attack.reply(scene, own, generator)
        mean = self._splice(own.message.mean, sent.message.mean)
        variance = sent.message.variance
        if own.message.variance is not None and variance is not None:
            variance = self._splice(own.message.variance, variance)
        return replace(sent, message=Message(mean, variance))

    def _splice(self, honest: Tensor, false: Tensor) -> Tensor:
        return torch.cat([honest[: -self.size], false[-self.size :]])
