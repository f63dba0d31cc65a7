"""Where products are merged, they are what is screened, clipped, weighed and moved: never the factors."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.combining import LowRank, Mean
from steelyard.layout import Entry, Pair
from steelyard.server.aggregation import Aggregated, Aggregator, ServerState
from steelyard.settings import Server
from steelyard.types import Message, Reply, RoundInfo, State, Weighed
from steelyard.weighing import GeometricMedian, Majority, Uniform, Weigher
from steelyard.weighing.geometry import Geometry

A = Entry("lora_A", torch.Size([2, 5]), torch.float64, 0, 10)
PAIR = Pair(A, Entry("lora_B", torch.Size([6, 2]), torch.float64, 10, 22))
SIZE = 24  # two coordinates in no pair
NAMES = "abcde"


@dataclass(frozen=True)
class Halved(Weigher):
    """Equal weights, and all updates half as long."""

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
        return Weighed(weights, scale=torch.full_like(weights, 0.5))


def draw(clients: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    common = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    noise = torch.randn(clients, SIZE, generator=generator, dtype=torch.float64)
    return start, 0.2 * common + 0.1 * noise


def aggregate(
    start: Tensor, updates: Tensor, weigher: Weigher, combiner: Any = None, **server: Any
) -> Aggregated:
    aggregator = Aggregator(weigher, combiner or LowRank(), Server(**server), SIZE, pairs=(PAIR,))
    replies = [Reply(name, Message(row), 10) for name, row in zip(NAMES, updates, strict=False)]
    return aggregator.aggregate(ServerState(Message(start)), replies, NAMES[: len(updates)], 1)


def product(vector: Tensor) -> Tensor:
    a, b = PAIR.split(vector)
    return b @ a


def changes(start: Tensor, updates: Tensor) -> Tensor:
    """Δ_j, and the coordinates in no pair, [J, K]."""
    rows = [torch.cat([(product(start + row) - product(start)).flatten(), row[22:]]) for row in updates]
    return torch.stack(rows)


def moved(done: Aggregated, start: Tensor) -> Tensor:
    return changes(start, (done.state.message.mean - start).unsqueeze(0))[0]


def best(start: Tensor, change: Tensor) -> Tensor:
    """A change, with the product after it reduced to rank 2."""
    u, s, v = torch.linalg.svd(product(start) + change[:30].view(6, 5), full_matrices=False)
    return torch.cat([(u[:, :2] * s[:2] @ v[:2] - product(start)).flatten(), change[30:]])


def test_norms_are_those_of_the_products() -> None:
    start, updates = draw()
    done = aggregate(start, updates, Uniform())
    torch.testing.assert_close(done.norms, torch.linalg.vector_norm(changes(start, updates), dim=1))
    assert 0 < float(done.evidence["rank_error"]) < 1
    torch.testing.assert_close(moved(done, start), best(start, changes(start, updates).mean(dim=0)))


@pytest.mark.parametrize("limit", [0.5, "median"])
def test_clipping_shortens_products(limit: Any) -> None:
    start, updates = draw()
    dense = changes(start, updates)
    norms = torch.linalg.vector_norm(dense, dim=1)
    largest = float(norms.median()) if limit == "median" else limit
    shortened = dense * (largest / norms).clamp(max=1).unsqueeze(1)
    done = aggregate(start, updates, Uniform(), clip=limit)
    torch.testing.assert_close(moved(done, start), best(start, shortened.mean(dim=0)))
    found = aggregate(start, updates, GeometricMedian(), clip=limit).weights
    info = RoundInfo(1, tuple(NAMES), torch.full((5,), 10.0).double())
    torch.testing.assert_close(found, GeometricMedian().weigh(Geometry(shortened), info, {}).weights)


def test_the_learning_rate_and_the_factors_of_a_rule_are_on_products() -> None:
    start, updates = draw()
    mean = changes(start, updates).mean(dim=0)
    for weigher, lr, factor in ((Uniform(), 0.25, 0.25), (Halved(), 1.0, 0.5), (Halved(), 0.5, 0.25)):
        done = aggregate(start, updates, weigher, lr=lr)
        torch.testing.assert_close(moved(done, start), best(start, factor * mean))


def test_a_product_that_is_far_too_long_is_rejected() -> None:
    start, updates = draw()
    updates[4] *= 300
    done = aggregate(start, updates, Uniform())
    assert done.clients == tuple("abcd")
    assert "300" not in done.rejected["e"]
    assert "times the usual" in done.rejected["e"]


@pytest.mark.parametrize("value", [1e30, 1e-30, -1e18])
def test_extreme_factors_do_not_stop_the_run(value: float) -> None:
    start, updates = (each.float() for each in draw())
    updates[4] = value
    for weigher in (Uniform(), Majority(), GeometricMedian()):
        done = aggregate(start, updates, weigher, max_norm_ratio=torch.inf)
        assert bool(done.state.message.mean.isfinite().all())
        assert done.skipped == "" or torch.equal(done.state.message.mean, start)


def disguised(start: Tensor, update: Tensor, scale: float) -> Tensor:
    """An update to other factors with the same product."""
    other = update.clone()
    for factor, own, by in zip(PAIR.split(other), PAIR.split(start), (scale, 1 / scale), strict=True):
        factor.copy_(by * (own + factor) - own)
    return other


@pytest.mark.parametrize("scale", [-1.0, 50.0])
def test_other_factors_of_one_product_change_nothing(scale: float) -> None:
    start, updates = draw()
    other = updates.clone()
    other[4] = disguised(start, updates[4], scale)
    plain, strange = (aggregate(start, each, Majority()) for each in (updates, other))
    torch.testing.assert_close(strange.weights, plain.weights)
    torch.testing.assert_close(moved(strange, start), moved(plain, start))


def test_rules_that_merge_factors_weigh_factors() -> None:
    """Otherwise a client could hide factors that spoil the mean behind a product like all others."""
    start, updates = draw()
    updates[4] = disguised(start, updates[4], -1.0)
    done = aggregate(start, updates, GeometricMedian(), Mean())
    torch.testing.assert_close(done.norms, torch.linalg.vector_norm(updates, dim=1))
    assert float(done.weights[4]) < 0.5 * float(done.weights[:4].min())
    assert "rank_error" not in done.evidence
