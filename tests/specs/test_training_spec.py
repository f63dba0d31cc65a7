"""Optimisers and schedules in specs: names, tables, options, code of the user's own, and fingerprints."""

from pathlib import Path
from typing import Any

import pytest
import torch

from steelyard.errors import InputError
from steelyard.schedules import Cosine, Step
from steelyard.settings import Training
from steelyard.specs.building import build, build_algorithm
from steelyard.specs.gate import UntrustedError
from steelyard.specs.schema import load_spec

MINE = """
from dataclasses import dataclass

import torch
from steelyard.schedules import Schedule


def make(parameters):
    return torch.optim.SGD(parameters, lr=0.5)


@dataclass(frozen=True)
class Halving(Schedule):
    after: int = 3

    def decay(self, past, rounds):
        return 0.5 if past >= self.after else 1.0
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_training_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def training_of(**changes: Any) -> Training:
    spec = load_spec(None, {f"training.{key}": value for key, value in changes.items()})
    return build_algorithm(spec).training


def test_a_spec_names_any_optimiser_of_torch_with_its_options() -> None:
    training = training_of(optimizer="adamw", lr=0.01, options={"betas": [0.9, 0.95], "weight_decay": 0.01})
    assert training.optimizer_class is torch.optim.AdamW
    assert training.optimizer_arguments() == {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.01}


def test_a_spec_names_a_schedule_alone_or_with_settings() -> None:
    assert training_of(schedule="cosine").schedule == Cosine()
    assert training_of(schedule={"name": "step", "every": 5, "factor": 0.5}).schedule == Step(5, 0.5)
    assert training_of(**{"schedule.warmup": 2}).schedule.warmup == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": "adamxw"}, "unknown training.optimizer 'adamxw': did you mean 'adamw'?"),
        (
            {"optimizer": "adamw", "options": {"beta": 0.9}},
            "unknown option 'beta' of training.optimizer 'adamw': did you mean 'betas'?",
        ),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "training.momentum is 0.9, but adam does not use it: leave it out, or take sgd.",
        ),
        ({"schedule": "cosin"}, "unknown schedule 'cosin': did you mean 'cosine'?"),
        ({"schedule": {"name": "step", "every": 0}}, "schedule 'step': every must be at least 1, not 0."),
        ({"clip_norm": 0}, "training.clip_norm must be greater than 0, not 0.0."),
        ({"accumulate": 0}, "training.accumulate must be at least 1, not 0."),
        ({"precision": "half"}, "training.precision should be 'float32' or 'bfloat16', not 'half'."),
    ],
    ids=str,
)
def test_a_spec_is_refused_when_it_is_loaded(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(None, {f"training.{key}": value for key, value in changes.items()})
    assert str(caught.value).removeprefix("training: ") == sentence


def test_a_limit_that_is_neither_a_number_nor_a_word_is_told_both() -> None:
    with pytest.raises(InputError) as caught:
        load_spec(None, {"server.clip": "foo"})
    assert str(caught.value) == (
        "server.clip should be a valid number or should be 'median' or 'usual', not 'foo'."
    )


def test_code_of_the_users_own_makes_the_optimiser_and_the_schedule(mine: str) -> None:
    schedule = {"name": f"{mine}:Halving", "after": 5}
    spec = load_spec(None, {"training.optimizer": f"{mine}:make", "training.schedule": schedule})
    training = build(spec).algorithm.training
    assert callable(training.optimizer)
    assert training.optimizer([torch.zeros(1)]).defaults["lr"] == 0.5
    assert training.schedule.after == 5  # type: ignore[union-attr]


def test_a_file_that_names_such_code_is_not_imported_without_trust(mine: str, tmp_path: Path) -> None:
    for line in (f'optimizer = "{mine}:make"', f'schedule = "{mine}:Halving"'):
        (tmp_path / "spec.toml").write_text(f"[training]\n{line}\n")
        with pytest.raises(UntrustedError, match=f"{mine}:"):
            load_spec(tmp_path / "spec.toml")
        shown = load_spec(tmp_path / "spec.toml", imports=False)
        assert f"{mine}:" in shown.to_toml()


@pytest.mark.parametrize(
    "changes",
    [
        {"training.optimizer": "adamw", "training.options": {"betas": [0.9, 0.95]}},
        {"training.schedule": {"name": "cosine", "final": 0.1, "warmup": 2.0}},
        {"training.clip_norm": 1.0, "training.accumulate": 4, "training.precision": "bfloat16"},
    ],
    ids=str,
)
def test_a_spec_reads_back_as_itself_with_a_fingerprint_of_its_own(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    spec = load_spec(None, changes)
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    again = load_spec(tmp_path / "spec.toml")
    assert again == spec
    assert again.fingerprint() == spec.fingerprint() != load_spec().fingerprint()


def test_a_schedule_at_its_defaults_has_one_fingerprint() -> None:
    full = {"name": "cosine", "final": 0.0, "warmup": 0.0, "changes": "round"}
    short = load_spec(None, {"training.schedule": "cosine"})
    assert load_spec(None, {"training.schedule": full}).fingerprint() == short.fingerprint()
    constant = load_spec(None, {"training.schedule": "constant", "training.options": None})
    assert constant.fingerprint() == load_spec().fingerprint()
