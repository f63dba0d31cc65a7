"""Metrics that a spec can name. Each is an object of torchmetrics whose states are sums.

`num_classes` comes from the data. torchmetrics takes seconds to import, so it is imported when one is made.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Literal

__all__ = [
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "f1",
    "kappa",
    "matthews",
    "mean_absolute_error",
    "precision",
    "recall",
    "top_k",
]

Average = Literal["micro", "macro", "weighted"]
Mode = Literal["min", "max"]
MODES: Mapping[str, Mode] = {
    "auroc": "max",
    "average_precision": "max",
    "balanced_accuracy": "max",
    "f1": "max",
    "kappa": "max",
    "matthews": "max",
    "mean_absolute_error": "min",
    "precision": "max",
    "recall": "max",
    "top_k": "max",
}
"""Whether each is better when it is larger ("max") or smaller ("min")."""


def auroc(num_classes: int, thresholds: int = 200) -> Any:
    """Area under the ROC curve, at so many thresholds; of more than two classes, the mean over them."""
    return _of_classes("AUROC", num_classes, thresholds=thresholds)


def average_precision(num_classes: int, thresholds: int = 200) -> Any:
    """Area under the precision-recall curve, at so many thresholds; of more classes, the mean over them."""
    return _of_classes("AveragePrecision", num_classes, thresholds=thresholds)


def balanced_accuracy(num_classes: int) -> Any:
    """The mean over classes of the share of right answers."""
    return _multiclass("Accuracy", num_classes, average="macro")


def f1(num_classes: int, average: Average = "macro") -> Any:
    """F1 score: the harmonic mean of precision and recall."""
    return _multiclass("F1Score", num_classes, average=average)


def precision(num_classes: int, average: Average = "macro") -> Any:
    """The share of predictions of a class that are right."""
    return _multiclass("Precision", num_classes, average=average)


def recall(num_classes: int, average: Average = "macro") -> Any:
    """The share of a class that is found."""
    return _multiclass("Recall", num_classes, average=average)


def top_k(num_classes: int, k: int = 5) -> Any:
    """The share of examples whose class is among the k most probable."""
    return _multiclass("Accuracy", num_classes, average="micro", top_k=k)


def kappa(num_classes: int) -> Any:
    """Cohen's kappa: agreement beyond chance."""
    return _multiclass("CohenKappa", num_classes)


def matthews(num_classes: int) -> Any:
    """Matthews correlation coefficient."""
    return _multiclass("MatthewsCorrCoef", num_classes)


def mean_absolute_error() -> Any:
    """Mean absolute error, for regression."""
    return importlib.import_module("torchmetrics").MeanAbsoluteError()


def _of_classes(name: str, num_classes: int, **settings: Any) -> Any:
    if num_classes > 2:
        return _multiclass(name, num_classes, **settings)
    return getattr(importlib.import_module("torchmetrics.classification"), f"Binary{name}")(**settings)


def _multiclass(name: str, num_classes: int, **settings: Any) -> Any:
    module = importlib.import_module("torchmetrics.classification")
    return getattr(module, f"Multiclass{name}")(num_classes, **settings)
