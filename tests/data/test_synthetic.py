"""Linear regression with known coefficients: the stated covariance is that of least-squares estimates."""

from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.data.partitions import natural
from steelyard.data.synthetic import LinearProblem, linear_problem, noise_levels, synthetic_linear
from steelyard.errors import InputError

SMALL: dict[str, Any] = {"parties": 4, "features": 3, "rows": 12, "noise": (0.5, 1.0, 2.0, 1.0)}


def estimates(drawn: LinearProblem) -> Tensor:
    """The clients' least-squares estimates, [J, D]."""
    return torch.linalg.lstsq(drawn.inputs, drawn.targets.unsqueeze(2)).solution.squeeze(2)


def errors(drawn: LinearProblem) -> Tensor:
    return estimates(drawn) - drawn.beta


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_the_errors_of_least_squares_have_the_stated_covariance(overlap: float) -> None:
    draws = [linear_problem(**SMALL, overlap=overlap, clique=3, seed=seed) for seed in range(1500)]
    deviations = torch.stack([errors(each) for each in draws])
    each = torch.einsum("sjd,skd->sjk", deviations, deviations) / SMALL["features"]
    stated = torch.stack([draw.covariance for draw in draws])
    # Whatever the inputs, what is found minus what is stated is 0 on average, up to its standard error.
    difference = each - stated
    scores = difference.mean(0) / (difference.std(0) / len(draws) ** 0.5)
    assert float(scores.abs().max()) < 4
    shares = (stated.mean(0) - torch.diag(stated.mean(0).diagonal())).abs()
    assert bool(shares[:3, :3].sum() > 0) == (overlap > 0)
    assert float(shares[3].max()) == 0, "the last client shares nothing"


def test_clients_with_the_same_samples_and_noise_make_the_same_errors() -> None:
    drawn = linear_problem(4, 3, 12, noise=(0.7,), overlap=1.0, clique=3)
    found = estimates(drawn)
    torch.testing.assert_close(found[:3], found[0].expand(3, -1))
    torch.testing.assert_close(drawn.covariance[:3, :3], drawn.covariance[0, 0].expand(3, 3))
    assert not torch.allclose(found[3], found[0])


def test_the_best_weights_of_the_stated_covariance_beat_equal_ones() -> None:
    settings: dict[str, Any] = {**SMALL, "noise": (0.5, 2.0), "overlap": 0.8}
    best = equal = 0.0
    for seed in range(200):
        drawn = linear_problem(**settings, seed=seed)
        weights = torch.linalg.solve(drawn.covariance, torch.ones(4, dtype=torch.float64))
        best += float((weights / weights.sum() @ errors(drawn)).square().sum())
        equal += float(errors(drawn).mean(0).square().sum())
    assert best < 0.7 * equal


def test_only_the_clique_shares_rows() -> None:
    data = synthetic_linear(parties=5, features=4, rows=10, noise=(1.0,), overlap=0.3, clique=3)
    assert data.groups is not None
    parts = natural(data.groups, 5, torch.Generator())
    held = [{tuple(row) for row in data.train.inputs[rows].tolist()} for rows in parts]
    assert [len(rows) for rows in held] == [10] * 5
    common = [[len(mine & theirs) for theirs in held] for mine in held]
    assert common == [
        [10, 3, 3, 0, 0],
        [3, 10, 3, 0, 0],
        [3, 3, 10, 0, 0],
        [0, 0, 0, 10, 0],
        [0, 0, 0, 0, 10],
    ]
    assert data.train.labels[parts[0][:3]].equal(data.train.labels[parts[2][:3]]), "targets are copies too"


def test_the_data_set_is_the_linear_problem_and_its_test_rows_have_no_noise() -> None:
    settings: dict[str, Any] = {"parties": 3, "features": 4, "rows": 30, "overlap": 0.2, "seed": 7}
    data, drawn = synthetic_linear(**settings, test_rows=20), linear_problem(**settings)
    assert torch.equal(data.train.inputs[30:60], drawn.inputs[1].float())
    assert torch.equal(data.train.labels[30:60], drawn.targets[1].float())
    inputs, targets = data.test.batch(torch.arange(20))
    torch.testing.assert_close(inputs @ drawn.beta.float(), targets)
    assert targets.dtype == inputs.dtype == torch.float32
    assert (data.class_names, data.num_classes) == ((), 1)
    other = synthetic_linear(**{**settings, "seed": 8})
    assert not torch.equal(other.train.inputs, data.train.inputs)


def test_noise_is_given_for_each_client_or_for_the_first_and_the_last() -> None:
    assert noise_levels((0.5, 2.0), 3).tolist() == pytest.approx([0.5, 1.0, 2.0])
    assert noise_levels((3.0,), 3).tolist() == pytest.approx([3.0, 3.0, 3.0])
    assert noise_levels((3.0, 1.0, 2.0), 3).tolist() == [3.0, 1.0, 2.0]
    drawn = linear_problem(2, 2, 4000, noise=(0.5, 2.0))
    spread = (drawn.targets - drawn.inputs @ drawn.beta).std(1)
    assert spread.tolist() == pytest.approx([0.5, 2.0], rel=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 100}, "100 rows are too few for 100 features"),
        ({"parties": 0}, "parties and features must be at least 1"),
        ({"overlap": 1.5}, "overlap must be between 0 and 1"),
        ({"clique": 6, "overlap": 0.5}, "clique must be between 0 and the number of parties, 5"),
        ({"noise": (1.0, 2.0, 3.0)}, "noise should be one, two or 5 numbers above 0"),
        ({"noise": (0.0,)}, "noise should be"),
        ({"noise": ()}, "noise should be"),
        ({"test_rows": 0}, "test_rows must be at least 1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"synthetic-linear.*{message}"):
        synthetic_linear(**settings)
