"""Calibration of predicted log-probabilities [N, C], computed in float64."""

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 15


class Bins(NamedTuple):
    """Predictions grouped by confidence: mean confidence, accuracy and size of each bin.

    Empty bins have confidence and accuracy 0.
    """

    confidence: Tensor
    accuracy: Tensor
    size: Tensor

    @property
    def ece(self) -> float:
        """The gap |accuracy − confidence| of each bin, averaged over the examples."""
        return float(self.size @ (self.accuracy - self.confidence).abs() / self.size.sum())


def bin_sums(confidence: Tensor, right: Tensor, count: int = BINS) -> Tensor:
    """Examples, summed confidence and right answers in each bin, [3, count], of float64 columns [N].

    Bins have equal width over the confidence, (0, 1/count], ..., (1 - 1/count, 1], as in Guo et al. 2017.
    """
    edges = torch.linspace(0, 1, count + 1, dtype=torch.float64)
    place = torch.bucketize(confidence, edges[1:-1])
    columns = (torch.bincount(place, weights, minlength=count) for weights in (None, confidence, right))
    return torch.stack([column.double() for column in columns])


def bins_of(sums: Tensor) -> Bins:
    """The bins of sums [3, B]."""
    sizes, confidence, right = sums
    filled = sizes.clamp(min=1)
    return Bins(confidence / filled, right / filled, sizes)


def bins(log_probabilities: Tensor, targets: Tensor, count: int = BINS) -> Bins:
    """Predictions by confidence, in bins of equal width."""
    highest, predicted = log_probabilities.to(torch.float64).max(dim=1)
    return bins_of(bin_sums(highest.exp(), (predicted == targets).double(), count))


def ece(log_probabilities: Tensor, targets: Tensor) -> float:
    """Expected calibration error (Naeini et al. 2015; Guo et al. 2017, eq. 3), from 0 to 1."""
    return bins(log_probabilities, targets).ece


def brier(log_probabilities: Tensor, targets: Tensor) -> float:
    """Brier score: the mean of ‖p − one_hot(target)‖² over the examples, from 0 to 2."""
    probabilities = log_probabilities.to(torch.float64).exp()
    of_target = probabilities.gather(1, targets.unsqueeze(1)).squeeze(1)
    return float((probabilities.square().sum(dim=1) - 2 * of_target + 1).mean())


def entropy(log_probabilities: Tensor) -> Tensor:
    """The entropy of each prediction, [N], in nats."""
    terms: Tensor = torch.special.entr(log_probabilities.to(torch.float64).exp())
    return terms.sum(dim=1)
