"""The geometry of products is that of the dense changes of the weights, computed from the factors."""

import pytest
import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.layout import Entry, Pair
from steelyard.types import RoundInfo
from steelyard.weighing import Consensus, GeometricMedian, IvarVb, Krum, Majority, Nnm, Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.products import ProductGeometry

RULES = [GeometricMedian(), IvarVb(), Krum(), Majority(), Nnm()]


def pairs_of(*shapes: tuple[int, int, int]) -> tuple[Pair, ...]:
    """Pairs of rank r for weights [m, n], after five coordinates that are in no pair."""
    pairs, start = [], 5
    for r, m, n in shapes:
        a = Entry("lora_A", torch.Size([r, n]), torch.float32, start, start + r * n)
        b = Entry("lora_B", torch.Size([m, r]), torch.float32, a.stop, a.stop + m * r)
        pairs.append(Pair(a, b))
        start = b.stop
    return tuple(pairs)


PAIRS = pairs_of((2, 7, 6), (3, 4, 9))
SIZE = PAIRS[-1].b.stop


def draw(seed: int = 0, clients: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(SIZE, generator=generator)
    common = torch.randn(SIZE, generator=generator)
    return start, 0.3 * (common + torch.randn(clients, SIZE, generator=generator))


def dense(start: Tensor, updates: Tensor) -> Tensor:
    """What each client changes: its plain coordinates, and B_j A_j − B A of each pair, in float64."""
    rows = []
    for update in updates.double():
        parts = [update[:5]]
        for pair in PAIRS:
            (a, b), (own_a, own_b) = pair.split(start.double()), pair.split(start.double() + update)
            parts.append((own_b @ own_a - b @ a).flatten())
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def test_all_quantities_are_those_of_the_dense_products() -> None:
    for seed in range(3):
        start, updates = draw(seed)
        found, expected = ProductGeometry(updates, start, PAIRS), Geometry(dense(start, updates))
        assert len(found) == 5
        assert found.size == SIZE
        for name in ("norms", "gram", "pairwise", "middle_distances"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-10)
        weights = torch.tensor([0.5, 0.1, 0.1, -0.2, 0.5], dtype=torch.float64)
        torch.testing.assert_close(found.distances(weights), expected.distances(weights))
        torch.testing.assert_close(found.around(weights), expected.around(weights))


def test_inner_products_are_computed_in_panels_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    start, updates = draw(clients=11)
    expected = ProductGeometry(updates, start, PAIRS).gram
    monkeypatch.setattr("steelyard.weighing.products.PANEL_BYTES", 8 * 4 * 6 * 11 * 3)
    torch.testing.assert_close(ProductGeometry(updates, start, PAIRS).gram, expected)


def test_small_changes_of_large_factors_are_exact() -> None:
    start, updates = draw()
    start, updates = 1e4 * start, 1e-4 * updates
    found, expected = ProductGeometry(updates, start, PAIRS), Geometry(dense(start, updates))
    torch.testing.assert_close(found.norms, expected.norms, rtol=1e-6, atol=0)
    torch.testing.assert_close(found.pairwise, expected.pairwise, rtol=1e-6, atol=0)


def test_factors_of_the_same_product_are_the_same_update() -> None:
    start, updates = draw(clients=2)
    updates[1] = updates[0]
    for pair in PAIRS:
        for factor, own in zip(pair.split(updates[1]), pair.split(start), strict=True):
            factor.copy_(-(own + factor) - own)  # −A_j and −B_j
    found = ProductGeometry(updates, start, PAIRS)
    assert float(Geometry(updates).pairwise[0, 1]) > 10
    assert float(found.pairwise[0, 1]) < 1e-10
    torch.testing.assert_close(found.norms[0], found.norms[1])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_weigh_factors_as_they_would_weigh_dense_changes(rule: Weigher) -> None:
    start, updates = draw(3, clients=7)
    info = RoundInfo(1, tuple("abcdefg"), torch.arange(1.0, 8.0).double())
    found = rule.weigh(ProductGeometry(updates, start, PAIRS), info, rule.init())

    class OfFactors(Geometry):
        size = SIZE  # independent values, not entries of the weights

    expected = rule.weigh(OfFactors(dense(start, updates)), info, rule.init())
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-6, atol=1e-8)


def test_a_rule_that_reads_vectors_is_refused() -> None:
    geometry = ProductGeometry(*reversed(draw()), PAIRS)
    for ask in (lambda: geometry.mix(torch.ones(5)), lambda: geometry.inner(torch.ones(SIZE))):
        with pytest.raises(InputError, match="products of factors have none"):
            ask()
    assert Consensus.reads_updates


def test_scaled_updates_have_the_geometry_of_their_multiples() -> None:
    _, updates = draw()
    factors = torch.tensor([1.0, 0.5, 0.0, 1.0, 0.01], dtype=torch.float64)
    found, expected = Geometry(updates).scaled(factors), Geometry(updates.double() * factors.unsqueeze(1))
    for name in ("norms", "gram", "pairwise"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-6)
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    torch.testing.assert_close(found.distances(weights), expected.distances(weights))
    torch.testing.assert_close(found.mix(weights).double(), expected.mix(weights), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.inner(updates[0]), expected.inner(updates[0]))
    torch.testing.assert_close(found.blended(torch.eye(5).double()).pairwise, expected.pairwise)
