"""Updates that adversaries compute from those of the honest clients."""

from dataclasses import dataclass
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.attacks.base import Scene, VectorAttack
from steelyard.errors import FINITE, NOT_NEGATIVE, check_settings


@dataclass(frozen=True)
class ALittleIsEnough(VectorAttack):
    """Send the honest mean shifted by z standard deviations, little enough to pass (Baruch et al., 2019).

    The default `z` is the paper's z_max for the round's number of clients (Algorithm 3, step 2).
    """

    z: float | None = None

    def __post_init__(self) -> None:
        check_settings("attack 'a-little-is-enough': ", self, z=FINITE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        honest = scene.known(own)
        z = largest_z(len(honest), scene.adversaries) if self.z is None else self.z
        return honest.mean(dim=0) - z * honest.std(dim=0, unbiased=False)


def largest_z(honest: int, adversaries: int) -> float:
    """z_max, the largest shift at which adversaries still have a majority: Φ⁻¹((n − m − s) / (n − m)).

    Of n clients, the m adversaries need s = ⌊n/2 + 1⌋ − m honest ones further from the mean than themselves.
    The share is clamped to 1 % to 99 %, which matters for example if adversaries are the majority.
    """
    needed = (honest + adversaries) // 2 + 1 - adversaries
    return NormalDist().inv_cdf(min(max((honest - needed) / honest, 0.01), 0.99))


@dataclass(frozen=True)
class InnerProduct(VectorAttack):
    """Send −ε times the honest mean, so that the merged update points away from it (Xie et al., 2020)."""

    epsilon: float = 0.5

    def __post_init__(self) -> None:
        check_settings("attack 'inner-product': ", self, epsilon=NOT_NEGATIVE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return -self.epsilon * scene.known(own).mean(dim=0)


@dataclass(frozen=True)
class Copies(VectorAttack):
    """All adversaries send nearly the same random direction, to look like a consensus.

    Its norm is `strength` × the median honest norm. `trace` × the sender's own update is added, so that no
    two are equal (Fung et al., 2020, on sybils).
    """

    strength: float = 1.0
    trace: float = 1e-3

    def __post_init__(self) -> None:
        check_settings("attack 'copies': ", self, strength=NOT_NEGATIVE, trace=NOT_NEGATIVE)

    @property
    def colludes(self) -> bool:
        return True

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        length: Tensor = self.strength * torch.linalg.vector_norm(scene.known(own), dim=1).quantile(0.5)
        direction = torch.randn(own.shape, generator=generator, dtype=own.dtype)
        return length * F.normalize(direction, dim=0) + self.trace * own


@dataclass(frozen=True)
class Oversized(VectorAttack):
    """Send `scale` × the honest mean: the angle is inconspicuous, and the model overshoots."""

    scale: float = 10.0

    def __post_init__(self) -> None:
        check_settings("attack 'oversized': ", self, scale=NOT_NEGATIVE)

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        return self.scale * scene.known(own).mean(dim=0)
