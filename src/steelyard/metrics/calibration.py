"""How honest the probabilities of predicted log-probabilities [N, C] are; everything in float64."""

from typing import NamedTuple

import torch
from torch import Tensor

from steelyard.metrics.accuracy import nll

BINS = 15


class Bins(NamedTuple):
    """Predictions by confidence: the mean confidence, the accuracy and the size of each bin.

    An empty bin has confidence and accuracy 0.
    """

    confidence: Tensor
    accuracy: Tensor
    size: Tensor

    @property
    def ece(self) -> float:
        """The gap between confidence and accuracy, averaged over the examples."""
        return float(self.size @ (self.accuracy - self.confidence).abs() / self.size.sum())


def bins(log_probabilities: Tensor, targets: Tensor, count: int = BINS) -> Bins:
    """Bins of equal width over the confidence, (0, 1/count], ..., (1 - 1/count, 1], as in Guo et al. 2017."""
    highest, predicted = log_probabilities.to(torch.float64).max(dim=1)
    confidence = highest.exp()
    edges = torch.linspace(0, 1, count + 1, dtype=torch.float64)
    place = torch.bucketize(confidence, edges[1:-1])
    sizes = torch.bincount(place, minlength=count).double()
    held = sizes.clamp(min=1)
    right = (predicted == targets).double()
    return Bins(
        torch.bincount(place, confidence, minlength=count) / held,
        torch.bincount(place, right, minlength=count) / held,
        sizes,
    )


def ece(log_probabilities: Tensor, targets: Tensor) -> float:
    """Expected calibration error (Naeini et al. 2015; Guo et al. 2017, eq. 3), from 0 to 1."""
    return bins(log_probabilities, targets).ece


def brier(log_probabilities: Tensor, targets: Tensor) -> float:
    """The squared distance of the probabilities from the truth, averaged over the examples: from 0 to 2."""
    probabilities = log_probabilities.to(torch.float64).exp()
    of_truth = probabilities.gather(1, targets.unsqueeze(1)).squeeze(1)
    return float((probabilities.square().sum(dim=1) - 2 * of_truth + 1).mean())


def entropy(log_probabilities: Tensor) -> Tensor:
    """How undecided each prediction is, [N], in nats."""
    each: Tensor = torch.special.entr(log_probabilities.to(torch.float64).exp())
    return each.sum(dim=1)


def calibration_scores(log_probabilities: Tensor, targets: Tensor, suffix: str = "") -> dict[str, float]:
    """What the probabilities are worth, each the better the smaller; the suffix goes to their names."""
    measures = {"nll": nll, "ece": ece, "brier": brier}
    return {name + suffix: measure(log_probabilities, targets) for name, measure in measures.items()}
