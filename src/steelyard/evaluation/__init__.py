"""What a model is worth: pure functions on predictions, and the scorer that applies them."""

from steelyard.evaluation.accuracy import accuracy, nll
from steelyard.evaluation.calibration import Bins, bins, brier, ece, entropy
from steelyard.evaluation.coupling import coupling, spearman
from steelyard.evaluation.detection import auroc, detection
from steelyard.evaluation.fairness import fairness, worst
from steelyard.evaluation.predict import predict
from steelyard.evaluation.scoring import Scorer
from steelyard.evaluation.temperature import fit_temperature, merge_temperatures, scaled

__all__ = [
    "Bins",
    "Scorer",
    "accuracy",
    "auroc",
    "bins",
    "brier",
    "coupling",
    "detection",
    "ece",
    "entropy",
    "fairness",
    "fit_temperature",
    "merge_temperatures",
    "nll",
    "predict",
    "scaled",
    "spearman",
    "worst",
]
