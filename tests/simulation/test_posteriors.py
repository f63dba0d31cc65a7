"""Posteriors in a federation: which merges are alike, and what certainty does in the wrong hands."""

from typing import Any

import pytest
import torch

import steelyard as sy
from steelyard.layout import layout_of
from steelyard.server.lengths import MAX_PRECISION_RATIO, by_precision
from steelyard.server.rows import sigma_metrics

SURE = {"name": "variance-deflation", "factor": 1e-6, "attack": "sign-flip"}
IGNORANT = {"name": "variance-deflation", "factor": 1e6, "attack": {"name": "scaled", "scale": 1.0}}


def run(rule: str, **changes: Any) -> sy.Result:
    return sy.run(
        "fedavg",
        out=None,
        rounds=6,
        evaluate_every=6,
        engine="serial",
        model={"name": "bayesian", "base": "mlp", "last": 2},
        objective="elbo",
        sharing="posterior",
        combining=rule,
        training={"optimizer": "adam", "lr": 0.01, "batch_size": 32, "epochs": 2},
        **{"data.partition": {"name": "dirichlet", "alpha": 0.5}, **changes},
    )


def accuracy(result: sy.Result) -> float:
    return float(result.history[-1]["accuracy"])


@pytest.fixture(scope="module")
def clean() -> sy.Result:
    return run("rklb")


def test_four_merges_are_alike_and_gaa_shrinks(clean: sy.Result) -> None:
    """Honest clients are about as certain as each other, so it hardly matters how variances are merged."""
    others = {rule: run(rule) for rule in ("eaa", "aalv", "wb", "gaa")}
    assert accuracy(clean) > 0.9
    sigma = clean.history[-1]["sigma.1"]
    for rule in ("eaa", "aalv", "wb"):
        assert accuracy(others[rule]) == pytest.approx(accuracy(clean), abs=0.03)
        assert others[rule].history[-1]["sigma.1"] == pytest.approx(sigma, rel=0.1)
    assert others["gaa"].history[-1]["sigma.1"] < 0.2 * sigma


def test_the_record_has_sigma_for_every_bayesian_layer_and_round(clean: sy.Result) -> None:
    for row in clean.history:
        assert {name for name in row if name.startswith("sigma")} == {"sigma.1", "sigma.3"}
        assert 0.01 < row["sigma.1"] < 0.2


def test_sigma_is_the_root_mean_variance_of_a_layer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU(), torch.nn.Linear(1, 1))
    variance = torch.tensor([1.0, 2.0, 6.0, 0.0, 0.0])  # weight and bias of the first, then of the last
    assert sigma_metrics(layout_of(model), variance) == {"sigma.0": pytest.approx(3**0.5)}
    assert sigma_metrics(layout_of(model), None) == {}


def test_certainty_in_hostile_hands_is_seen_in_the_geometry_of_precision(clean: sy.Result) -> None:
    """Three of ten reverse their means and claim to be sure of it; the rule that weighs them is the same."""
    hostile = {"adversaries": {"count": 3, "attack": SURE}}
    assert accuracy(run("rklb", **hostile)) < 0.4
    assert accuracy(run("rklb", weighing="ivar-vb", **hostile)) < 0.4, "a small weight wins by its precision"
    seen = run("rklb", weighing="ivar-vb", **hostile, **{"server.geometry": "precision"})
    assert accuracy(seen) > accuracy(clean) - 0.03
    assert seen.history[-1]["detection_auroc"] == 1


def test_so_is_a_claim_to_know_nothing(clean: sy.Result) -> None:
    hostile = {"adversaries": {"count": 3, "attack": IGNORANT}}
    assert accuracy(run("eaa", **hostile)) < 0.5
    assert accuracy(run({"name": "eaa", "variance_ratio_limit": 2.0}, **hostile)) > accuracy(clean) - 0.03  # type: ignore[arg-type]
    seen = run("eaa", weighing="ivar-vb", **hostile, **{"server.geometry": "precision"})
    assert accuracy(seen) > accuracy(clean) - 0.03


def test_means_are_stretched_by_how_far_a_claim_is_from_the_usual_one() -> None:
    means = torch.ones(3, 4)
    variances = torch.tensor([[2.0, 2.0, 2.0, 0.0], [2.0, 1.0, 8.0, 0.0], [2.0, 2.0, 2.0, 0.0]])
    assert by_precision(means, variances)[1].tolist() == [1.0, 2.0, 4.0, 1.0]
    variances[1] = torch.tensor([0.0, 1e30, 2.0, 5.0])
    assert by_precision(means, variances)[1].tolist() == [MAX_PRECISION_RATIO, MAX_PRECISION_RATIO, 1.0, 1.0]


def test_nothing_changes_where_no_variance_travels() -> None:
    plain, seen = (
        sy.run("fedavg", out=None, rounds=2, **{"server.geometry": geometry})
        for geometry in ("mean", "precision")
    )
    assert [row["accuracy"] for row in plain.history] == [row["accuracy"] for row in seen.history]


def test_another_geometry_is_refused() -> None:
    with pytest.raises(sy.InputError, match=r"server\.geometry"):
        sy.run("fedavg", **{"server.geometry": "curved"})
