"""What a federation says of itself, and what its runs are called: what is not default."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_federation import CLIENTS, TEST, linear
from torch import Tensor, nn

import steelyard as sy
from steelyard.errors import InputError
from steelyard.runs.naming import MAX_NAME
from steelyard.specs.schema import load_spec
from steelyard.types import Round


def federation(**settings: Any) -> sy.Federation:
    algorithm = {name: settings.pop(name) for name in vars(sy.Algorithm()) if name in settings}
    return sy.Federation(CLIENTS, linear(), sy.Algorithm(**algorithm), test=TEST, **settings)


def own(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weighing": "majority", "rounds": 5},
        {"weighing": {"name": "samples", "cap": 3.0}, "seed": 4, "engine": "serial", "round_seconds": 90.0},
        {"objective": {"name": "proximal", "mu": 0.3}, "patience": 3},
        {"training": {"lr": 0.5, "schedule": {"name": "cosine", "warmup": 2.0}}},
        {"validation": 0.1, "adversaries": {"count": 1}},
        {"clients_per_round": 2, "adversaries": {"count": 1, "attack": "gaussian"}},
    ],
)
def test_runs_are_named_as_those_of_specs(settings: dict[str, Any]) -> None:
    wanted = load_spec(None, {"name": "federation"}).name
    changed = load_spec({"name": "federation", "objective": "auto"}, settings).name
    assert changed.startswith(wanted)
    assert federation(**settings).name == changed


def test_names_have_code_of_ones_own_and_are_not_too_long() -> None:
    assert federation(objective=own).name == "federation+objective=own"
    assert federation(objective=nn.CrossEntropyLoss()).name == "federation+objective=CrossEntropyLoss"
    training = {"optimizer": torch.optim.AdamW, "lr": 0.01, "steps": 2, "clip_norm": 1.0, "batch_size": 8}
    name = federation(rounds=2, training=training).name
    assert len(name) <= MAX_NAME
    assert name.endswith("-more")
    two = {"lima": "gaussian", "oslo": "sign-flip"}
    assert federation(adversaries=two).name == "federation+adversaries.count=2"


def test_a_given_name_is_that_of_the_record_and_its_folder(tmp_path: Path) -> None:
    result = federation(rounds=1, name="my run/1").run(out=tmp_path)
    assert result.path is not None
    assert result.path.parent == tmp_path
    assert result.path.name.endswith("-my-run-1-s0")
    assert sy.Run(result.path).meta["name"] == "my run/1"
    for name in ("", "\n", 3):
        with pytest.raises(InputError, match="name must be a text, such as 'my run', not"):
            federation(name=name)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "Federation(4 clients, Linear (9 parameters))"),
        (
            {"weighing": "majority", "rounds": 20, "seed": 2, "engine": "serial"},
            "Federation(4 clients, Linear (9 parameters), Algorithm(weighing=Majority()), rounds=20, seed=2, "
            "engine=Serial())",
        ),
        (
            {
                "objective": own,
                "training": {"lr": 0.5},
                "adversaries": {"oslo": "gaussian"},
                "validation": TEST,
            },
            "Federation(4 clients, Linear (9 parameters), Algorithm(objective=OwnLoss(function=own), "
            "training=Training(lr=0.5)), validation='own set', adversaries={'oslo': Gaussian()})",
        ),
    ],
)
def test_a_federation_shows_what_is_not_default(settings: dict[str, Any], text: str) -> None:
    assert repr(federation(**settings)) == text


def test_an_algorithm_shows_what_is_not_default() -> None:
    assert repr(sy.Algorithm()) == "Algorithm()"
    weights = torch.tensor([1.0, 2.0])
    found = sy.Algorithm(weighing={"name": "krum", "f": 1}, objective=nn.CrossEntropyLoss(weight=weights))
    assert repr(found) == "Algorithm(objective=OwnLoss(function=CrossEntropyLoss()), weighing=Krum(f=1))"


def test_an_event_shows_its_round() -> None:
    event = sy.RoundEvent(Round(3, {"loss": 0.51234, "accuracy": 0.9, "ece": 0.1}, ()), None, None)  # type: ignore[arg-type]
    assert repr(event) == "RoundEvent(round 3, loss 0.5123, accuracy 0.9)"
