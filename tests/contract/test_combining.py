"""Every combining rule goes through the same table of promises."""

import numpy as np
import pytest
import torch
from cases import COMBINERS, CombinerCase
from torch import Tensor

from steelyard import components
from steelyard.types import Combined, Stack

CASES = [pytest.param(case, id=repr(case.rule)) for cases in COMBINERS.values() for case in cases]
every_rule = pytest.mark.parametrize("case", CASES)


def draw(seed: int, clients: int = 6, size: int = 40) -> tuple[Stack, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(clients, size, generator=generator)
    variances = torch.rand(clients, size, generator=generator) + 0.01
    weights = torch.rand(clients, generator=generator, dtype=torch.float64)
    return Stack(means, variances), weights / weights.sum()


def combine(case: CombinerCase, stack: Stack, weights: Tensor) -> Combined:
    given = stack if "variance" in case.rule.needs else stack._replace(variance=None)
    return case.rule.combine(given, weights)


def test_every_rule_has_a_row() -> None:
    assert set(COMBINERS) == set(components.names("combining"))


@every_rule
def test_agrees_with_the_naive_reference(case: CombinerCase) -> None:
    for seed in range(5):
        stack, weights = draw(seed)
        assert stack.variance is not None
        mean, variance = case.reference(
            stack.mean.double().numpy(), stack.variance.double().numpy(), weights.numpy()
        )
        combined = combine(case, stack, weights)
        np.testing.assert_allclose(combined.mean.double().numpy(), mean, rtol=1e-4, atol=1e-6)
        assert (combined.variance is None) == (variance is None)
        if combined.variance is not None:
            np.testing.assert_allclose(combined.variance.double().numpy(), variance, rtol=1e-4, atol=1e-6)


@every_rule
def test_order_of_clients_does_not_matter(case: CombinerCase) -> None:
    stack, weights = draw(2)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert stack.variance is not None
    shuffled = Stack(stack.mean[order], stack.variance[order])
    torch.testing.assert_close(
        combine(case, shuffled, weights[order]).mean, combine(case, stack, weights).mean, rtol=1e-4, atol=1e-6
    )


@every_rule
def test_the_result_does_not_share_memory_with_the_stack(case: CombinerCase) -> None:
    stack, weights = draw(3)
    found = [value for value in combine(case, stack, weights) if value is not None]
    kept = [value.clone() for value in found]
    for matrix in stack:
        assert matrix is not None
        matrix.fill_(float("nan"))
    assert all(torch.equal(value, was) for value, was in zip(found, kept, strict=True))


@every_rule
@pytest.mark.parametrize("clients", [1, 5])
def test_identical_clients_give_what_each_sent(case: CombinerCase, clients: int) -> None:
    stack, _ = draw(3, clients=1)
    assert stack.variance is not None
    same = Stack(stack.mean.repeat(clients, 1), stack.variance.repeat(clients, 1))
    combined = combine(case, same, torch.full((clients,), 1 / clients, dtype=torch.float64))
    torch.testing.assert_close(combined.mean, stack.mean[0])


@every_rule
def test_moves_with_its_inputs(case: CombinerCase) -> None:
    """Combining updates is the same as combining models: shifting every mean shifts the result."""
    stack, weights = draw(4)
    shifted = stack._replace(mean=stack.mean + 3.0)
    torch.testing.assert_close(
        combine(case, shifted, weights).mean, combine(case, stack, weights).mean + 3.0, rtol=1e-4, atol=1e-5
    )


@every_rule
def test_zero_updates_stay_zero(case: CombinerCase) -> None:
    stack, weights = draw(5)
    combined = combine(case, stack._replace(mean=torch.zeros_like(stack.mean)), weights)
    assert torch.equal(combined.mean, torch.zeros(40))


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_dtype(case: CombinerCase, dtype: torch.dtype) -> None:
    stack, weights = draw(6)
    assert stack.variance is not None
    assert combine(case, Stack(stack.mean.to(dtype), stack.variance.to(dtype)), weights).mean.dtype == dtype


@every_rule
def test_inputs_are_not_touched(case: CombinerCase) -> None:
    stack, weights = draw(7)
    assert stack.variance is not None
    kept = stack.mean.clone(), stack.variance.clone(), weights.clone()
    combined = combine(case, stack, weights)
    combined.mean.add_(1.0)
    assert all(
        torch.equal(now, then) for now, then in zip((stack.mean, stack.variance, weights), kept, strict=True)
    )
