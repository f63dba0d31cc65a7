"""Temperature scaling (Guo et al. 2017): one T in softmax(logits / T) that makes a classifier calibrated.

Log-probabilities can be used as logits: they differ by a constant in each row, which does not change the
softmax.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

COLDEST, HOTTEST = 1 / 20, 20.0  # range of T
PRIOR = 0.5  # standard deviation of the prior of log T
MIN_SCORE = -1e6  # replaces log 0 = −∞, which cannot be divided by T
STEPS, PRECISION = 8, 1e-12  # of log T: steps from 0 to either end, error of the result


def fit_temperature(log_probabilities: Tensor, targets: Tensor) -> float:
    """The maximum a posteriori T for these examples, with the prior log T ~ N(0, 0.5²).

    Without the prior, a few examples that are all classified correctly would give the smallest T. If almost
    uniform predictions are all correct, the posterior can have two maxima: the one nearer to 1 is taken. Rows
    with a nan are ignored; without rows, T is 1.
    """
    from scipy.optimize import brentq  # here, because the import takes 0.3 s

    valid = ~log_probabilities.isnan().any(dim=1)
    scores = log_probabilities[valid].to(torch.float64).clamp(min=MIN_SCORE)
    if not len(scores):
        return 1.0
    scores = scores - scores.max(dim=1, keepdim=True).values
    target_scores = scores.gather(1, targets[valid].unsqueeze(1)).squeeze(1)

    def derivative(log_temperature: float) -> float:
        """d/d log T of the negative log-posterior."""
        inverse = math.exp(-log_temperature)
        mean = ((inverse * scores).softmax(dim=1) * scores).sum(dim=1)
        return inverse * float((target_scores - mean).sum()) + log_temperature / PRIOR**2

    slope = derivative(0.0)
    end = HOTTEST if slope < 0 else COLDEST
    for near, far in itertools.pairwise(math.log(end) * step / STEPS for step in range(STEPS + 1)):
        if slope * derivative(far) <= 0:
            return math.exp(brentq(derivative, near, far, xtol=PRECISION))
    return end


def merge_temperatures(temperatures: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted geometric mean of the clients' temperatures: 2 and 1/2 give 1."""
    logs = torch.tensor(temperatures, dtype=torch.float64).log()
    shares = torch.tensor(weights, dtype=torch.float64)
    return math.exp(float(logs @ shares / shares.sum()))


def scaled(log_probabilities: Tensor, temperature: float) -> Tensor:
    """Normalised log-probabilities at a temperature, in float64."""
    return (log_probabilities.to(torch.float64) / temperature).log_softmax(dim=1)
