"""Merge running statistics (BatchNorm's means and variances), which no weighing rule sees.

A client with honest parameters could send any statistics, so each coordinate is merged robustly by itself.
"""

from typing import Literal

import torch
from torch import Tensor

from steelyard.combining.median import Median
from steelyard.layout import Layout
from steelyard.types import Stack

StatisticsRule = Literal["bounded", "median", "mean"]
MAX_DEVIATIONS = 2.0  # standard deviations of the round's values from their median; larger ones are cut off
MAD_TO_SD = 1.4826  # standard deviation / median absolute deviation of a normal distribution


def merge_statistics(changes: Tensor, weights: Tensor, rule: StatisticsRule) -> tuple[Tensor, Tensor]:
    """The merged change [S] of the changes [J, S], and the share of each client's values that was cut off.

    "bounded" limits each value to `MAX_DEVIATIONS` standard deviations around the median of the round (both
    without weights, from the median absolute deviation) and takes the weighted mean; "median" is the weighted
    median. Negative weights count as 0.
    """
    shares = weights.clamp(min=0.0)
    shares = shares / shares.sum()
    uncut = torch.zeros(len(changes), dtype=torch.float64)
    if rule == "median":
        return Median().combine(Stack(changes), shares).mean, uncut
    if rule == "mean" or len(changes) < 3:
        return shares.to(changes.dtype) @ changes, uncut
    median = changes.quantile(0.5, dim=0)
    limit = MAX_DEVIATIONS * MAD_TO_SD * (changes - median).abs().quantile(0.5, dim=0)
    bounded = torch.minimum(torch.maximum(changes, median - limit), median + limit)
    return shares.to(changes.dtype) @ bounded, (bounded != changes).double().mean(dim=1)


def are_variances(layout: Layout) -> Tensor:
    """Which statistics are variances and so never negative, [S]."""
    return torch.cat(
        [
            torch.full((entry.stop - entry.start,), entry.name.endswith("running_var"))
            for entry in layout.buffers
        ]
        or [torch.zeros(0, dtype=torch.bool)]
    )
