"""Scores on images unlike the training data: another data set, and rotated or noisy test images."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from steelyard.client.evaluation import predict
from steelyard.data.examples import Examples
from steelyard.data.mnist import mnist
from steelyard.data.shifts import noise, rotation
from steelyard.metrics import accuracy, auroc, entropy, scaled
from steelyard.metrics.scores import calibration_scores
from steelyard.runs.reader import Run
from steelyard.specs.loading import load_model, load_test

ANGLES = (15, 30, 45)
NOISES = (10, 20, 30)
SHIFTS: dict[str, Callable[..., Tensor]] = {
    "none": lambda images, *_: images,
    **{f"{angle}°": partial(rotation, degrees=angle) for angle in ANGLES},
    **{f"noise {percent} %": partial(noise, std=percent / 100) for percent in NOISES},
}


def foreign_auroc(run: Run, temperature: float) -> dict[str, float]:
    """AUROC of the predictive entropy for telling MNIST digits from the run's own test images."""
    model, own = load_model(run), load_test(run)
    foreign = replace(mnist().test, mean=own.mean, std=own.std)  # normalised like the run's own images
    predictions = [predict(model, images, run.spec["seed"]) for images in (own, foreign)]
    return {
        "ood": auroc(*map(entropy, predictions)),
        "ood_scaled": auroc(*(entropy(scaled(one, temperature)) for one in predictions)),
    }


def shifted_scores(run: Run, temperature: float) -> dict[str, dict[str, float]]:
    """Scores under each shift, without and with the temperature, which was fitted on unshifted images."""
    model, own = load_model(run), load_test(run)

    def scores(shift: Callable[..., Tensor]) -> dict[str, float]:
        predicted, labels = predict(model, shifted(own, shift), run.spec["seed"]), own.labels
        at_temperature = calibration_scores(scaled(predicted, temperature), labels, "_scaled")
        return {
            "accuracy": accuracy(predicted, labels),
            **calibration_scores(predicted, labels),
            **at_temperature,
        }

    return {name: scores(shift) for name, shift in SHIFTS.items()}


def shifted(examples: Examples, shift: Callable[..., Tensor]) -> Examples:
    """The same examples with shifted images. The full shift is that of client 1 of 2."""
    images = shift(examples.inputs[examples.rows], 1, 2, torch.Generator().manual_seed(0))
    return replace(examples, inputs=images, targets=examples.labels, rows=torch.arange(len(images)))
