"""The best round: which metric counts, which way it gets better, and what is refused."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from steelyard.errors import InputError, SelectionWarning
from steelyard.server.aggregation import ServerState
from steelyard.server.selection import Selection, best_of, usual_mode
from steelyard.server.state import FederationState
from steelyard.types import Message

TRAINED = {"loss": 1.0, "used": 3.0}


def state(round: int = 1, **fields: object) -> FederationState:
    model = Message(torch.full((2,), float(round)))
    return replace(FederationState(round, ServerState(model)), **fields)  # type: ignore[arg-type]


def judged(selection: Selection, *rounds: dict[str, float]) -> FederationState:
    """The state after these metrics, round by round."""
    found = state(0)
    for number, metrics in enumerate(rounds, 1):
        found = replace(found, round=number, server=state(number).server)
        found = selection.judge(found, TRAINED, TRAINED | metrics)
    return found


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("accuracy", "max"),
        ("validation_f1", "max"),
        ("client_accuracy_worst10", "max"),
        ("validation_r2", "max"),
        ("validation_nll", "min"),
        ("nll_scaled", "min"),
        ("client_mse_worst10", "min"),
        ("client_accuracy_sd", "min"),
        ("loss", "min"),
        ("test_loss", "min"),
        ("validation_kappa", "max"),
        ("client_average_precision", "max"),
        ("mean_absolute_error", "min"),
        ("margin", None),
    ],
)
def test_known_metrics_know_which_way_they_get_better(metric: str, mode: str | None) -> None:
    assert usual_mode(metric) == mode


def test_the_best_round_is_that_of_the_smallest_loss_and_its_model_is_kept() -> None:
    found = judged(
        Selection("nll", validation=0.1),
        *({"validation_nll": value, "nll": -value} for value in (0.9, 0.3, 0.5, 0.3)),
    )
    assert (found.best_round, found.monitor, found.stale) == (2, "validation_nll", 2)
    assert found.best_model is not None
    assert found.best_model.mean.tolist() == [2, 2]
    best = best_of(found, None, torch.nn.Linear(1, 1))
    assert best.text == "best: round 2 by validation_nll 0.3"


def test_a_mode_is_what_the_user_says() -> None:
    values = [{"validation_kappa": value} for value in (0.9, 0.3, 0.5)]
    assert judged(Selection("kappa", "min", validation=0.1), *values).best_round == 2
    assert judged(Selection("kappa", "max", validation=0.1), *values).best_round == 1


def test_a_model_whose_scores_are_not_finite_uses_patience() -> None:
    found = judged(
        Selection("nll", validation=0.1),
        *({"validation_unscored": 1.0}, {"validation_nll": 0.5}, {"validation_unscored": 1.0}),
    )
    assert (found.best_round, found.stale) == (2, 1)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_finite_is_never_better_and_uses_patience(mode: str, broken: float) -> None:
    selection = Selection("nll", mode, patience=2, validation=0.1)
    values = [{"validation_nll": value} for value in (broken, 0.5, broken, broken)]
    found = judged(selection, *values)
    assert (found.best_round, found.stale) == (2, 2)
    assert selection.is_over(found)
    assert not selection.is_over(judged(selection, *values[:3]))


def test_an_evaluation_without_the_metric_does_not_count() -> None:
    selection = Selection(patience=2, validation=0.1)
    found = judged(selection, {"validation_accuracy": 0.5}, {"accuracy": 0.9}, {"accuracy": 0.9})
    assert (found.best_round, found.stale, found.monitor) == (1, 0, "validation_accuracy")


@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        ({"accuracy": 0.5, "nll": 1.0, "client_accuracy": 0.4}, "accuracy"),
        ({"mse": 0.5, "client_mse": 0.4}, "mse"),
        ({"client_accuracy": 0.4}, "client_accuracy"),
        ({"client_mse": 0.4}, "client_mse"),
        ({}, "loss"),
    ],
)
def test_without_validation_data_test_data_decide_with_one_warning(
    metrics: dict[str, float], name: str
) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert judged(Selection(patience=3), metrics, metrics).monitor == name
    assert [each.category for each in found] == [SelectionWarning]
    on = "training data, because there are no others" if name == "loss" else "test data"
    assert f"'{name}' on {on}" in str(found[0].message)


def test_the_training_loss_is_monitored_without_a_word_if_it_is_named() -> None:
    assert judged(Selection("loss"), {}).monitor == "loss"


def test_with_validation_data_nothing_warns_and_test_data_do_not_decide() -> None:
    metrics = {"accuracy": 0.9, "ece": 0.1, "validation_accuracy": 0.5, "validation_mse": 0.1}
    assert judged(Selection(validation=0.1), metrics).monitor == "validation_accuracy"
    assert judged(Selection("validation_accuracy", validation=0.1), metrics).monitor == "validation_accuracy"
    for name in ("ece", "used"):
        wanted = (
            rf"{name}.* the metrics on validation data are: validation_accuracy, validation_mse; take one"
        )
        with pytest.raises(InputError, match=wanted):
            judged(Selection(name, "min", validation=0.1), metrics)


@pytest.mark.parametrize("monitor", ["loss", "test_loss", "validation_loss"])
@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        ({"validation_accuracy": 0.5, "validation_nll": 0.7}, "validation_nll"),
        ({"validation_mse": 0.5, "validation_r2": 0.7}, "validation_mse"),
        ({"validation_loss": 0.5}, "validation_loss"),
    ],
)
def test_the_loss_is_that_on_validation_data_if_there_are_any(
    monitor: str, metrics: dict[str, float], name: str
) -> None:
    selection = Selection(monitor, validation=0.1)
    kept = judged(selection, metrics)
    assert (kept.monitor, kept.best_round) == (name, 1)
    assert selection.begin(kept) is kept, "a resumed run knows the best round"
    assert judged(Selection("loss"), {}).monitor == "loss", "of training"


def test_a_metric_that_is_not_there_is_refused_after_the_first_evaluation() -> None:
    with pytest.raises(
        InputError, match=r"'acuracy'.* after round 1 the metrics are: accuracy, loss, used; did you"
    ):
        judged(Selection("acuracy", "max"), {"accuracy": 0.5})
    with pytest.raises(
        InputError, match=r"set monitor .* after round 1 the metrics .* are: validation_kappa"
    ):
        judged(Selection(validation=0.1), {"validation_kappa": 0.5})


def test_a_metric_may_still_come_if_some_clients_have_not_answered() -> None:
    selection = Selection("nll", validation=0.1)
    waiting = selection.judge(state(1), TRAINED, TRAINED, all_answered=False)
    assert (waiting.monitor, waiting.best_round) == ("", 0)
    found = selection.judge(replace(waiting, round=2), TRAINED, {"validation_nll": 0.5})
    assert (found.monitor, found.best_round) == ("validation_nll", 2)


def test_unless_something_is_asked_for_nothing_is_kept() -> None:
    found = judged(Selection(), {"accuracy": 0.5, "validation_accuracy": 0.5})
    assert (found.best_model, found.best_round, found.monitor, found.stale) == (None, 0, "", 0)


def test_what_a_state_says_of_another_metric_is_forgotten() -> None:
    kept = judged(Selection("nll", validation=0.1), {"validation_nll": 0.5, "validation_accuracy": 0.5})
    assert Selection("nll", validation=0.1).begin(kept) is kept
    for other in (Selection("accuracy", validation=0.1), Selection(), Selection("nll")):
        begun = other.begin(kept)
        assert (begun.best, begun.best_round, begun.best_model, begun.monitor) == (-math.inf, 0, None, "")
    old = state(3, best=0.9, stale=2)  # saved before there was a name
    assert Selection(patience=3).begin(old) is old
    assert Selection("nll", patience=3).begin(old).best == -math.inf


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"monitor": "margin"}, "not known whether larger is better; set mode"),
        ({"mode": "min"}, "monitor is not set"),
        ({"monitor": "nll", "mode": "least"}, "mode must be 'min' or 'max', not 'least'"),
        ({"monitor": "validation_nll"}, "there are no validation data; set validation"),
        ({"monitor": ""}, "monitor must be the name of a metric"),
    ],
)
def test_a_selection_that_cannot_be_meant_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Selection(**settings)  # type: ignore[arg-type]
