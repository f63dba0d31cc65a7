"""Malformed replies, which the server must reject."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steelyard.attacks.base import Attack, Scene, VectorAttack
from steelyard.types import Reply


@dataclass(frozen=True)
class NonFinite(VectorAttack):
    """Send the honest update with NaN in one coordinate."""

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        position = torch.randint(len(own), (1,), generator=generator)
        return own.index_fill(0, position, float("nan"))


@dataclass(frozen=True)
class WrongShape(VectorAttack):
    """Send the honest update without its last coordinate."""

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return own[:-1].clone()


@dataclass(frozen=True)
class WrongDtype(VectorAttack):
    """Send the honest update in float64, or in float32 if float64 is expected."""

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return own.float() if own.dtype == torch.float64 else own.double()


@dataclass(frozen=True)
class MissingTensor(Attack):
    """Send a message without an update."""

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        missing: Any = None
        return replace(own, message=own.message._replace(mean=missing))


@dataclass(frozen=True)
class ExtraTensor(Attack):
    """Send one tensor too many: a variance if none is expected, otherwise two."""

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        mean, variance = own.message
        extra = torch.ones_like(mean) if variance is None else torch.stack([variance, variance])
        return replace(own, message=own.message._replace(variance=extra))
