"""Updates that an adversary computes without knowing the others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.attacks.base import Scene, VectorAttack
from steelyard.errors import NOT_NEGATIVE, check_settings


@dataclass(frozen=True)
class Gaussian(VectorAttack):
    """Send noise, N(0, scale²) in each coordinate (Blanchard et al., 2017)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_settings("attack 'gaussian': ", self, scale=NOT_NEGATIVE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return self.scale * torch.randn(own.shape, generator=generator, dtype=own.dtype)


@dataclass(frozen=True)
class SignFlip(VectorAttack):
    """Send the opposite of the honest update, −scale · u (Li et al., 2019)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_settings("attack 'sign-flip': ", self, scale=NOT_NEGATIVE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return -self.scale * own


@dataclass(frozen=True)
class Scaled(VectorAttack):
    """Send `scale` × the honest update, to outweigh the other clients (Bagdasaryan et al., 2020)."""

    scale: float = 10.0

    def __post_init__(self) -> None:
        check_settings("attack 'scaled': ", self, scale=NOT_NEGATIVE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return self.scale * own
