"""Calibration: the values of torchmetrics, scikit-learn and scipy, and by hand."""

from typing import Any

import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import brier_score_loss
from torch import Tensor
from torchmetrics.functional.classification import (  # for tests only: it takes seconds to import
    binary_auroc,
    multiclass_calibration_error,
)

from steelyard.metrics import auroc, bins, brier, ece, entropy
from steelyard.metrics.scores import calibration_scores

Array = NDArray[Any]


def predictions(seed: int, count: int = 500, classes: int = 7, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities, and targets drawn from flatter ones: the predictions are overconfident."""
    random = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, classes, generator=random, dtype=torch.float64)
    targets = torch.multinomial((logits / 2).softmax(1), 1, generator=random).squeeze(1)
    return logits.log_softmax(1), targets


def naive_ece(probabilities: Array, targets: Array) -> float:
    """Guo et al. 2017, eq. 3: Σ_m |B_m| / n · |acc(B_m) − conf(B_m)|."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == targets
    total = 0.0
    for m in range(1, 16):
        b_m = (confidence > (m - 1) / 15) & (confidence <= m / 15)
        if b_m.any():
            total += b_m.sum() / len(targets) * abs(right[b_m].mean() - confidence[b_m].mean())
    return total


def sure(*confidences: float) -> Tensor:
    """Two classes, the first with these probabilities."""
    first = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([first, 1 - first], dim=1).log()


@pytest.mark.parametrize("scale", [0.3, 2.0, 6.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_calibration_error_is_that_of_torchmetrics_and_of_the_equation(seed: int, scale: float) -> None:
    predicted, targets = predictions(seed, scale=scale)
    found = ece(predicted, targets)
    wanted = multiclass_calibration_error(predicted.exp(), targets, num_classes=7, n_bins=15)
    assert found == pytest.approx(float(wanted), abs=1e-6), "torchmetrics counts in float32"
    assert found == pytest.approx(naive_ece(predicted.exp().numpy(), targets.numpy()), abs=1e-12)
    assert found > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_brier_and_entropy_are_those_of_scikit_learn_and_scipy(seed: int) -> None:
    predicted, targets = predictions(seed)
    probabilities = predicted.exp().numpy()
    wanted = brier_score_loss(targets, probabilities, labels=range(7), scale_by_half=False)
    assert brier(predicted, targets) == pytest.approx(wanted, abs=1e-12)
    torch.testing.assert_close(entropy(predicted), torch.tensor(scipy_entropy(probabilities, axis=1)))


@pytest.mark.parametrize("levels", [4, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_auroc_is_that_of_torchmetrics_with_and_without_ties(seed: int, levels: int) -> None:
    random = torch.Generator().manual_seed(seed)
    inside = torch.randint(0, levels, (40,), generator=random).double() / levels
    outside = torch.randint(0, levels, (25,), generator=random).double() / levels * 1.2
    kinds = torch.tensor([0] * 40 + [1] * 25)
    wanted = binary_auroc(torch.cat([inside, outside]) / 2, kinds)  # halved: it wants probabilities
    assert auroc(inside, outside) == pytest.approx(float(wanted), abs=1e-6)
    assert auroc(inside, outside) + auroc(outside, inside) == pytest.approx(1)


def test_auroc_by_hand() -> None:
    inside, outside = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.3, 0.0])
    assert auroc(inside, outside) == pytest.approx(2.5 / 6)
    assert auroc(inside, inside + 1) == 1


def test_bins_by_hand() -> None:
    predicted = sure(0.61, 0.65, 0.62, 0.3, 1.0)  # the fourth is for the second class, 0.7 sure
    found = bins(predicted, torch.tensor([0, 1, 0, 1, 0]))
    assert found.size.tolist() == [0] * 9 + [3, 1, 0, 0, 0, 1]
    assert found.confidence[[9, 10, 14]].tolist() == pytest.approx([(0.61 + 0.65 + 0.62) / 3, 0.7, 1.0])
    assert found.accuracy[[9, 10, 14]].tolist() == pytest.approx([2 / 3, 1.0, 1.0])
    assert found.confidence[:9].tolist() == found.accuracy[:9].tolist() == [0] * 9
    gaps = 3 * abs(2 / 3 - (0.61 + 0.65 + 0.62) / 3) + 0.3 + 0
    assert found.ece == pytest.approx(gaps / 5)


def test_an_edge_belongs_to_the_bin_below_it() -> None:
    """As in Guo et al.; torchmetrics gives it to the bin above, and full certainty a bin of its own."""
    found = bins(sure(0.75, 0.76, 1.0), torch.zeros(3, dtype=torch.int64), count=4)
    assert found.size.tolist() == [0, 0, 1, 2]


def test_predictions_that_are_certain_have_no_nan() -> None:
    predicted = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]])
    right, wrong = torch.tensor([0, 0]), torch.tensor([1, 1])
    assert (ece(predicted, right), brier(predicted, right)) == (0, 0)
    assert (ece(predicted, wrong), brier(predicted, wrong)) == (1, 2)
    assert entropy(predicted).tolist() == [0, 0]


def test_scores_of_a_large_float32_prediction_are_summed_in_float64() -> None:
    one, target = sure(0.8).float(), torch.zeros(1, dtype=torch.int64)
    many = one.expand(3_000_000, 2)
    for name, score in calibration_scores(many, target.expand(3_000_000)).items():
        assert score == pytest.approx(calibration_scores(one, target)[name], rel=1e-9), name
    assert entropy(one).dtype == bins(one, target).confidence.dtype == torch.float64
