"""What a model is worth: pure functions on predictions, and the scorer that applies them."""

from steelyard.evaluation.accuracy import accuracy, nll
from steelyard.evaluation.coupling import coupling, spearman
from steelyard.evaluation.detection import detection
from steelyard.evaluation.fairness import fairness, worst
from steelyard.evaluation.predict import predict
from steelyard.evaluation.scoring import Scorer

__all__ = ["Scorer", "accuracy", "coupling", "detection", "fairness", "nll", "predict", "spearman", "worst"]
