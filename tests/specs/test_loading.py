"""Models, test sets and predictions of recorded runs."""

from pathlib import Path

import pytest
import torch

import steelyard as sy
from steelyard.data.digits import digits
from steelyard.errors import InputError
from steelyard.metrics import accuracy, nll
from steelyard.specs.loading import load_predictions, load_test

SHORT = {"rounds": 1, "data.clients": 3, "training.steps": 2}


def recorded(out: Path, preset: str = "fedavg", **overrides: object) -> sy.Result:
    return sy.run(preset, out=out, **{**SHORT, **overrides})


@pytest.mark.parametrize("preset", ["fedavg", "ba-bfl"])
def test_predictions_are_the_bits_that_the_run_scored(preset: str, tmp_path: Path) -> None:
    """A Bayesian model draws as it did, from the seed of the run."""
    result = recorded(tmp_path, preset, seed=3)
    assert result.path is not None
    predicted, labels = load_predictions(result.path)
    assert nll(predicted, labels) == result.history[-1]["nll"]
    assert accuracy(predicted, labels) == result.history[-1]["accuracy"]


def test_the_test_set_is_that_of_the_data(tmp_path: Path) -> None:
    result = recorded(tmp_path)
    assert result.path is not None
    test = load_test(result.path)
    assert torch.equal(test.rows, digits().test.rows)
    assert torch.equal(test.labels, digits().test.labels)


@pytest.mark.parametrize(
    ("preset", "overrides", "sentence"),
    [
        ("fedavg", {"sharing": "head"}, "share only a head"),
        (
            "chfl",
            {"data.dataset": "digit-pixels", "model": "random-mlp"},
            "no common test set",
        ),
        (
            "fedavg",
            {
                "data.dataset": "synthetic-linear",
                "data.partition": "natural",
                "model": "linear",
                "objective": "squared-error",
            },
            "predicts numbers",
        ),
    ],
)
def test_runs_without_a_global_classifier_are_refused_with_the_reason(
    preset: str, overrides: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    result = recorded(tmp_path, preset, **overrides)
    assert result.path is not None
    with pytest.raises(InputError, match=sentence):
        load_predictions(result.path)


def test_a_run_without_a_spec_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no spec\.toml"):
        load_predictions(tmp_path)


def test_the_best_model_can_be_loaded_where_one_was_looked_for(tmp_path: Path) -> None:
    result = recorded(tmp_path, rounds=4, validation=0.2, monitor="nll", mode="max")
    assert result.path is not None
    assert result.best_round < 4
    for best, wanted in ((True, result.best_model), (False, result.model)):
        loaded = sy.load_model(result.path, best=best).state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in wanted.state_dict().items())
    with pytest.raises(InputError, match="leave out `client`, or `best`"):
        sy.load_model(result.path, "client-0", best=True)
    plain = recorded(tmp_path / "plain")
    assert plain.path is not None
    with pytest.raises(
        InputError, match=r"no best\.safetensors: it looked for no best round; set validation"
    ):
        sy.load_model(plain.path, best=True)


def test_one_share_is_held_out_not_two(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"validation and data\.holdout both hold examples out"):
        recorded(tmp_path, validation=0.2, **{"data.holdout": 0.2})
