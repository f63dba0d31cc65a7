"""Metrics of your own: objects of torchmetrics and functions, summed at the sites and computed at the server.

python examples/own_metrics.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

import steelyard as sy

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


def surely_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    """One number for each example: whether it is wrong with a probability above 0.9."""
    probability, guess = logits.softmax(dim=1).max(dim=1)
    return ((probability > 0.9) & (guess != labels)).float()


def digits(first: int, last: int, step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    return x[first:last:step], y[first:last:step]


# Test data of the schools stay there, too: what travels are sums of the metrics' states over examples.
schools = [
    sy.Client(f"school-{number}", digits(number, 1200, 4), test=digits(1200 + number, 1400, 4))
    for number in range(4)
]
torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
federation = sy.Federation(
    schools,
    nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    sy.Algorithm(training={"lr": 0.1, "momentum": 0.9}),
    metrics={
        "f1": MulticlassF1Score(num_classes=10),
        "auroc": MulticlassAUROC(num_classes=10, thresholds=100),  # without thresholds it keeps predictions
        "surely_wrong": surely_wrong,
    },
    test=digits(1400, len(x)),
    validation=0.1,
    monitor="f1",  # also on validation data, where it chooses the best model
    rounds=12,
)
result = federation.run()

names = ("f1", "auroc", "surely_wrong")
for row in result.history[2::3]:
    print(f"round {row['round']:2d}", *(f"{name} {row[name]:.3f}" for name in names))
print(f"best: round {result.best_round}, validation F1 {result.best_score:.3f}")
print(f"test F1 {result.history[-1]['f1']:.3f}")
