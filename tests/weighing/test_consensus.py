"""FedBaC as published: three clients over three rounds by hand, and the settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Consensus
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.steps import lower_median, shortened

Rows = Sequence[Sequence[float]]

COUNTS = (1.0, 2.0, 1.0)
BY_SAMPLES = [0.25, 0.5, 0.25]


def weigh(rule: Consensus, rows: Rows, state: State, clients: str = "abc") -> Weighed:
    counts = torch.tensor([COUNTS["abc".index(client)] for client in clients], dtype=torch.float64)
    updates = torch.tensor(rows, dtype=torch.float64)
    return rule.weigh(Geometry(updates), RoundInfo(1, tuple(clients), counts), state)


def run(rule: Consensus, rounds: Sequence[Rows]) -> list[Weighed]:
    results: list[Weighed] = []
    for rows in rounds:
        results.append(weigh(rule, rows, results[-1].state if results else rule.init()))
    return results


def assert_near(found: Tensor, wanted: Sequence[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=1e-15)


# Three clients with 1, 2 and 1 examples, β = 1/2. All examples are made so that the momentum stays on the
# first axis, where the cosine of (3, 4) is .6, that of (4, 3) is .8 and that of (−3, 4) is −.6.

FIRST = [[4.0, 4.0], [4.0, 0.0], [4.0, -4.0]]
# By n_j/n: (4, 0)/4 + (4, 0)/2 + ... = (1 + 2 + 1, 1 − 1) = (4, 0). Momentum ½ (4, 0) = (2, 0).
THIRD = [[4.0, 3.0], [3.0, 4.0], [3.0, -4.0]]  # cosines .8, .6, .6


def check_first(weighed: Weighed) -> None:
    assert_near(weighed.weights, BY_SAMPLES)
    assert_near(weighed.state["momentum"], [2, 0])
    assert_near(weighed.evidence["cosine"], [0, 0, 0])
    assert_near(weighed.evidence["reliability"], [1, 1, 1])
    assert float(weighed.evidence["fell_back"]) == 1
    assert set(weighed.state) == {"momentum"}, "a cosine with nothing is none, and is not remembered"


def check_third(weighed: Weighed, variances: Sequence[float], consensus: Sequence[float]) -> None:
    scores = [math.exp(-variance) * one for variance, one in zip(variances, consensus, strict=True)]
    assert_near(weighed.evidence["cosine"], [0.8, 0.6, 0.6])
    assert_near(weighed.evidence["consensus"], consensus)
    assert_near(weighed.evidence["reliability"], [math.exp(-variance) for variance in variances])
    assert_near(weighed.weights, [score / sum(scores) for score in scores])
    assert float(weighed.evidence["fell_back"]) == 0


def test_three_rounds_by_hand() -> None:
    second = [[3.0, 4.0], [4.0, -3.0], [-1.5, 2.0]]
    results = run(Consensus(beta=0.5), [FIRST, second, THIRD])
    check_first(results[0])
    # Cosines .6, .8, −.6; consensus .6, .8, 0; one cosine each, so reliability 1; weights 3/7, 4/7, 0.
    assert_near(results[1].evidence["cosine"], [0.6, 0.8, -0.6])
    assert_near(results[1].evidence["consensus"], [0.6, 0.8, 0])
    assert_near(results[1].evidence["reliability"], [1, 1, 1])
    assert_near(results[1].weights, [3 / 7, 4 / 7, 0])
    assert float(results[1].evidence["fell_back"]) == 0
    # Mean (9 + 16, 12 − 12)/7 = (25/7, 0); momentum ½ (2, 0) + ½ (25/7, 0) = (39/14, 0).
    assert_near(results[1].state["momentum"], [39 / 14, 0])
    # Cosines a: .6, .8, variance .1² = .01; b: .8, .6, .01; c: −.6, .6, .36.
    # Scores .8 e^−.01 = .7920, .6 e^−.01 = .5940, .6 e^−.36 = .4186, in all 1.8047: .4389, .3292, .2320.
    check_third(results[2], [0.01, 0.01, 0.36], [0.8, 0.6, 0.6])
    torch.testing.assert_close(
        results[2].weights, torch.tensor([0.4389, 0.3292, 0.2320]).double(), rtol=0, atol=1e-4
    )
    a, b, c = results[2].weights.tolist()
    assert_near(
        results[2].state["momentum"],
        [39 / 28 + (4 * a + 3 * b + 3 * c) / 2, (3 * a + 4 * b - 4 * c) / 2],
    )
    assert_near(results[2].state["cosines/c"], [-0.6, 0.6])


def test_three_rounds_by_hand_with_a_sharper_gate() -> None:
    second = [[12.0, 16.0], [12.0, -9.0], [-3.0, 4.0]]
    results = run(Consensus(beta=0.5, gamma=2.0), [FIRST, second, THIRD])
    check_first(results[0])
    # Consensus .6², .8², 0, which is in all 1. Mean .36 (12, 16) + .64 (12, −9) = (12, 0).
    assert_near(results[1].weights, [0.36, 0.64, 0])
    assert_near(results[1].state["momentum"], [1 + 6, 0])
    check_third(results[2], [0.01, 0.01, 0.36], [0.64, 0.36, 0.36])


def test_three_rounds_by_hand_with_a_soft_gate() -> None:
    second = [[3.0, 4.0], [-6.0, -8.0], [0.0, -3.2]]
    results = run(Consensus(beta=0.5, gate="soft"), [FIRST, second, THIRD])
    check_first(results[0])
    # Cosines .6, −.6, 0; consensus .8, .2, .5, in all 1.5: 8/15, 2/15, 1/3.
    assert_near(results[1].evidence["consensus"], [0.8, 0.2, 0.5])
    assert_near(results[1].weights, [8 / 15, 2 / 15, 1 / 3])
    # Mean (2.4 − 1.2, 3.2 − 1.6 − 1.6)/1.5 = (.8, 0).
    assert_near(results[1].state["momentum"], [1 + 0.4, 0])
    # a: .6, .8, variance .01; b: −.6, .6, .36; c: 0, .6, .09. Consensus (1 + .8)/2, (1 + .6)/2 twice.
    check_third(results[2], [0.01, 0.36, 0.09], [0.9, 0.8, 0.8])


def test_three_rounds_by_hand_with_the_momentum_by_samples() -> None:
    second = [[3.0, 4.0], [4.0, -3.0], [-1.5, 2.0]]
    results = run(Consensus(beta=0.5, momentum="samples"), [FIRST, second, THIRD])
    check_first(results[0])
    assert_near(results[1].weights, [3 / 7, 4 / 7, 0])
    # By n_j/n: (.75 + 2 − .375, 1 − 1.5 + .5) = (2.375, 0), also the client that does not count.
    assert_near(results[1].state["momentum"], [1 + 1.1875, 0])
    check_third(results[2], [0.01, 0.01, 0.36], [0.8, 0.6, 0.6])
    # By n_j/n: (1 + 1.5 + .75, .75 + 2 − 1) = (3.25, 1.75).
    assert_near(results[2].state["momentum"], [1.09375 + 1.625, 0.875])


# The settings, one by one. The momentum is put back on the first axis before each round.


def at(cosine: float, length: float = 1.0) -> list[float]:
    return [length * cosine, length * math.sqrt(1 - cosine**2)]


def steer(rule: Consensus, rounds: Sequence[Mapping[str, float]], state: State | None = None) -> Weighed:
    """Rounds in which the clients named have these cosines with the momentum; the last one's result."""
    state = {} if state is None else state
    for cosines in rounds:
        state = {**state, "momentum": torch.tensor([2.0, 0.0], dtype=torch.float64)}
        weighed = weigh(rule, [at(cosine) for cosine in cosines.values()], state, "".join(cosines))
        state = weighed.state
    return weighed


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 40.0])
def test_alpha_says_how_much_variance_counts(alpha: float) -> None:
    # a: variance of .2, .8 is .3² = .09; b: .8, .8: 0.
    weighed = steer(Consensus(alpha=alpha), [{"a": 0.2, "b": 0.8}, {"a": 0.8, "b": 0.8}])
    reliability = math.exp(-0.09 * alpha)
    assert_near(weighed.evidence["reliability"], [reliability, 1])
    assert_near(weighed.weights, [reliability / (1 + reliability), 1 / (1 + reliability)])


