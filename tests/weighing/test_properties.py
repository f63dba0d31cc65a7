"""What holds for every weighing rule, whatever the clients send.

All weighing rules are tried with their defaults: a new rule is under test once it is listed.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from steelyard import components
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.geometry import Geometry

RULES = sorted(components.names("weighing"))
ZERO_MEAN_PRIOR = ["icov-em", "icov-mle", "icov-vb", "ivar-vb"]
"""Rules with a prior around 0, or that start from the result of such a rule (icov-mle).
All others, except those with angles, depend only on distances between updates."""
ANGLES = {"concord": "reliability", "consensus": "consensus", "majority": "trust"}
"""Rules that use angles between updates, so that 0 matters; and their evidence of agreement."""
COVARIANCES = ["icov-em", "icov-mle", "icov-vb"]
"""Rules with covariances between clients, whose weights may be negative."""

every_rule = pytest.mark.parametrize("name", RULES)
LARGEST = float(np.float32(1e30))
SPECIAL = [0.0, -0.0, 1e-45, -1e-40, 1e-38, 1.0, LARGEST, -LARGEST]


def few(examples: int) -> settings:
    """Fixed examples, without a clock, a database or a tracer: the same short run every time."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def weigh(name: str, updates: Tensor, counts: Tensor, state: State | None = None) -> Weighed:
    rule = components.build("weighing", {"name": name})
    clients = tuple(f"client-{position}" for position in range(len(updates)))
    before = rule.init() if state is None else state
    return rule.weigh(Geometry(updates), RoundInfo(1, clients, counts), before)


def counts_of(clients: int) -> st.SearchStrategy[Tensor]:
    claims = st.lists(st.integers(1, 10**7), min_size=clients, max_size=clients)
    return claims.map(lambda given: torch.tensor(given, dtype=torch.float64))


