"""What the server does not copy in a round, and what it does not change: the updates, and earlier models."""

from typing import Any

import pytest
import torch
from aggregating import MeanAndVariance, aggregate
from new_memory import NewMemory
from torch import Tensor

from steelyard.combining import Combiner, Mean, Median
from steelyard.server.aggregation import ServerState, changeable
from steelyard.types import Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import GeometricMedian, Krum, Majority, Samples, Weigher
from steelyard.weighing.geometry import Geometry

CLIENTS, SIZE = 10, 1_000_000


def updates() -> Tensor:
    """As an engine has them: the rows of one matrix."""
    return torch.randn(CLIENTS, SIZE, generator=torch.Generator().manual_seed(0))


def replies(matrix: Tensor) -> list[Reply]:
    return [Reply(f"c{number}", Message(row), 5 + number) for number, row in enumerate(matrix)]


class Halved(Weigher):
    """Every update counts alike, and half."""

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        alike = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
        return Weighed(alike, scale=torch.full_like(alike, 0.5))


RULES = [Halved(), Samples(), Majority(), Krum(), GeometricMedian()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_round_takes_no_memory_as_large_as_the_updates(rule: Weigher) -> None:
    matrix = updates()
    with NewMemory() as memory:
        aggregate(replies(matrix), weigher=rule)
    assert memory.taken, "nothing was counted"
    assert not memory.at_least(matrix.nbytes // 2)


def test_a_round_of_samples_makes_one_new_vector_the_next_model() -> None:
    matrix, start = updates(), Message(torch.zeros(SIZE))
    with NewMemory() as memory:
        aggregate(replies(matrix), start=start, num_parameters=SIZE - 1000)
    assert len([size for _, size in memory.taken if size == matrix[0].nbytes]) == 1


@pytest.mark.parametrize("combiner", [Mean(), Median()])
def test_factors_on_updates_scale_them(combiner: Any) -> None:
    stack, weights = Stack(updates().double()), torch.full((CLIENTS,), 1 / CLIENTS, dtype=torch.float64)
    scale = torch.linspace(0, 1, CLIENTS, dtype=torch.float64)
    before = stack.mean.clone()
    found = combiner.combine_scaled(stack, weights, scale).mean
    wanted = combiner.combine(Stack(before * scale.unsqueeze(1)), weights).mean
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(stack.mean, before)


def test_factors_that_are_all_one_change_no_bit() -> None:
    stack, weights = Stack(updates()), torch.full((CLIENTS,), 1 / CLIENTS, dtype=torch.float64)
    ones = torch.ones(CLIENTS, dtype=torch.float64)
    for combiner in (Mean(), Median()):
        with_ones = combiner.combine_scaled(stack, weights, ones).mean
        assert torch.equal(with_ones, combiner.combine(stack, weights).mean)


@pytest.mark.parametrize(
    "server", [{}, {"lr": 0.5}, {"momentum": 0.9}, {"lr": 0.5, "momentum": 0.9, "average": 3}]
)
def test_a_round_changes_neither_the_updates_nor_the_state_before_it(server: dict[str, Any]) -> None:
    matrix, ones = updates(), torch.ones(SIZE)
    before = ServerState(Message(ones.clone()), velocity=2 * ones[1000:], average=Message(3 * ones))
    sent = matrix.clone()
    after = aggregate(replies(matrix), start=before, num_parameters=SIZE - 1000, **server).state
    assert torch.equal(matrix, sent)
    assert before.velocity is not None
    assert before.average is not None
    for vector, value in ((before.message.mean, 1), (before.velocity, 2), (before.average.mean, 3)):
        assert torch.equal(vector, torch.full_like(vector, value))
    memory = [matrix, before.message.mean, before.velocity, before.average.mean]
    starts = {each.untyped_storage().data_ptr() for each in memory}
    found = [after.message.mean, after.velocity, None if after.average is None else after.average.mean]
    assert not starts & {each.untyped_storage().data_ptr() for each in found if each is not None}


def test_running_statistics_move_by_the_whole_change() -> None:
    """Learning rate and momentum are for parameters, which come first."""
    rows = [torch.tensor([1.0, 2.0, 8.0]), torch.tensor([3.0, 4.0, 8.0])]
    start = ServerState(Message(torch.tensor([1.0, 1.0, 1.0])), velocity=torch.tensor([10.0, 20.0]))
    given = [Reply(name, Message(row), 1) for name, row in zip("ab", rows, strict=True)]
    done = aggregate(given, start=start, num_parameters=2, lr=0.5, momentum=0.1, statistics="mean")
    assert done.state.velocity is not None
    torch.testing.assert_close(done.state.velocity, torch.tensor([3.0, 5.0]))
    torch.testing.assert_close(done.state.message.mean, torch.tensor([2.5, 3.5, 9.0]))


def test_variances_pass_as_the_rule_combines_them() -> None:
    ones = torch.ones(4)
    given = [Reply(name, Message(ones, 2 * ones), 1) for name in "ab"]
    start = Message(torch.zeros(4), ones)
    done = aggregate(given, start=start, combiner=MeanAndVariance(), num_parameters=4)
    assert torch.equal(done.state.message.mean, ones)
    assert done.state.message.variance is not None
    assert torch.equal(done.state.message.variance, 2 * ones)


class Keeps(Combiner):
    """Returns the same vector in every round, or the update of the first client."""

    def __init__(self, kept: Tensor | None) -> None:
        self.kept = kept

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        return Combined(stack.mean[0] if self.kept is None else self.kept)


def test_what_a_rule_of_the_users_own_returns_is_not_changed() -> None:
    kept, matrix = torch.ones(3), torch.arange(6.0).view(2, 3)
    start = Message(torch.full((3,), 5.0))
    for combiner, change in ((Keeps(kept), torch.ones(3)), (Keeps(None), torch.arange(3.0))):
        done = aggregate(replies(matrix), start=start, combiner=combiner)
        assert torch.equal(done.state.message.mean, start.mean + change)
    assert torch.equal(kept, torch.ones(3))
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3))


def test_a_rule_of_the_package_may_return_an_update_itself() -> None:
    stack = Stack(torch.arange(6.0).view(2, 3))
    found = changeable(Combined(stack.mean[0]), stack, Mean())
    found.mean.fill_(9)
    assert torch.equal(stack.mean, torch.arange(6.0).view(2, 3))
