"""Metrics: pure functions on tensors."""

from steelyard.metrics.accuracy import accuracy, nll
from steelyard.metrics.calibration import Bins, bins, brier, ece, entropy
from steelyard.metrics.correlation import rank_correlations, spearman
from steelyard.metrics.detection import auroc, detection
from steelyard.metrics.fairness import fairness, worst
from steelyard.metrics.temperature import fit_temperature, merge_temperatures, scaled

__all__ = [
    "Bins",
    "accuracy",
    "auroc",
    "bins",
    "brier",
    "detection",
    "ece",
    "entropy",
    "fairness",
    "fit_temperature",
    "merge_temperatures",
    "nll",
    "rank_correlations",
    "scaled",
    "spearman",
    "worst",
]
