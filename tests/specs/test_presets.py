"""The presets of FedBaC: what each is made of, and that it runs."""

from typing import Any

import pytest
import torch

import steelyard as sy
from steelyard.objectives import Alignment, CrossEntropy
from steelyard.specs.building import build_algorithm
from steelyard.specs.schema import load_spec
from steelyard.weighing import Concord, Consensus

SMALL: dict[str, Any] = {"rounds": 2, "data.clients": 4, "training.steps": 2}
FEDBAC = {
    "consensus-only": (Consensus(alpha=0.0), CrossEntropy()),
    "fedbac": (Concord(), CrossEntropy()),
    "fedbac-literal": (Consensus(), Alignment(form="gradient", strength=1e-6)),
    "fedbac-no-regularizer": (Consensus(), CrossEntropy()),
    "reliability-only": (Consensus(gamma=0.0), CrossEntropy()),
}


@pytest.mark.parametrize("name", FEDBAC)
def test_a_preset_is_what_it_says(name: str) -> None:
    algorithm = build_algorithm(load_spec(name))
    assert (algorithm.weighing, algorithm.objective) == FEDBAC[name]
    assert algorithm.server.average == (5 if name == "fedbac" else 1)


def test_as_published_means_the_settings_of_the_paper() -> None:
    rule = Consensus()
    assert (rule.beta, rule.gamma, rule.alpha, rule.window) == (0.9, 1.0, 1.0, 5)
    assert (rule.gate, rule.momentum, rule.bound) == ("hard", "weights", 0.0)


@pytest.mark.parametrize("name", FEDBAC)
def test_a_preset_runs(name: str) -> None:
    result = sy.run(name, out=None, **SMALL)
    assert len(result.history) == 2
    assert 0 <= result.accuracy <= 1
    assert all(bool(value.isfinite().all()) for value in result.model.state_dict().values())
    second = [row for row in result.clients if row["round"] == 2]
    assert torch.tensor([row["weight"] for row in second]).sum() == pytest.approx(1)
    assert all("reliability" in row for row in second)
    if name != "fedbac":
        assert result.history[0]["fell_back"] == 1, "there is nothing to go along with yet"


OTHERS = ("ba-bfl", "robust-barycenter", "solo", "chfl-avg", "chfl-kd", "chfl-avgkd", "chfl")


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_shared_may_be_less_or_more_than_a_model(name: str) -> None:
    result = sy.run(name, out=None, **SMALL)
    assert len(result.history) == 2
    assert ("shared_accuracy" in result.history[-1]) == (not name.endswith(("bfl", "barycenter")))
