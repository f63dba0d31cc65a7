"""False claims about counts and variances, and attacks on some coordinates, combined with another attack."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene, Wrapper
from steelyard.attacks.vectors import Gaussian, SignFlip
from steelyard.errors import InputError
from steelyard.types import Message, Reply

MAX_CLAIM = 10_000_000  # examples; with default settings the server rejects larger claims


@dataclass(frozen=True)
class InflatedCount(Wrapper):
    """Claim `factor` × the true number of examples, up to ten million, on top of another attack."""

    attack: Attack = SignFlip()  # noqa: RUF009 - a frozen value
    factor: float = 100.0

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise InputError(f"attack 'inflated-count': factor must be at least 1, not {self.factor}.")

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        sent = self.attack.reply(scene, own, generator)
        return replace(sent, num_examples=int(min(self.factor * sent.num_examples, MAX_CLAIM)))


@dataclass(frozen=True)
class VarianceDeflation(Wrapper):
    """Send `factor` × the honest variance, on top of another attack; needs messages with a variance.

    With a factor below 1, rules that weigh by precision follow the adversaries only. With a factor above 1,
    rules that add up variances end with a posterior that is far too wide. A federation in which no variances
    are sent refuses the attack.
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
    """Attack the last `size` coordinates only, for example the output layer, and be honest in the others.

    So few coordinates hardly change the update's norm and angles.
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

    def _splice(self, honest: Tensor, attacked: Tensor) -> Tensor:
        return torch.cat([honest[: -self.size], attacked[-self.size :]])
