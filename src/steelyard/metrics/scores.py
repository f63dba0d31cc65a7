"""Scores of predictions as sums over examples: scores of several data sets add up.

A site sends scores in place of labels and predictions. Sums over very few examples still say much about each:
a calibration bin with one example holds its confidence. Details are sent only where the server needs them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from steelyard.metrics.calibration import BINS, Bins, bin_sums, bins_of
from steelyard.metrics.temperature import scaled

Array = NDArray[np.float64]
MAX_CONFUSION = 100  # classes; with more, the confusion matrix has the columns "right" and "wrong" only
CLASS_SUMS = 5  # count, right, nll, brier, log temperature
LABEL_SUMS = 4  # count, right, nll, all right; then three for each label
NUMBER_SUMS = 4  # count, squared error, target, target squared; three for each output
LOSS_SUMS = 2  # count, loss
MAX_OUTPUTS = 100  # numbers of an example; with more, their means are summed
NO_SUMS = np.zeros(0)
Kind = Literal["classes", "labels", "numbers", "loss"]


class Scores(NamedTuple):
    """Sums over the examples of one data set, as one vector of float64.

    Classes: count, right answers, negative log-likelihood, Brier score, log temperature; with detail also
    calibration bins [3, 15] and the confusion matrix [C, C] (true class, predicted class). Where examples
    have a class for each token or pixel, these are counted. Labels (several classes at once): count, share of
    right labels, negative log-likelihood, examples with all labels right; true positives, false positives and
    false negatives of each label [3, L]. Numbers: count; squared error, targets and squared targets of each
    output [3, D]. Else: count (of tokens, if the loss is a mean over them), loss.
    """

    values: Array
    classes: int
    """0 if targets are no class numbers."""
    labels: int = 0
    """The number of labels; 0 if targets are not labels."""
    own: Array = NO_SUMS
    """Sums of the user's own metrics."""

    def __add__(self, other: "Scores") -> "Scores":  # type: ignore[override]
        return self._replace(values=self.values + other.values, own=self.own + other.own)

    @property
    def kind(self) -> Kind:
        """What the targets are."""
        if self.classes:
            return "classes"
        return "labels" if self.labels else "loss" if len(self.values) == LOSS_SUMS else "numbers"

    @property
    def main(self) -> float:
        """The number that stands for these scores: accuracy, mean squared error, or mean loss."""
        if self.kind == "numbers":
            return self.mse
        return float(self.values[1] / self.values[0])

    @property
    def num_examples(self) -> int:
        return int(self.values[0])

    @property
    def accuracy(self) -> float:
        """The share of right answers: of examples, tokens or pixels, or of labels."""
        return float(self.values[1] / self.values[0])

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood; of labels, the mean over them."""
        return float(self.values[2] / self.values[0])

    @property
    def brier(self) -> float:
        """Mean squared distance of the probabilities from the truth, from 0 to 2."""
        return float(self.values[3] / self.values[0])

    @property
    def exact_match(self) -> float:
        """The share of examples with all labels right."""
        return float(self.values[3] / self.values[0])

    @property
    def f1(self) -> float:
        """2 TP / (2 TP + FP + FN) over all labels together; nan without positives."""
        true, *false = self.values[LABEL_SUMS:].reshape(3, -1).sum(axis=1)
        total = 2 * true + sum(false)
        return float(2 * true / total) if total > 0 else float("nan")

    @property
    def log_temperature(self) -> float:
        """Mean log T over the examples; 0 unless a temperature was fitted."""
        return float(self.values[4] / self.values[0]) if self.classes else 0.0

    @property
    def has_detail(self) -> bool:
        return self.classes > 0 and len(self.values) > CLASS_SUMS

    @property
    def bins(self) -> Bins:
        """Calibration bins."""
        return bins_of(torch.from_numpy(self.values[CLASS_SUMS : CLASS_SUMS + 3 * BINS].reshape(3, BINS)))

    @property
    def confusion(self) -> Array:
        """Examples by true and predicted class, [C, C]; with many classes by right and wrong, [C, 2]."""
        return self.values[CLASS_SUMS + 3 * BINS :].reshape(self.classes, -1)

    @property
    def recall(self) -> tuple[Array, Array]:
        """Examples of each class and the share of them that is right, [C] each; 0 where there are none."""
        confusion = self.confusion
        counts = confusion.sum(axis=1)
        right = confusion.diagonal() if self.classes <= MAX_CONFUSION else confusion[:, 0]
        return counts, right / np.maximum(counts, 1)

    def calibration(self, suffix: str = "") -> dict[str, float]:
        """How good the probabilities are, lower is better; the suffix is added to the names. Needs detail."""
        return {f"nll{suffix}": self.nll, f"ece{suffix}": self.bins.ece, f"brier{suffix}": self.brier}

    @property
    def mse(self) -> float:
        """Mean squared error, over outputs too."""
        return float(self._of_outputs[0].mean() / self.values[0])

    @property
    def r2(self) -> float:
        """The share of the targets' variance that is explained, averaged over outputs.

        Outputs whose targets do not vary are left out; nan if there are no others.
        """
        error, total, squares = self._of_outputs / self.values[0]
        variance = squares - total**2
        varies = variance > 0
        return float((1 - error[varies] / variance[varies]).mean()) if varies.any() else float("nan")

    @property
    def _of_outputs(self) -> Array:
        """Squared error, targets and squared targets of each output, [3, D]."""
        return self.values[1:].reshape(3, -1)


class Terms(NamedTuple):
    """What each example adds to the sums of `Scores`."""

    columns: Sequence[Array]
    """Right answers, negative log-likelihood, Brier score; or squared error, target, target squared; [N]."""
    classes: int
    confusion_cell: Tensor | None = None
    """Where each example counts in the confusion matrix, [N]."""
    confidence: Tensor | None = None
    """The probability of each predicted class, [N]."""

    def sum(self, detail: bool = False) -> Scores:
        values = self.sum_by(None, np.zeros(1, np.int64), np.array([len(self.columns[0])]))[0]
        if not detail or self.confidence is None or self.confusion_cell is None:
            return Scores(values, self.classes)
        bins = bin_sums(self.confidence, torch.from_numpy(self.columns[0])).flatten()
        size = self.classes * (self.classes if self.classes <= MAX_CONFUSION else 2)
        confusion = torch.bincount(self.confusion_cell, minlength=size)
        return Scores(np.concatenate([values, bins.numpy(), confusion.double().numpy()]), self.classes)

    def sum_by(
        self, rows: NDArray[np.int64] | None, starts: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> Array:
        """Scores of several data sets as rows of a matrix, [J, S].

        One set begins at each of `starts` in `rows` (None: all rows in order) and has `counts` examples.
        Each is summed by itself, in its own order, so its scores do not depend on the other sets.
        """
        columns = self.columns if rows is None else [column.take(rows) for column in self.columns]
        sums = np.zeros((len(starts), CLASS_SUMS if self.classes else NUMBER_SUMS))
        sums[:, 0] = counts
        for place, column in enumerate(columns, 1):
            sums[:, place] = np.add.reduceat(column, starts)
        return sums


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities [N, C] of logits; with few classes, this order takes torch a fifth of the time."""
    return F.log_softmax(logits.T, dim=0).T


