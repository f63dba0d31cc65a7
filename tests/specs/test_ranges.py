"""Settings that make no sense are refused with one sentence that names the setting."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch

import steelyard as sy
from steelyard import components
from steelyard.errors import InputError
from steelyard.specs.building import build, build_algorithm, choose_adversaries
from steelyard.specs.schema import load_spec
from steelyard.specs.sources import presets
from steelyard.weighing import Krum

FAMILIES = {"weighing": "weighing", "objective": "objectives", "combining": "combining"}
MAY_BE_INFINITE = {
    ("samples", "cap"),
    ("geometric-median", "cap"),
    ("ivar-mle", "cap"),
    ("ivar-vb", "cap"),
    ("majority", "cap"),
    ("majority", "tolerance"),
    ("majority", "crowd"),
    ("concord", "tolerance"),
    ("concord", "reach"),
    ("consensus", "gamma"),
    ("consensus", "alpha"),
    ("consensus", "bound"),
    ("centered-clipping", "radius"),
    ("inflated-count", "factor"),
    ("variance-deflation", "factor"),
}


def numeric_settings(family: str) -> list[tuple[str, str]]:
    """Every (rule, setting) of a family that is a number."""
    return [
        (name, key)
        for name, factory in components.names(family).items()
        for key, parameter in components.settings_of(factory, components.FAMILIES[family].context).items()
        if str(parameter.annotation).startswith(("<class 'float'>", "<class 'int'>", "float", "int"))
    ]


CLASSES = [
    (family, name, key)
    for family in ("weighing", "combining", "objectives", "attacks")
    for name, key in numeric_settings(family)
]


@pytest.mark.parametrize(("family", "name", "key"), CLASSES)
def test_no_rule_takes_a_number_that_is_not_one_or_too_low(family: str, name: str, key: str) -> None:
    factory = components.names(family)[name]
    whole = "int" in str(inspect.signature(factory).parameters[key].annotation)
    wrong: list[Any] = [-3] if whole else [-3.0, math.nan]
    if not whole and not name.startswith("variance-ratio") and key != "variance_ratio_limit":
        wrong += [] if (name, key) in MAY_BE_INFINITE else [math.inf]
    if key == "z":
        wrong.remove(-3.0)  # the shift of a-little-is-enough can go either way
    for value in wrong:
        with pytest.raises(InputError, match=rf"\b{key} must be "):
            factory(**{key: value})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weighing.cap": -3}, "weighing rule 'samples': cap must be greater than 0, not -3.0."),
        (
            {"objective": {"name": "proximal", "mu": -1}},
            "objective 'proximal': mu must be at least 0, not -1.0.",
        ),
        ({"training.lr": math.inf}, "training.lr must be a finite number, not inf."),
        ({"training.lr": math.nan}, "training.lr must be a finite number, not nan."),
        (
            {"training.weight_decay": math.inf},
            "training.weight_decay must be a finite number, not inf.",
        ),
        ({"server.lr": math.inf}, "server.lr must be a finite number, not inf."),
        ({"model.hidden": 0}, "model 'mlp': hidden must be at least 1, not 0."),
        ({"model.hidden": -5}, "model 'mlp': hidden must be at least 1, not -5."),
        ({"model.layers": -1}, "model 'mlp': layers must be at least 0, not -1."),
        (
            {"weighing": {"name": "krum", "f": 20}},
            "weighing rule 'krum': f is 20, but must be at most 3 for 10 clients in a round.",
        ),
        (
            {"weighing": {"name": "multi-krum", "f": 2}, "clients_per_round": 6},
            "weighing rule 'multi-krum': f is 2, but must be at most 1 for 6 clients in a round.",
        ),
        (
            {"weighing": {"name": "nnm", "rule": {"name": "krum", "f": 4}}},
            "weighing rule 'krum': f is 4, but must be at most 3 for 10 clients in a round.",
        ),
        (
            {"training.optimizer": "adam", "training.momentum": 0.9},
            "training.momentum is 0.9, but adam does not use it: leave it out, or take sgd.",
        ),
        (
            {"adversaries": {"count": 1, "attack": {"name": "gaussian", "scale": -1.0}}},
            "attack 'gaussian': scale must be at least 0, not -1.0.",
        ),
    ],
    ids=str,
)
def test_a_spec_that_makes_no_sense_is_refused_before_the_run(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        build(load_spec(None, changes))
    assert str(caught.value) == sentence


@pytest.mark.parametrize("f", [0, 3, None])
def test_as_many_adversaries_as_krum_tolerates_are_accepted(f: int | None) -> None:
    assert build(load_spec(None, {"weighing": {"name": "krum", "f": f}})).algorithm.weighing == Krum(f)


@pytest.mark.parametrize("name", ["rounds", "evaluate_every", "patience", "clients_per_round"])
@pytest.mark.parametrize("value", [2.5, True, "3", 0, -1, math.nan])
def test_a_federation_takes_whole_numbers(name: str, value: Any) -> None:
    data = {"a": (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))}
    with pytest.raises(InputError, match=rf"^{name} must be (a whole number|at least 1), not "):
        sy.Federation(data, torch.nn.Linear(3, 2), **{name: value})


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    data = {"a": (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))}
    assert sy.Federation(data, torch.nn.Linear(3, 2), rounds=np.int64(1)).run().history
    assert sy.Training(lr=np.float32(0.1))


def test_weights_that_do_not_sum_to_1_are_refused() -> None:
    updates = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for weights in ([1, 1], [0.5, 0.4], [0.0, 0.0], [math.inf, 0.0]):
        with pytest.raises(InputError, match="weights must"):
            sy.combine(updates, weights)
    thirds = torch.full((3,), 1 / 3)
    assert sy.combine(torch.ones(3, 2), thirds).mean.tolist() == pytest.approx([1.0, 1.0])


def test_weigh_refuses_more_adversaries_than_there_can_be() -> None:
    with pytest.raises(InputError, match="f is 2, but must be at most 1 for 5 clients"):
        sy.weigh(torch.randn(5, 3), "krum", f=2)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_within_its_ranges(name: str) -> None:
    spec = load_spec(name)
    build_algorithm(spec).weighing.check(spec.clients_per_round or spec.data.clients)
    chosen = choose_adversaries(spec, [f"client-{number}" for number in range(spec.data.clients)])
    assert len(chosen) == spec.adversaries.count
