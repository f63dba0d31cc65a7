"""Factors are merged by their products: exactly if the rank suffices, and else by the best of that rank."""

import pytest
import torch
from torch import Tensor

from steelyard.combining import LowRank
from steelyard.layout import Entry, Pair

M, N = 8, 11


def pair_of(rank: int, start: int = 0, m: int = M, n: int = N) -> Pair:
    a = Entry("lora_A", torch.Size([rank, n]), torch.float64, start, start + rank * n)
    return Pair(a, Entry("lora_B", torch.Size([m, rank]), torch.float64, a.stop, a.stop + m * rank))


def draw(
    pair: Pair, clients: int, own_rank: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """The factors that came down, updates of the first `own_rank` rows and columns, and weights."""
    generator = torch.Generator().manual_seed(seed)
    size = pair.b.stop + 3  # three coordinates in no pair
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    updates = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    if own_rank is not None:
        a, b = pair.split(updates)
        a[:, own_rank:], b[:, :, own_rank:] = 0.0, 0.0
    weights = torch.rand(clients, generator=generator, dtype=torch.float64)
    return start, updates, weights / weights.sum()


def product(pair: Pair, vector: Tensor) -> Tensor:
    a, b = pair.split(vector)
    return b @ a


def dense_mean(pair: Pair, start: Tensor, updates: Tensor, factors: Tensor) -> Tensor:
    before = product(pair, start)
    each = [c * (product(pair, start + update) - before) for c, update in zip(factors, updates, strict=True)]
    return before + sum(each)


def truncated(matrix: Tensor, rank: int) -> Tensor:
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    return u[:, :rank] @ torch.diag(s[:rank]) @ v[:rank]


@pytest.mark.parametrize("rank", [1, 2, 5, 8])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_the_merged_product_is_the_best_one_of_its_rank(rank: int, scale: float) -> None:
    pair = pair_of(rank, start=0)
    start, updates, weights = draw(pair, 4)
    merged = LowRank().merge(updates, scale * weights, start, (pair,))
    wanted = dense_mean(pair, start, updates, scale * weights)
    torch.testing.assert_close(product(pair, start + merged.change), truncated(wanted, rank))
    lost = torch.linalg.norm(wanted - truncated(wanted, rank)) / torch.linalg.norm(wanted)
    torch.testing.assert_close(merged.rank_error, lost, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(merged.change[-3:], scale * weights @ updates[:, -3:])


def test_a_rank_that_suffices_is_exact_in_any_layer() -> None:
    pairs = (pair_of(6), pair_of(3, start=6 * (M + N), m=3, n=5))
    start, updates, weights = draw(pairs[1], 2, seed=4)
    for matrix in (start.unsqueeze(0), updates):
        a, b = pairs[0].split(matrix)
        a[:, 2:], b[:, :, 2:] = 0.0, 0.0  # two clients of rank 2, and what came down
    merged = LowRank().merge(updates, weights, start, pairs)
    assert float(merged.rank_error) < 1e-12
    for pair in pairs:
        torch.testing.assert_close(
            product(pair, start + merged.change), dense_mean(pair, start, updates, weights)
        )


def test_rows_are_in_the_order_of_what_they_hold_and_keep_their_norm() -> None:
    pair = pair_of(4)
    start, updates, weights = draw(pair, 3)
    a, b = pair.split(start + LowRank().merge(updates, weights, start, (pair,)).change)
    old_a, _ = pair.split(start)
    norm = old_a.square().sum(dim=1).mean().sqrt()
    torch.testing.assert_close(torch.linalg.vector_norm(a, dim=1), norm.expand(4))
    torch.testing.assert_close(a @ a.T, norm.square() * torch.eye(4).double())
    strength = torch.linalg.vector_norm(b, dim=0)
    assert bool((strength.diff() < 0).all())
    best = truncated(dense_mean(pair, start, updates, weights), 2)
    torch.testing.assert_close(b[:, :2] @ a[:2], best)


def test_a_direction_without_any_product_stays_alive() -> None:
    pair = pair_of(3)
    start, updates, _ = draw(pair, 1, own_rank=1)
    pair.split(start)[1].zero_()  # an adapter begins with B = 0
    a, b = pair.split(start + LowRank().merge(updates, torch.ones(1).double(), start, (pair,)).change)
    assert float(b[:, 1:].abs().max()) < 1e-12
    assert bool((torch.linalg.vector_norm(a, dim=1) > 1).all())


def test_clients_that_change_nothing_leave_the_product() -> None:
    pair = pair_of(3)
    start, updates, weights = draw(pair, 3)
    merged = LowRank().merge(torch.zeros_like(updates), weights, start, (pair,))
    torch.testing.assert_close(product(pair, start + merged.change), product(pair, start))
    assert float(merged.rank_error) < 1e-12


def test_one_product_in_other_factors_counts_the_same() -> None:
    pair = pair_of(3)
    start, updates, weights = draw(pair, 3)
    other = updates.clone()
    for factor, own, sign in zip(pair.split(other[1]), pair.split(start), (-100.0, -0.01), strict=True):
        factor.copy_(sign * (own + factor) - own)
    found, expected = (LowRank().merge(each, weights, start, (pair,)).change for each in (other, updates))
    torch.testing.assert_close(product(pair, start + found), product(pair, start + expected))


def test_nothing_at_all_is_merged_without_an_error() -> None:
    pair = pair_of(2)
    start, updates, weights = (torch.zeros_like(each) for each in draw(pair, 2))
    merged = LowRank().merge(updates, weights + 0.5, start, (pair,))
    assert float(merged.rank_error) == 0
    assert not bool(product(pair, start + merged.change).any())


def test_the_change_has_the_dtype_of_the_updates() -> None:
    pair = pair_of(2)
    start, updates, weights = draw(pair, 2)
    assert LowRank().merge(updates.float(), weights, start.float(), (pair,)).change.dtype == torch.float32