@pytest.mark.parametrize(
    ("window", "variance"),
    [
        (1, 0.0),  # a single value has none
        (2, 0.04),  # .4, .8: .2²
        (3, 0.32 / 9),  # .8, .4, .8: mean 2/3, ((2/15)² + (4/15)² + (2/15)²)/3
        (4, 0.11),  # all of them: mean .5, (.25 + .09 + .01 + .09)/4
        (9, 0.11),
    ],
)
def test_the_window_is_the_last_cosines_of_a_client_the_present_one_included(
    window: int, variance: float
) -> None:
    past = [0.0, 0.8, 0.4, 0.8]
    weighed = steer(Consensus(window=window), [{"a": cosine, "b": 0.5} for cosine in past])
    assert_near(weighed.evidence["reliability"], [math.exp(-variance), 1])
    assert_near(weighed.state["cosines/a"], past[-window:])


def test_the_first_cosine_of_a_newcomer_has_no_variance() -> None:
    weighed = steer(Consensus(), [{"a": 0.1}, {"a": 0.9}, {"a": 0.5, "b": 0.5}])
    assert float(weighed.evidence["reliability"][0]) < 1
    assert float(weighed.evidence["reliability"][1]) == 1


def test_a_client_that_sits_a_round_out_keeps_its_history() -> None:
    rounds = [{"a": 0.2, "b": 0.5}, {"b": 0.5, "c": 0.3}, {"b": 0.5}, {"a": 0.8, "b": 0.5}]
    weighed = steer(Consensus(), rounds)
    assert_near(weighed.state["cosines/a"], [0.2, 0.8])
    assert_near(weighed.state["cosines/c"], [0.3])
    assert_near(weighed.evidence["reliability"], [math.exp(-0.09), 1])


