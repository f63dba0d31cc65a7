"""Every score that a run records is explained by `steelyard list scores`."""

from fnmatch import fnmatch
from typing import Any

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard import components
from steelyard.report.metric_words import SCORES

DRAW = torch.Generator().manual_seed(0)
X, CLASSES = torch.randn(30, 4, generator=DRAW), torch.arange(30) % 3
POOLED = {"client_nll", "client_ece", "client_brier", "client_f1"}


def layers(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, outputs))


def entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(outputs.softmax(1) * targets).sum(1)


def scores_of(targets: Any = CLASSES, model: nn.Module | None = None, **settings: Any) -> set[str]:
    """The names of all scores of a short run."""
    outputs = 3 if targets.dim() < 2 else targets.shape[1]
    parts = ("objective", "sharing", "weighing", "combining")
    algorithm = sy.Algorithm(**{part: settings.pop(part) for part in parts if part in settings})
    clients = [
        sy.Client(
            name, (X.roll(place, 0), targets.roll(place, 0)), (X[:9], targets[:9]), (X[9:], targets[9:])
        )
        for place, name in enumerate("abcde")
    ]
    settings = {"test": (X, targets), "engine": "serial", "rounds": 2, **settings}
    run = sy.Federation(clients, model or layers(outputs), algorithm, **settings).run()
    return {name for row in run.history for name in row} - {"round"}


RUNS: dict[str, dict[str, Any]] = {
    "classes": {"validation": (X, CLASSES), "adversaries": {"b": "sign-flip"}},
    "labels": {"targets": (X[:, :2] > 0).long(), "validation": 0.2},
    "numbers": {"targets": X[:, :2] + 1, "validation": 0.2},
    "loss": {
        "targets": X.softmax(1),
        "objective": entropy,
        "validation": 0.2,
        "task": sy.Task(targets="loss"),
    },
    "head": {"sharing": "head"},
    "posterior": {
        "sharing": "posterior",
        "combining": "rklb",
        "objective": "elbo",
        "model": sy.bayesian(layers(), last=1),
    },
    **{rule: {"weighing": rule} for rule in components.names("weighing")},
}


@pytest.mark.filterwarnings("ignore::steelyard.SteelyardWarning")
@pytest.mark.parametrize("kind", RUNS)
def test_every_score_of_a_run_is_explained(kind: str) -> None:
    explained = [pattern for pattern in SCORES if pattern != "client_*"]
    found = scores_of(**RUNS[kind])
    assert "loss" in found
    assert not {name for name in found - POOLED if not any(fnmatch(name, each) for each in explained)}


def test_scores_of_every_kind_are_there() -> None:
    found = set().union(
        *(scores_of(**RUNS[kind]) for kind in ("classes", "labels", "numbers", "loss", "head"))
    )
    names = {"validation_accuracy", "r2", "exact_match", "f1", "test_loss", "client_test_loss_sd"}
    assert {*names, "shared_accuracy", "detection_auroc", "nll_scaled", "client_mse_max"} <= found
