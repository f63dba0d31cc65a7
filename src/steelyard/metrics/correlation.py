"""Rank correlation of clients' weights and evidence with their accuracies."""

from collections.abc import Mapping

from torch import Tensor


def rank_correlations(columns: Mapping[str, Tensor], accuracy: Tensor) -> dict[str, float]:
    """Spearman's rank correlation of each column [J] (weight, reliability, ...) with client accuracy [J].

    Clients without an accuracy (nan) are ignored. Undefined correlations are left out: those of fewer than
    three clients, or of constant values.
    """
    known = ~accuracy.isnan()
    values = {name: spearman(column[known], accuracy[known]) for name, column in columns.items()}
    return {f"{name}_accuracy_spearman": value for name, value in values.items() if value is not None}


def spearman(first: Tensor, second: Tensor) -> float | None:
    """Spearman's rank correlation; None if undefined. Without scipy.stats, whose import takes 0.5 s."""
    if len(first) < 3:
        return None
    left, right = ranks(first), ranks(second)
    left, right = left - left.mean(), right - right.mean()
    scale = (left.square().sum() * right.square().sum()).sqrt()
    return float((left @ right) / scale) if bool(scale > 0) else None


def ranks(values: Tensor) -> Tensor:
    """Ranks from 1; equal values get the mean of their ranks."""
    smaller = (values.unsqueeze(1) > values).sum(dim=1)
    equal = (values.unsqueeze(1) == values).sum(dim=1)
    return smaller + (equal + 1).double() / 2