@pytest.mark.parametrize("source", ["weights", "samples"])
def test_when_all_oppose_the_momentum_samples_count_and_the_history_grows(source: Any) -> None:
    rule = Consensus(beta=0.5, momentum=source)
    rounds = [{"a": 0.6, "b": 0.6, "c": 0.6}, {"a": -0.6, "b": -0.6, "c": -0.6}]
    weighed = steer(rule, rounds)
    assert_near(weighed.weights, BY_SAMPLES)
    assert float(weighed.evidence["fell_back"]) == 1
    assert_near(weighed.evidence["consensus"], [0, 0, 0])
    assert_near(weighed.state["cosines/a"], [0.6, -0.6])
    assert_near(weighed.evidence["reliability"], [math.exp(-0.36)] * 3)
    assert_near(weighed.state["momentum"], [1 - 0.3, 0.4])  # ½ (2, 0) + ½ (−.6, .8)


def test_one_that_goes_along_is_everything_where_the_others_oppose() -> None:
    weighed = steer(Consensus(), [{"a": -0.6, "b": 0.01, "c": -1.0}])
    assert_near(weighed.weights, [0, 1, 0])
    assert float(weighed.evidence["fell_back"]) == 0


def test_gamma_0_leaves_reliability_alone() -> None:
    rounds = [{"a": 0.2, "b": -0.8, "c": 0.3}, {"a": 0.8, "b": -0.8, "c": 0.3}]
    weighed = steer(Consensus(gamma=0.0), rounds)
    assert_near(weighed.evidence["consensus"], [1, 1, 1])
    low = math.exp(-0.09)
    assert_near(weighed.weights, [low / (2 + low), 1 / (2 + low), 1 / (2 + low)])


def test_alpha_0_leaves_consensus_alone() -> None:
    weighed = steer(Consensus(alpha=0.0), [{"a": 0.2, "b": -0.8, "c": 0.3}, {"a": 0.8, "b": -0.8, "c": 0.2}])
    assert_near(weighed.weights, [0.8, 0, 0.2])


