"""One number that makes a classifier as sure as it should be: T in softmax(logits / T), Guo et al. 2017.

Log-probabilities serve as well as logits: they differ by a constant in each row, which the softmax ignores.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

COLDEST, HOTTEST = 1 / 20, 20.0
PRIOR = 0.5  # standard deviation of log T before anything is seen
IMPOSSIBLE = -1e6  # stands for log 0, which has no multiples
STEPS, PRECISION = 100, 1e-10  # of log T; a bisection alone would take 36 steps


def fit_temperature(log_probabilities: Tensor, targets: Tensor) -> float:
    """The T that is the most likely after these examples; before them, log T is N(0, 0.5²).

    A few examples that happen to be all right would else ask for the coldest there is. Without any, T is 1.
    A row with a nan says nothing.
    """
    whole = ~log_probabilities.isnan().any(dim=1)
    scores = log_probabilities[whole].to(torch.float64).clamp(min=IMPOSSIBLE)
    if not len(scores):
        return 1.0
    scores = scores - scores.max(dim=1, keepdim=True).values
    truth = scores.gather(1, targets[whole].unsqueeze(1)).squeeze(1)
    low, high, at = math.log(COLDEST), math.log(HOTTEST), 0.0
    for _ in range(STEPS):  # Newton, or a bisection where that would leave what is still possible
        slope, bend = _slope(scores, truth, at)
        low, high = (at, high) if slope < 0 else (low, at)
        newton = at - slope / bend if bend > 0 else math.inf
        following = newton if low <= newton <= high else (low + high) / 2
        if abs(following - at) < PRECISION:
            break
        at = following
    return math.exp(following)


def _slope(scores: Tensor, truth: Tensor, log_temperature: float) -> tuple[float, float]:
    """The first two derivatives, by log T, of the negative log-posterior."""
    inverse = math.exp(-log_temperature)
    probabilities = (inverse * scores).softmax(dim=1)
    mean = (probabilities * scores).sum(dim=1)
    variance = (probabilities * (scores - mean.unsqueeze(1)).square()).sum(dim=1)
    pull = inverse * float((truth - mean).sum())
    slope = pull + log_temperature / PRIOR**2
    return slope, inverse**2 * float(variance.sum()) - pull + 1 / PRIOR**2


def merge_temperatures(temperatures: Sequence[float], weights: Sequence[float]) -> float:
    """The clients' weighted geometric mean: T is a scale, so that 2 and 1/2 make 1."""
    logs = torch.tensor(temperatures, dtype=torch.float64).log()
    shares = torch.tensor(weights, dtype=torch.float64)
    return math.exp(float(logs @ shares / shares.sum()))


def scaled(log_probabilities: Tensor, temperature: float) -> Tensor:
    """The log-probabilities at a temperature, normalised, in float64."""
    return (log_probabilities.to(torch.float64) / temperature).log_softmax(dim=1)


def common_temperature(held_out: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Each client's temperature on its (log-probabilities, targets), merged by the number of examples."""
    fitted = [(fit_temperature(*each), float(len(each[1]))) for each in held_out]
    return merge_temperatures(*zip(*fitted, strict=True))
