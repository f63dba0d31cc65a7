"""Variational inference: fit the data and stay near the prior (BA-BFL, eq. 3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from steelyard.errors import InputError, unknown
from steelyard.nn.variational import Gaussian, gaussians
from steelyard.objectives.base import Local, LocalLoss, Objective, Wrapper
from steelyard.objectives.cross_entropy import CrossEntropy

Prior = Literal["standard", "global"]


@dataclass(frozen=True)
class Elbo(Wrapper):
    """The negative ELBO per example: another objective + kl_weight · KL(posterior‖prior) / examples (BA-BFL).

    The prior of the Bayesian weights is N(0, 1) or, with `global`, the posterior that came down. The KL and
    its gradient are closed forms; the reported loss is the whole sum.
    """

    kl_weight: float = 1.0
    prior: Prior = "standard"
    base: Objective = CrossEntropy()  # noqa: RUF009 - a frozen value

    def __post_init__(self) -> None:
        if not 0 <= self.kl_weight < math.inf:
            raise InputError(
                f"objective 'elbo': kl_weight must be a number of at least 0, not {self.kl_weight}."
            )
        if self.prior not in get_args(Prior):
            raise unknown("prior", str(self.prior), get_args(Prior), of="objective 'elbo'")

    def bind(self, local: Local) -> LocalLoss:
        base, posteriors = self.base.bind(local), gaussians(local.model)
        if not posteriors:
            raise InputError(
                "objective 'elbo' needs a model with Bayesian layers; make one with `sy.bayesian(model, "
                "last=n)` (in a spec, the model 'bayesian'), or take the objective cross-entropy."
            )
        if self.kl_weight == 0:
            return LocalLoss(base.loss, base.add_gradient)
        divergence = Divergence(posteriors, self.prior)
        scale = self.kl_weight / max(local.num_examples, 1)

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            return base.loss(inputs, targets) + scale * divergence.measure()

        def add_gradient() -> None:
            base.add_gradient()
            divergence.add_gradient(scale)

        return LocalLoss(loss, add_gradient)


class Divergence:
    """The KL from a prior, ½ Σ [r − 1 − log r + (μ − m)²/s²] with r = σ²/s², outside of autograd.

    It is computed on all means in one vector and all spreads in another, because most layers are so small
    that a kernel takes longer to call than to run.
    """

    def __init__(self, posteriors: Sequence[Gaussian], prior: Prior) -> None:
        self.parameters = [each.mean for each in posteriors] + [each.spread for each in posteriors]
        self.plain = [parameter.detach() for parameter in self.parameters]
        self.pace = torch.cat([each.pace.expand_as(each.spread).reshape(-1) for each in posteriors])
        self.values = self.pace.new_zeros(2, len(self.pace))
        self.slopes = torch.zeros_like(self.values)
        self.value_parts, self.slope_parts = (_split(each, self.plain) for each in (self.values, self.slopes))
        if prior == "global":
            torch._foreach_copy_(self.value_parts, self.plain)
        self.center, spreads = self.values.clone()
        self.twice = 2 * self.pace
        self.log_precision = -self.twice * spreads
        self.precision = self.log_precision.exp()

    @torch.no_grad()
    def measure(self) -> Tensor:
        """The KL; its slopes are kept for `add_gradient`."""
        torch._foreach_copy_(self.value_parts, self.plain)
        means, spreads = self.values
        by_means, by_spreads = self.slopes
        way = means.sub_(self.center)
        torch.mul(way, self.precision, out=by_means)
        log_ratio = torch.addcmul(self.log_precision, self.twice, spreads, out=spreads)
        excess = torch.exp(log_ratio, out=by_spreads).sub_(1)
        value: Tensor = (way @ by_means + excess.sum() - log_ratio.sum()) / 2
        excess.mul_(self.pace)
        return value

    @torch.no_grad()
    def add_gradient(self, scale: float) -> None:
        """Add scale · (μ − m)/s² to the gradients of the means, scale · pace · (r − 1) to the spreads'."""
        pairs = zip([each.grad for each in self.parameters], self.slope_parts, strict=True)
        trained = [(gradient, slope) for gradient, slope in pairs if gradient is not None]
        if trained:
            gradients, slopes = map(list, zip(*trained, strict=True))
            torch._foreach_add_(gradients, slopes, alpha=scale)


def _split(rows: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Parts of a matrix, row after row, each in its shape."""
    parts = torch.split(rows.view(-1), [each.numel() for each in like])
    return [part.view(each.shape) for part, each in zip(parts, like, strict=True)]