@pytest.mark.parametrize(("gate", "weights"), [("hard", [0, 0.75, 0.25]), ("soft", [0.5, 0.8, 0.6])])
def test_an_update_of_0_has_a_cosine_of_0(gate: Any, weights: list[float]) -> None:
    state = {"momentum": torch.tensor([2.0, 0.0], dtype=torch.float64)}
    weighed = weigh(Consensus(gate=gate), [[0.0, 0.0], at(0.6), at(0.2)], state)
    assert_near(weighed.evidence["cosine"], [0, 0.6, 0.2])
    assert_near(weighed.weights, [one / sum(weights) for one in weights])


def test_a_bound_scales_updates_and_leaves_the_weights() -> None:
    state = {"momentum": torch.tensor([2.0, 0.0], dtype=torch.float64)}
    rows = [at(0.6, 1.0), at(0.6, 2.0), at(0.6, 40.0)]
    assert weigh(Consensus(), rows, state).scale is None
    for bound, factor in ((1.0, 2 / 40), (3.0, 6 / 40)):  # the median norm is 2
        weighed = weigh(Consensus(bound=bound), rows, state)
        assert_near(weighed.weights, [1 / 3] * 3)
        assert weighed.scale is not None
        assert_near(weighed.scale, [1, 1, factor])


def test_the_momentum_is_made_of_the_scaled_updates() -> None:
    rows = [[1.0, 0.0], [2.0, 0.0], [40.0, 0.0]]
    momentum = run(Consensus(bound=1.0, beta=0.5), [rows])[-1].state["momentum"]
    counts = run(Consensus(bound=1.0, beta=0.5), [rows])[-1].weights.tolist()
    assert_near(momentum, [0.5 * (counts[0] + 2 * counts[1] + 2 * counts[2]), 0.0])


def test_shortened_by_hand() -> None:
    norms = torch.tensor([4.0, 0.0, 2.0, 10.0], dtype=torch.float64)
    assert_near(shortened(norms, torch.tensor(2.0, dtype=torch.float64)), [0.5, 1, 1, 0.2])
    assert_near(shortened(norms, lower_median(norms)), [0.5, 1, 1, 0.2])
    assert_near(shortened(norms * 0, torch.tensor(0.0, dtype=torch.float64)), [1, 1, 1, 1])


@pytest.mark.parametrize("gate", ["hard", "soft"])
def test_without_a_direction_samples_count_and_nothing_is_remembered(gate: Any) -> None:
    """All updates of the first round are 0, so there is a momentum, and it is 0."""
    still = [[0.0, 0.0]] * 3
    second = run(Consensus(gate=gate), [still, [[3.0, 4.0], [1.0, 0.0], [-1.0, 0.0]]])[-1]
    assert_near(second.weights, run(Consensus(gate=gate), [still])[-1].weights.tolist())
    assert float(second.evidence["fell_back"]) == 1
    assert not [key for key in second.state if key.startswith("cosines/")]


def test_the_momentum_is_offered_as_a_direction_and_nothing_before_the_first_round() -> None:
    rule = Consensus()
    assert dict(rule.offer(rule.init())) == {}
    state = run(rule, [FIRST])[-1].state
    assert rule.offer(state).keys() == {"direction"}
    assert_near(rule.offer(state)["direction"], [0.1 * 4, 0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta", -0.1), ("beta", 1.0), ("beta", math.nan), ("gamma", -1.0), ("gamma", math.nan),
        ("alpha", -1e-9), ("alpha", math.nan), ("window", 0), ("bound", -1.0), ("bound", math.nan),
        ("momentum", "sample"), ("gate", "harder"),
    ],
)  # fmt: skip
def test_a_setting_that_has_no_meaning_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"\b{name}\b.*{value}|unknown {name} '{value}'") as caught:
        Consensus(**{name: value})
    assert "'consensus'" in str(caught.value)
