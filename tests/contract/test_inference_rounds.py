"""ICOV-VB over several rounds against the paper's equations, and the convergence of IVAR-VB."""

from collections.abc import Callable

import naive_inference
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.functional import weigh
from steelyard.types import RoundInfo, State
from steelyard.weighing import IcovVb, Weigher
from steelyard.weighing.geometry import Geometry

Array = NDArray[np.float64]
CLIENTS = tuple("abcdef")


class Past:
    """Algorithm 2 carries σ_j: the mean over a client's rounds, each relative to its round's median."""

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.relative: list[Array] = []

    def averaged(self, sigma2: Array) -> Array:
        rounds = [*(past * np.median(sigma2) for past in self.relative), sigma2]
        shares = [self.memory**age for age in reversed(range(len(rounds)))]
        return np.average(rounds, axis=0, weights=shares)

    def keep(self, sigma2: Array) -> None:
        self.relative.append(sigma2 / np.median(sigma2))


def updates(round: int, sigma: Array, size: int = 80) -> Tensor:
    """A truth, an error that three clients share, and each client's own noise."""
    draw = np.random.default_rng(round)
    shared = np.outer([3.0, 2.5, 2.0, 0, 0, 0], draw.normal(size=size))
    own = sigma[:, None] * draw.normal(size=(len(sigma), size))
    return torch.from_numpy((draw.normal(size=size) + shared + own) * 2.0**-round)


def rounds_of(rule: Weigher, sigmas: list[Array]) -> list[Array]:
    state: State = rule.init()
    found = []
    for number, sigma in enumerate(sigmas, start=1):
        info = RoundInfo(number, CLIENTS, torch.ones(len(CLIENTS), dtype=torch.float64))
        weighed = rule.weigh(Geometry(updates(number, sigma)), info, state)
        state = weighed.state
        found.append(weighed.weights.numpy())
    return found


def same(sigma: Array) -> list[Array]:
    return [sigma] * 4


def drifting(sigma: Array) -> list[Array]:
    return [np.roll(sigma, number) for number in range(4)]


@pytest.mark.parametrize("memory", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("factors", [1, 2])
@pytest.mark.parametrize("noise", [same, drifting])
def test_four_rounds_of_icov_vb_agree_with_the_paper(
    noise: Callable[[Array], list[Array]], factors: int, memory: float
) -> None:
    past, latent = Past(memory), None
    sigmas = noise(np.linspace(0.5, 2.0, len(CLIENTS)))
    for number, weights in enumerate(rounds_of(IcovVb(factors=factors, memory=memory), sigmas), start=1):
        x = updates(number, sigmas[number - 1]).numpy()
        expected = naive_inference.icov_vb_round(x, factors, past.averaged, latent)
        past.keep(expected.noise)
        latent = expected.latent
        np.testing.assert_allclose(weights, expected.weights, rtol=1e-5, atol=1e-7)


def test_icov_vb_does_not_forget_six_noisy_rounds_because_of_a_quiet_one() -> None:
    """One client has five times the noise of the others for six rounds, and theirs in the seventh."""
    noisy, quiet = np.array([5.0, 1, 1, 1, 1, 1]), np.ones(6)
    history = [noisy] * 6 + [quiet]
    for rule in ("icov-vb", "ivar-vb"):
        state: State | None = None
        for number, sigma in enumerate(history, start=1):
            x = torch.from_numpy(np.random.default_rng(number).normal(size=(6, 500)) * sigma[:, None] + 1.0)
            weighed = weigh(x, rule, round=number, state=state, clients=CLIENTS)
            state = weighed.state
        assert float(weighed.weights[0]) < 0.02, rule
        assert float(weighed.evidence["variance"][0]) > 10 * float(weighed.evidence["variance"][1:].median())
        assert float(weigh(x, rule, clients=CLIENTS).weights[0]) > 0.1, "without the past it looks like any"


def unequal(clients: int, size: int, seed: int) -> Tensor:
    """Noise from 0.05 to 5."""
    draw = torch.Generator().manual_seed(seed)
    sigma = torch.logspace(-1.3, 0.7, clients, dtype=torch.float64).unsqueeze(1)
    truth = torch.randn(size, generator=draw, dtype=torch.float64)
    return truth + sigma * torch.randn(clients, size, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize(("clients", "size"), [(6, 1000), (6, 100), (10, 1000), (3, 1000), (4, 50)])
@pytest.mark.parametrize("seed", range(4))
def test_ivar_vb_converges_where_noise_differs_a_hundredfold(clients: int, size: int, seed: int) -> None:
    weighed = weigh(unequal(clients, size, seed), "ivar-vb")
    assert float(weighed.evidence["converged"]) == 1
    assert float(weighed.evidence["iterations"]) < 1000


@pytest.mark.parametrize("seed", range(3))
def test_ivar_vb_converges_to_what_thousands_of_plain_steps_give(seed: int) -> None:
    x = unequal(6, 1000, seed)
    expected = naive_inference.ivar_vb(x.numpy(), np.ones(6), iterations=6000)
    np.testing.assert_allclose(weigh(x, "ivar-vb").weights.numpy(), expected, atol=1e-5)
    short = weigh(x, "ivar-vb", iterations=100)
    assert float(short.evidence["converged"]) == 0
    assert float((short.weights - torch.from_numpy(expected)).abs().max()) > 0.01


def test_ivar_vb_leaves_some_weight_to_the_rest_even_with_very_few_coordinates() -> None:
    """Without the floor, all weight goes to one of two clients."""
    x = torch.tensor([[0.8923, -0.4389], [0.8495, -1.1934]], dtype=torch.float64)
    assert float(weigh(x, "ivar-vb").weights.min()) > 1e-5
    assert float(weigh(x, "ivar-vb", floor=0.0).weights.min()) < 1e-6


def groups(*sizes: int, seed: int) -> Tensor:
    """Groups of exact copies."""
    vectors = torch.randn(len(sizes), 200, generator=torch.Generator().manual_seed(seed))
    return torch.cat([vector.expand(size, -1) for vector, size in zip(vectors, sizes, strict=True)])


@pytest.mark.parametrize("rule", ["icov-em", "icov-vb", "icov-mle", "ivar-vb"])
@pytest.mark.parametrize("seed", range(5))
def test_groups_of_copies_and_opposite_giants_are_weighed(rule: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    common, giant = torch.randn(2, 200, generator=draw)
    honest = common + 0.5 * torch.randn(8, 200, generator=draw)
    for x in (
        groups(7, 3, seed=seed),
        groups(3, 2, seed=seed),
        groups(5, 5, seed=seed),
        groups(4, 3, 3, seed=seed),
        torch.cat([honest, 1e8 * giant.expand(1, -1), -1e8 * giant.expand(1, -1)]),
        torch.cat([honest, 1e8 * common.expand(1, -1), -1e8 * common.expand(1, -1)]),
    ):
        weights = weigh(x, rule).weights
        assert bool(weights.isfinite().all())
        assert float(weights.sum()) == pytest.approx(1, abs=1e-6)
