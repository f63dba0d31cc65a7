"""Schedules: the factor on the learning rate in every round and step, against formulas written out."""

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.errors import InputError
from steelyard.schedules import Constant, Cosine, Exponential, Linear, Progress, Schedule, Step, factors


def by_round(schedule: Schedule, rounds: int) -> list[float]:
    return [schedule(Progress(round, rounds, 3, 5)) for round in range(1, rounds + 1)]


def test_a_constant_schedule_is_1() -> None:
    assert by_round(Constant(), 4) == [1.0] * 4


def test_step_multiplies_every_so_many_rounds() -> None:
    assert by_round(Step(every=2, factor=0.5), 6) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_exponential_multiplies_every_round() -> None:
    assert by_round(Exponential(factor=0.5), 4) == [1, 0.5, 0.25, 0.125]


def test_linear_goes_down_in_equal_parts_and_would_reach_final_after_the_last_round() -> None:
    assert by_round(Linear(), 4) == [1, 0.75, 0.5, 0.25]
    assert by_round(Linear(final=0.2), 4) == pytest.approx([1, 0.8, 0.6, 0.4])


def test_cosine_is_that_of_torch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=0.1)
    wanted = []
    for _ in range(7):
        wanted.append(torchs.get_last_lr()[0])
        optimizer.step()
        torchs.step()
    assert by_round(Cosine(final=0.1), 7) == pytest.approx(wanted)


@pytest.mark.parametrize("decay", [Linear(warmup=2), Cosine(warmup=2), Step(every=1, warmup=2)])
def test_a_warm_up_grows_to_1_in_equal_parts_and_the_decay_begins_after_it(decay: Schedule) -> None:
    found = by_round(decay, 6)
    assert found[:3] == [0.5, 1.0, 1.0]
    assert found[3] < 1
    assert found[2:] == pytest.approx(by_round(type(decay)(**_without_warmup(decay)), 4))


def _without_warmup(schedule: Schedule) -> dict[str, Any]:
    return {**vars(schedule), "warmup": 0.0}


def test_in_steps_the_factor_is_that_of_the_fraction_of_the_run() -> None:
    schedule, steps, rounds = Linear(changes="step"), 4, 3
    found = [
        schedule(Progress(r, rounds, step, steps)) for r in range(1, rounds + 1) for step in range(steps)
    ]
    assert found == pytest.approx([1 - place / 12 for place in range(12)])


def test_a_warm_up_in_steps_begins_above_0_and_ends_at_1() -> None:
    schedule = Constant(warmup=1, changes="step")
    assert [schedule(Progress(1, 3, step, 4)) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule(Progress(2, 3, 0, 4)) == 1.0


def test_after_its_own_number_of_rounds_the_factor_stays_at_final() -> None:
    assert by_round(Linear(rounds=2, final=0.1), 4) == pytest.approx([1, 0.55, 0.1, 0.1])
    assert Cosine(rounds=2)(Progress(2, 0)) == pytest.approx(0.5)


def test_a_decay_to_the_end_needs_to_know_the_end() -> None:
    with pytest.raises(
        InputError, match=r"^schedule 'cosine' needs the setting 'rounds', because .* not known"
    ):
        Cosine()(Progress(1, 0))


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (Step, {"every": 0}, "schedule 'step': every must be at least 1, not 0."),
        (Step, {"factor": 0.0}, "schedule 'step': factor must be greater than 0, not 0.0."),
        (
            Exponential,
            {"factor": math.inf},
            "schedule 'exponential': factor must be a finite number, not inf.",
        ),
        (Cosine, {"final": -0.1}, "schedule 'cosine': final must be at least 0, not -0.1."),
        (Linear, {"rounds": 0}, "schedule 'linear': rounds must be at least 1, not 0."),
        (Linear, {"warmup": -1}, "schedule 'linear': warmup must be at least 0, not -1."),
        (
            Constant,
            {"changes": "epoch"},
            "schedule 'constant': changes must be 'round' or 'step', not 'epoch'.",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(kind: Any, settings: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(**settings)
    assert str(caught.value) == sentence


def test_a_function_is_asked_in_every_step_and_others_once_in_a_round() -> None:
    asked = []

    def own(progress: Progress) -> float:
        asked.append(progress)
        return 0.5

    assert list(islice(factors(own, Progress(2, 9, steps=3)), 3)) == [0.5] * 3
    assert asked == [Progress(2, 9, step, 3) for step in range(3)]
    assert list(islice(factors(Linear(), Progress(2, 4, steps=3)), 3)) == [0.75] * 3


@pytest.mark.parametrize("value", [np.float32(0.5), torch.tensor(0.5), 1])
def test_a_function_may_return_any_number(value: Any) -> None:
    assert next(factors(lambda _: value, Progress())) == float(value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, "a number"), ("1", "a number"), (math.nan, "a finite number"), (-0.1, "at least 0")],
)
def test_a_function_that_returns_no_factor_is_refused(value: Any, wanted: str) -> None:
    with pytest.raises(InputError, match=f"the factor that training.schedule returns must be {wanted}, not "):
        next(factors(lambda _: value, Progress()))


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (lambda round, rounds: 1.0, "TypeError: .* missing 1 required positional argument"),
        (lambda progress: 1 / (progress.round - 1), r"Progress\(round=1, rounds=3.* ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_the_first_round(own: Any, words: str) -> None:
    algorithm = sy.Algorithm(training=sy.Training(schedule=own))
    with pytest.raises(InputError, match=f"^training.schedule must be a function of the progress .*{words}"):
        sy.Federation({"oslo": (torch.ones(4, 2), torch.arange(4))}, nn.Linear(2, 4), algorithm, rounds=3)