def class_terms(log_probabilities: Tensor, targets: Tensor) -> Terms:
    """The terms of predicted log-probabilities [N, C] and class numbers [N]."""
    classes = log_probabilities.shape[1]
    predicted = log_probabilities.argmax(dim=1)
    wide = log_probabilities.to(torch.float64)
    of_truth, of_predicted = (wide.gather(1, label.unsqueeze(1)).squeeze(1) for label in (targets, predicted))
    right = predicted == targets
    brier = wide.exp().square_().sum(dim=1).sub_(of_truth.exp(), alpha=2).add_(1)
    cell = classes * targets + predicted if classes <= MAX_CONFUSION else 2 * targets + ~right
    columns = [column.cpu().numpy() for column in (right.double(), of_truth.neg(), brier)]
    return Terms(columns, classes, cell.cpu(), of_predicted.exp().cpu())


def number_terms(predicted: Tensor, targets: Tensor) -> Terms:
    """The terms of predicted numbers [N, 1] and true ones [N]."""
    truth = targets.to(torch.float64)
    errors = (predicted.squeeze(1).to(torch.float64) - truth).square()
    return Terms([errors.numpy(), truth.numpy(), truth.square().numpy()], 0)


def terms_of(predicted: Tensor, targets: Tensor) -> Terms:
    return (number_terms if targets.is_floating_point() else class_terms)(predicted, targets)


def score(predicted: Tensor, targets: Tensor, detail: bool = False, temperature: float = 1.0) -> Scores:
    """The scores of predictions: log-probabilities [N, C] of classes, or numbers [N, 1]."""
    if temperature != 1 and not targets.is_floating_point():
        predicted = scaled(predicted, temperature)
    return terms_of(predicted, targets).sum(detail)


def label_scores(logits: Tensor, targets: Tensor) -> Scores:
    """The scores of logits [N, L] for labels [N, L] that are 0 or 1."""
    wide, truth = logits.double(), targets.double()
    found = (wide > 0).double()
    right = found == truth
    losses = F.binary_cross_entropy_with_logits(wide, truth, reduction="none")
    sums = [right.double().mean(1).sum(), losses.mean(1).sum(), right.all(1).sum().double()]
    by_label = torch.stack([found * truth, found * (1 - truth), (1 - found) * truth]).sum(dim=1)
    return Scores(
        np.array([float(len(truth)), *map(float, sums), *by_label.flatten().tolist()]), 0, truth.shape[1]
    )


def number_scores(predicted: Tensor, targets: Tensor) -> Scores:
    """The scores of predicted numbers [N, D] and true ones [N, D]."""
    truth = targets.double()
    columns = torch.stack([(predicted.double() - truth).square(), truth, truth.square()])
    if truth.shape[1] > MAX_OUTPUTS:
        columns = columns.mean(dim=2, keepdim=True)
    return Scores(np.array([float(len(truth)), *columns.sum(dim=1).flatten().tolist()]), 0)


def loss_scores(mean_loss: float, count: int) -> Scores:
    """The scores of a batch of which only the mean over `count` examples or tokens is known.

    If all tokens of a batch are ignored, the mean is not a number, and adds nothing.
    """
    return Scores(np.array([float(count), count * mean_loss if count else 0.0]), 0)


def calibration_scores(log_probabilities: Tensor, targets: Tensor, suffix: str = "") -> dict[str, float]:
    """NLL, ECE and Brier score of predicted log-probabilities [N, C]; the suffix is added to the names."""
    return score(log_probabilities, targets, detail=True).calibration(suffix)
