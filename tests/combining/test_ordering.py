"""The coordinate-wise median and trimmed mean on examples that can be worked out by hand."""

import pytest
import torch
from torch import Tensor

from steelyard.combining import Combiner, Median, TrimmedMean
from steelyard.combining.ordering import BLOCK_COORDINATES as WIDTH
from steelyard.errors import InputError
from steelyard.types import Stack

BOTH = pytest.mark.parametrize("rule", [Median(), TrimmedMean(trim=0.3)], ids=repr)


def combine(rule: Combiner, means: Tensor, weights: list[float] | None = None) -> Tensor:
    shares = [1 / len(means)] * len(means) if weights is None else weights
    return rule.combine(Stack(means), torch.tensor(shares, dtype=torch.float64)).mean


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


@pytest.mark.parametrize(
    ("values", "weights", "expected"),
    [
        ([7.0], None, 7.0),
        ([7.0], [3.0], 7.0),
        ([1.0, 5.0], None, 3.0),
        ([1.0, 5.0], [0.6, 0.4], 1.0),
        ([1.0, 5.0], [0.4, 0.6], 5.0),
        ([9.0, 1.0, 2.0], None, 2.0),
        ([9.0, 1.0, 2.0, 4.0], None, 3.0),
        ([9.0, 1.0, 2.0], [0.6, 0.2, 0.2], 9.0),
        ([9.0, 1.0, 2.0], [0.5, 0.25, 0.25], 5.5),  # half of the weight ends between 2 and 9
        ([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4], 3.0),
        ([4.0, 4.0, 1.0, 9.0], None, 4.0),
        ([1.0, 1.0, 9.0, 9.0], None, 5.0),
        ([1.0, 1.0, 9.0, 9.0], [0.1, 0.5, 0.2, 0.2], 1.0),
        ([5.0, 2.0, 8.0], [1.0, 0.0, 0.0], 5.0),
        ([2.0, 5.0, 8.0], [0.0, 0.3, 0.7], 8.0),
        ([10.0, 20.0, 30.0], [2.0, 1.0, 1.0], 15.0),  # weights need not sum to 1
    ],
)
def test_weighted_median(values: list[float], weights: list[float] | None, expected: float) -> None:
    assert combine(Median(), column(*values), weights).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("trim", "values", "weights", "expected"),
    [
        (0.2, [7.0], None, 7.0),
        (0.2, [1.0, 5.0], None, 3.0),
        (0.0, [1.0, 2.0, 6.0], None, 3.0),
        (0.25, [100.0, 1.0, 3.0, -50.0], None, 2.0),
        (0.2, [5.0, 1.0, 2.0, 4.0, 300.0], None, 11 / 3),
        # trim · J = 0.6: of the lowest and the highest 0.4 of a client stay, of all 1.8
        (0.2, [0.0, 3.0, 12.0], None, (0.4 * 0 + 1 * 3 + 0.4 * 12) / 1.8),
        # trim · J = 1.25: the outermost go, of their neighbours 0.75 stay
        (0.25, [0.0, 4.0, 6.0, 10.0, 99.0], None, (0.75 * 4 + 6 + 0.75 * 10) / 2.5),
        (0.2, [0.0, 10.0], [0.3, 0.7], (0.1 * 0 + 0.5 * 10) / 0.6),
        (0.25, [0.0, 10.0, 20.0], [0.5, 0.0, 0.5], 10.0),
        (0.4, [1.0, 5.0, 50.0], [0.0, 0.7, 0.3], 5.0),
        (0.1, [2.0, 2.0, 2.0, 7.0], [0.1, 0.2, 0.3, 0.4], (0.5 * 2 + 0.3 * 7) / 0.8),
        (0.499, [1.0, 2.0, 90.0], None, 2.0),
    ],
)
def test_weighted_trimmed_mean(
    trim: float, values: list[float], weights: list[float] | None, expected: float
) -> None:
    assert combine(TrimmedMean(trim=trim), column(*values), weights).item() == pytest.approx(expected)


@pytest.mark.parametrize("trim", [-0.1, 0.5, 0.7, float("nan")])
def test_a_trim_that_leaves_nothing_or_less_is_refused(trim: float) -> None:
    with pytest.raises(InputError, match=r"trim must be at least 0 and less than 0\.5, not"):
        TrimmedMean(trim=trim)


def draw(clients: int, size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, list[float]]:
    generator = torch.Generator().manual_seed(clients * size)
    weights = torch.rand(clients, generator=generator, dtype=torch.float64)
    return torch.randn(clients, size, generator=generator, dtype=torch.float64).to(dtype), weights.tolist()


@BOTH
@pytest.mark.parametrize("size", [1, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH + 77])
@pytest.mark.parametrize("weighted", [False, True])
def test_coordinates_do_not_depend_on_their_block(rule: Combiner, size: int, weighted: bool) -> None:
    means, weights = draw(5, size)
    whole = combine(rule, means, weights if weighted else None)
    assert whole.shape == (size,)
    for one in {0, size // 2, size - 1}:
        alone = combine(rule, means[:, one : one + 1], weights if weighted else None)
        torch.testing.assert_close(whole[one : one + 1], alone, rtol=1e-12, atol=1e-15)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_the_layout_in_memory_does_not_matter(rule: Combiner, weighted: bool) -> None:
    means, given = draw(6, 300)
    weights = given if weighted else None
    expected = combine(rule, means, weights)
    wide = torch.stack([means, torch.full_like(means, torch.nan)], dim=2)
    assert torch.equal(combine(rule, means.T.contiguous().T, weights), expected)
    assert torch.equal(combine(rule, wide[:, :, 0], weights), expected)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_one_thread_and_two_give_the_same_bits(rule: Combiner, weighted: bool) -> None:
    means, weights = draw(7, 3 * WIDTH + 5, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(combine(rule, means, weights if weighted else None))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@BOTH
@pytest.mark.parametrize("clients", [1, 2, 5, 6])
@pytest.mark.parametrize("weighted", [False, True])
def test_float32_is_float64_up_to_its_precision(rule: Combiner, clients: int, weighted: bool) -> None:
    means, weights = draw(clients, 200, torch.float32)
    narrow, wide = (combine(rule, each, weights if weighted else None) for each in (means, means.double()))
    assert (narrow.dtype, wide.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-5, atol=1e-6)


@BOTH
def test_weights_that_differ_by_rounding_are_equal_weights(rule: Combiner) -> None:
    means, _ = draw(6, 100)
    nearly = [1 / 6 + 1e-11 * one for one in range(6)]
    torch.testing.assert_close(combine(rule, means, nearly), combine(rule, means), rtol=1e-8, atol=1e-8)


@BOTH
@pytest.mark.parametrize("clients", [4, 5])
def test_a_client_without_weight_changes_nothing(rule: Combiner, clients: int) -> None:
    means, weights = draw(clients, 500)
    absent = combine(rule, means[1:], weights[1:])
    torch.testing.assert_close(combine(rule, means, [0.0, *weights[1:]]), absent, rtol=1e-9, atol=1e-12)


def test_a_client_without_weight_is_not_in_the_middle_either() -> None:
    """The cumulative weight reaches one half exactly at its value."""
    assert combine(Median(), column(1.0, 2.9, 3.0), [0.5, 0.0, 0.5]).item() == pytest.approx(2.0)
