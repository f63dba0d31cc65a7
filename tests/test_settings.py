"""Settings of training: what an optimiser may be, and settings without effect or meaning."""

import copy
import math
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.errors import InputError
from steelyard.schedules import Constant, Cosine, Progress, Step
from steelyard.settings import TORCH_OPTIMIZERS, Server, Training


def sentence(**settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        Training(**settings)
    return str(caught.value)


class Plain(torch.optim.Optimizer):
    """An optimiser without a learning rate."""

    def __init__(self, params: Any, beta: float = 0.5) -> None:
        super().__init__(params, {"beta": beta})


@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_every_optimiser_of_torch_has_its_name_in_lower_case(name: str) -> None:
    training = Training(optimizer=name)
    assert training.optimizer_class is not None
    assert training.optimizer_class.__name__.lower() == name
    assert training.optimizer_arguments()["lr"] == 0.1


def test_names_are_the_same_in_any_case() -> None:
    assert Training(optimizer="AdamW") == Training(optimizer="adamw")


def test_settings_and_options_reach_the_class_that_takes_them() -> None:
    training = Training(optimizer="rmsprop", lr=0.01, momentum=0.9, weight_decay=0.1, options={"alpha": 0.5})
    assert training.optimizer_arguments() == {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "alpha": 0.5}
    listed = Training(optimizer=torch.optim.AdamW, options={"betas": [0.9, 0.95], "weight_decay": 0.01})
    assert listed.optimizer_arguments() == {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.01}
    assert Training(optimizer="rprop").optimizer_arguments() == {"lr": 0.1}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimizer": "sdg"}, "unknown training.optimizer 'sdg': did you mean 'sgd'?"),
        (
            {"optimizer": "adamw", "options": {"beta": 1}},
            "unknown option 'beta' of training.optimizer 'adamw': did you mean 'betas'?",
        ),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "training.momentum is 0.9, but adam does not use it: leave it out, or take sgd.",
        ),
        (
            {"optimizer": "adamw", "momentum": 0.9},
            "training.momentum is 0.9, but adamw does not use it: leave it out, or take sgd.",
        ),
        (
            {"optimizer": "rprop", "weight_decay": 0.1},
            "training.weight_decay is 0.1, but rprop does not use it: leave it out, or take sgd.",
        ),
        ({"optimizer": Plain, "lr": 0.3}, "training.lr is 0.3, but Plain does not use it: leave it out."),
        ({"options": {"lr": 0.3}}, "training.options has lr: set training.lr alone."),
        (
            {"weight_decay": 0.1, "options": {"weight_decay": 0.3}},
            "training.options has weight_decay: set training.weight_decay alone.",
        ),
        ({"options": 3}, "training.options must be a table, not 3."),
        (
            {"optimizer": "adam", "options": {"betas": [2.0, 0.9]}},
            "training.optimizer adam cannot be made with these settings: "
            "Invalid beta parameter at index 0: 2.0.",
        ),
        (
            {"options": {"nesterov": True}},
            "training.optimizer sgd cannot be made with these settings: "
            "Nesterov momentum requires a momentum and zero dampening.",
        ),
        (
            {"optimizer": partial(torch.optim.AdamW, lr=0.1), "lr": 0.3},
            "training.lr is 0.3, but the function partial that makes the optimiser does not get it: "
            "leave it out, and set it in the function.",
        ),
        ({"schedule": "cosin"}, "unknown schedule 'cosin': did you mean 'cosine'?"),
        (
            {"schedule": {"name": "step", "evry": 3}},
            "unknown setting 'evry' of schedule 'step': did you mean 'every'?",
        ),
        ({"schedule": Step}, "training.schedule is the class Step, not an object of it: write Step()."),
        ({"lr": "0.1"}, "training.lr must be a number, not '0.1'."),
        ({"lr": None}, "training.lr must be a number, not None."),
        ({"lr": math.inf}, "training.lr must be a finite number, not inf."),
        ({"clip_norm": 0}, "training.clip_norm must be greater than 0, not 0."),
        ({"clip_norm": math.inf}, "training.clip_norm must be a finite number, not inf."),
        ({"accumulate": 0}, "training.accumulate must be at least 1, not 0."),
        ({"accumulate": 2.5}, "training.accumulate must be a whole number, not 2.5."),
        ({"precision": "half"}, "training.precision must be 'float32' or 'bfloat16', not 'half'."),
    ],
    ids=str,
)
def test_a_setting_without_effect_or_meaning_is_refused(settings: dict[str, Any], words: str) -> None:
    assert sentence(**settings) == words


@pytest.mark.parametrize("name", ["momentum", "weight_decay", "options"])
def test_a_function_that_makes_the_optimiser_gets_no_other_settings(name: str) -> None:
    value = {"eps": 1.0} if name == "options" else 0.5
    assert sentence(optimizer=lambda p: torch.optim.SGD(p), **{name: value}).startswith(
        f"training.{name} is {value}, but the function <lambda> that makes the optimiser does not get it"
    )


@pytest.mark.parametrize("value", [3, None, int, nn.Linear])
def test_what_is_no_optimiser_is_refused(value: Any) -> None:
    assert sentence(optimizer=value).startswith("training.optimizer must be a name, a torch.optim.Optimizer")


def test_a_schedule_may_be_a_name_a_table_an_object_or_a_function() -> None:
    def own(progress: Progress) -> float:
        return 1.0

    assert Training().schedule == Constant()
    assert Training(schedule="cosine").schedule == Cosine()
    assert Training(schedule={"name": "step", "every": 3}).schedule == Step(every=3)
    assert Training(schedule=Cosine(final=0.1)).schedule == Cosine(final=0.1)
    assert Training(schedule=own).schedule is own


def test_training_can_be_compared_hashed_copied_and_pickled() -> None:
    training = Training(optimizer="adamw", options={"betas": [0.9, 0.95]}, schedule="linear")
    assert copy.deepcopy(training) == training == pickle.loads(pickle.dumps(training))
    assert hash(training) == hash(copy.deepcopy(training))


@pytest.mark.parametrize("clip", ["foo", 0, -1.0, math.nan, True])
def test_a_limit_on_updates_that_makes_no_sense_is_refused(clip: Any) -> None:
    with pytest.raises(InputError, match=r"^server\.clip must be greater than 0, 'median' or 'usual', not "):
        Server(clip=clip)


def test_an_algorithm_takes_a_table_of_settings_with_a_schedule() -> None:
    training = {"optimizer": "nadam", "options": {"eps": 1e-6}, "schedule": {"name": "linear", "final": 0.1}}
    found = sy.Algorithm(training=training).training
    assert found == Training(
        optimizer="nadam", options={"eps": 1e-6}, schedule={"name": "linear", "final": 0.1}
    )
