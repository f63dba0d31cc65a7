"""Clients share posteriors: the mean of every parameter, and the variance of the Bayesian ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from steelyard.devices import exact
from steelyard.errors import InputError
from steelyard.layout import Entry, Layout, flatten, layout_of, load
from steelyard.nn.variational import Gaussian, log_sigma_names, posterior_of
from steelyard.sharing.base import Sharing, Tensors
from steelyard.types import EMPTY, Message, State

MIN_VARIANCE, MAX_VARIANCE = 1e-20, 1e20  # of a Bayesian weight; float32 training works at both ends


@dataclass(frozen=True)
class Posterior(Sharing):
    """Share means and variances. The variance is 0 for parameters that are not Bayesian, and only for these.

    Messages carry σ², not the parameters that layers store for it (`steelyard.nn.variational`).
    """

    @property
    def slots(self) -> frozenset[str]:
        return frozenset({"mean", "variance"})

    def layout(self, model: nn.Module) -> Layout:
        log_sigmas = log_sigma_names(model)
        layout = layout_of(model, leave_out=set(log_sigmas.values()))
        if tied := sorted(log_sigmas.keys() - {entry.name for entry in layout.parameters}):
            raise InputError(
                f"parameter {tied[0]!r} is Bayesian and tied to another layer's; make fewer layers Bayesian."
            )
        return layout

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        mean = flatten(tensors, layout)
        variance = torch.zeros_like(mean)
        for entry, posterior in _posteriors(tensors, layout):
            scale, log_sigma = exact(posterior.log_sigma_lr_scale), exact(posterior.log_sigma)
            log_variance = 2 * scale.double() * log_sigma.double()
            values = log_variance.exp().clamp(MIN_VARIANCE, MAX_VARIANCE)
            variance[entry.start : entry.stop] = values.reshape(-1)
        return Message(mean, variance)

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        load(tensors, message.mean, layout)
        assert message.variance is not None
        for entry, posterior in _posteriors(tensors, layout):
            variance = exact(message.variance[entry.start : entry.stop]).view(entry.shape).double()
            log_variance = variance.clamp(MIN_VARIANCE, MAX_VARIANCE).log()
            posterior.log_sigma.copy_(log_variance / (2 * exact(posterior.log_sigma_lr_scale).double()))

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return EMPTY


def _posteriors(tensors: Tensors, layout: Layout) -> Iterator[tuple[Entry, Gaussian]]:
    """The Bayesian parameters of a model: their place in the message and their posterior."""
    for entry in layout.parameters:
        posterior = posterior_of(entry.name, tensors)
        if posterior is not None:
            yield entry, posterior
