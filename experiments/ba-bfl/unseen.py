"""What a model never saw: the images of another data set, and its own test images turned or made noisy."""

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
from steelyard.metrics.calibration import calibration_scores
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
    """The chance that a digit leaves a model of clothes less certain than a piece of clothing does."""
    model, own = load_model(run), load_test(run)
    foreign = replace(mnist().test, mean=own.mean, std=own.std)  # as the model would see any image
    seen = [predict(model, each, run.spec["seed"]) for each in (own, foreign)]
    return {
        "ood": auroc(*map(entropy, seen)),
        "ood_scaled": auroc(*(entropy(scaled(each, temperature)) for each in seen)),
    }


def shifted_scores(run: Run, temperature: float) -> dict[str, dict[str, float]]:
    """The scores under each shift, and the same at the temperature, which was found without a shift."""
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
    """The same examples, their images shifted in full: as the last of two clients would see them."""
    images = shift(examples.inputs[examples.rows], 1, 2, torch.Generator().manual_seed(0))
    return replace(examples, inputs=images, targets=examples.labels, rows=torch.arange(len(images)))