@st.composite
def any_round(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Finite float32 updates of every size and sign, some of them sent twice, and counts."""
    clients, size = draw(st.integers(1, 8)), draw(st.integers(1, 20))
    values = st.floats(-LARGEST, LARGEST, width=32) | st.sampled_from(SPECIAL)
    row = st.lists(values, min_size=size, max_size=size)
    sent = draw(st.lists(row, min_size=1, max_size=clients))
    who = draw(st.lists(st.integers(0, len(sent) - 1), min_size=clients, max_size=clients))
    return torch.tensor([sent[one] for one in who], dtype=torch.float32), draw(counts_of(clients))


@st.composite
def sizes_apart(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Random directions, lengths from the whole range of float32: rounding at its worst."""
    clients, size = draw(st.integers(1, 8)), draw(st.integers(1, 20))
    exponents = draw(st.lists(st.integers(-44, 29), min_size=clients, max_size=clients))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    directions = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    lengths = 10.0 ** torch.tensor(exponents, dtype=torch.float64)
    return (directions * lengths.unsqueeze(1)).float(), draw(counts_of(clients))


def fixed(rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    return torch.tensor(rows, dtype=torch.float32), torch.ones(len(rows), dtype=torch.float64)


@st.composite
def plain_round(draw: st.DrawFn, least: int = 1) -> tuple[Tensor, Tensor]:
    """Updates that differ: a common direction and normal noise, in float64. Near ties have no chance here."""
    clients, size = draw(st.integers(least, 8)), draw(st.integers(2 * least, 20))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    common = torch.randn(size, generator=generator, dtype=torch.float64)
    noise = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    return common + noise, draw(counts_of(clients))


def check_finite(name: str, updates: Tensor, counts: Tensor) -> None:
    """In a first round and in a second one that remembers it."""
    state = None
    for _ in range(2):
        weighed = weigh(name, updates, counts, state)
        state = weighed.state
        assert torch.isfinite(weighed.weights).all()
        assert float(weighed.weights.sum()) == pytest.approx(1.0, abs=1e-9)
        assert name in COVARIANCES or float(weighed.weights.min()) >= 0
        for key, value in {**weighed.evidence, **weighed.state}.items():
            assert torch.isfinite(value).all(), key


@every_rule
@few(16)
@given(given_round=any_round() | sizes_apart())
@example(given_round=fixed([[-6e-23, -4e-23, 5e-23], [6e-41, -4e-41, -8e-41], [-9e-27, 3e-27, 5e-27]]))
@example(
    given_round=fixed(
        [[9e-38, 1e-38], [300, 800], [-0.8, 0.1], [7e7, -5e7], [2e-14, -2e-14], [0.04, -0.09], [2e11, -6e11]]
    )
)
def test_any_finite_update_gives_finite_weights_that_sum_to_1(
    name: str, given_round: tuple[Tensor, Tensor]
) -> None:
    check_finite(name, *given_round)


@every_rule
@few(4)
@given(given_round=plain_round(), seed=st.integers(0, 10**6))
def test_weights_follow_the_clients_when_their_order_changes(
    name: str, given_round: tuple[Tensor, Tensor], seed: int
) -> None:
    updates, counts = given_round
    order = torch.randperm(len(updates), generator=torch.Generator().manual_seed(seed))
    straight = weigh(name, updates, counts).weights
    shuffled = weigh(name, updates[order], counts[order]).weights
    # Rules stop when a step changes weights by 1e-9: what is left to their fixed point is several steps.
    torch.testing.assert_close(shuffled, straight[order], rtol=1e-6, atol=1e-8)


@every_rule
@few(4)
@given(given_round=plain_round(), exponent=st.floats(-3, 3))
def test_weights_do_not_depend_on_the_unit_of_length(
    name: str, given_round: tuple[Tensor, Tensor], exponent: float
) -> None:
    updates, counts = given_round
    scaled = weigh(name, updates * 10**exponent, counts).weights
    torch.testing.assert_close(scaled, weigh(name, updates, counts).weights, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", sorted({*RULES} - {*ZERO_MEAN_PRIOR, *ANGLES}))
@few(4)
@given(given_round=plain_round(), length=st.floats(0, 100), seed=st.integers(0, 10**6))
def test_what_all_updates_have_in_common_does_not_matter(
    name: str, given_round: tuple[Tensor, Tensor], length: float, seed: int
) -> None:
    updates, counts = given_round
    shift = torch.randn(updates.shape[1], generator=torch.Generator().manual_seed(seed)).double() * length
    moved = weigh(name, updates + shift, counts).weights
    torch.testing.assert_close(moved, weigh(name, updates, counts).weights, rtol=1e-6, atol=1e-9)


def flat_prior(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """IVAR-VB with τ² = ∞: eqs. 10, 11 and 13 without the prior, until they stand still."""
    sigma2 = np.mean((x - x.mean(axis=0)) ** 2, axis=1)
    for _ in range(5000):
        lam = 1 / sum(1 / sigma2)
        a = lam / sigma2
        sigma2 = np.array([lam + np.mean((x_j - a @ x) ** 2) for x_j in x])
        sigma2 = np.maximum(sigma2, 1e-3 * np.median(sigma2))
    return a


def shifted(updates: Tensor, length: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return updates + length * torch.randn(updates.shape[1], generator=generator, dtype=torch.float64)


@few(4)
@given(given_round=plain_round(least=5))
def test_the_prior_of_ivar_vb_fades_as_the_common_part_grows(given_round: tuple[Tensor, Tensor]) -> None:
    """τ² is learnt from the updates: a large common part makes it flat, and only distances count."""
    updates, counts = given_round
    weighed = weigh("ivar-vb", shifted(updates, 1e4), counts)
    assume(bool(weighed.evidence["converged"]))
    np.testing.assert_allclose(weighed.weights.numpy(), flat_prior(updates.numpy()), atol=1e-3)


@pytest.mark.parametrize("name", ZERO_MEAN_PRIOR)
@few(3)
@given(given_round=plain_round(least=5))
def test_a_large_common_part_may_as_well_be_larger(name: str, given_round: tuple[Tensor, Tensor]) -> None:
    """With a zero-mean prior the common part counts, but ever less: the weights have a limit."""
    updates, counts = given_round
    near, far = (weigh(name, shifted(updates, length), counts).weights for length in (1e4, 1e6))
    torch.testing.assert_close(near, far, rtol=0, atol=2e-3)


@pytest.mark.parametrize("name", sorted(ANGLES))
@few(4)
@given(given_round=plain_round(least=5))
def test_with_a_large_common_part_all_pull_the_same_way(
    name: str, given_round: tuple[Tensor, Tensor]
) -> None:
    """In a second round too, which for a rule that looks back is the first that it can say anything of."""
    updates, counts = given_round
    first = weigh(name, shifted(updates, 1e4), counts)
    second = weigh(name, shifted(updates, 1e4), counts, first.state)
    for weighed in (second,) if name == "consensus" else (first, second):
        torch.testing.assert_close(weighed.evidence[ANGLES[name]], torch.ones_like(counts))
