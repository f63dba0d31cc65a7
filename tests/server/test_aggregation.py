"""The server's step after a round, rules and settings that are wrong, and the matrix of a round."""

import itertools
import math
import re
from typing import Any

import pytest
import torch
from aggregating import POSTERIOR, Fixed, MeanAndVariance, aggregate, replies_of, reply
from torch import Tensor

from steelyard.errors import InputError
from steelyard.server.aggregation import weigh
from steelyard.server.stacking import stack_up
from steelyard.settings import Server
from steelyard.types import Message, Reply, RoundInfo, State, Weighed
from steelyard.weighing import Samples, Uniform, Weigher
from steelyard.weighing.geometry import Geometry

# The step


def test_learning_rate_and_momentum_over_two_rounds_as_computed_by_hand() -> None:
    # v = 0.5 v + x and w = w + 0.5 v; the third coordinate is a running statistic: s = s + x.
    start = Message(torch.tensor([1.0, 1.0, 10.0]))
    settings: dict[str, Any] = {"lr": 0.5, "momentum": 0.5, "num_parameters": 2}
    first = aggregate([reply("a", 2, -4, 1)], start=start, **settings)
    assert first.state.message.mean.tolist() == [2, -1, 11]
    second = aggregate([reply("a", 1, 2, -3)], start=first.state, **settings)
    assert second.state.message.mean.tolist() == [3, -1, 8]
    assert start.mean.tolist() == [1, 1, 10], "the state before is not touched"
    assert first.state.message.mean.tolist() == [2, -1, 11]


def test_without_momentum_nothing_is_remembered() -> None:
    first = aggregate([reply("a", 2, -4)], lr=2)
    second = aggregate([reply("a", 1, 1)], start=first.state, lr=2)
    assert second.state.message.mean.tolist() == [6, -6]
    assert second.state.velocity is None


def test_momentum_outlives_a_skipped_round() -> None:
    first = aggregate([reply("a", 4, 0)], momentum=0.5)
    skipped = aggregate([reply("a", math.nan, 0)], start=first.state, momentum=0.5)
    third = aggregate([reply("a", 0, 1)], start=skipped.state, momentum=0.5)
    assert third.state.message.mean.tolist() == [6, 1]


def test_a_variance_comes_from_the_combiner_and_is_not_added_up() -> None:
    replies = [reply("a", 1, 1, variance=torch.tensor([2.0, 4.0])), reply("b", 1, 1, variance=torch.ones(2))]
    done = aggregate(replies, start=POSTERIOR, combiner=MeanAndVariance(), lr=0.5, momentum=0.9)
    assert done.state.message.variance is not None
    assert done.state.message.variance.tolist() == [1.5, 2.5]


def test_what_the_weigher_remembers_goes_from_round_to_round() -> None:
    weigher = Fixed(1)
    first = aggregate([reply("a", 1)], weigher=weigher)
    aggregate([reply("a", 1)], weigher=weigher, start=first.state)
    assert dict(weigher.seen[0][2]) == {}
    assert dict(weigher.seen[1][2]) == {"calls": 1}


@pytest.mark.parametrize("settings", [{}, {"clip": "median", "momentum": 0.9, "lr": 0.3}, {"clip": "usual"}])
def test_the_order_of_replies_does_not_change_a_bit(settings: dict[str, Any]) -> None:
    random = torch.Generator().manual_seed(0)
    replies = [
        Reply(client, Message(torch.randn(1000, generator=random)), 10 + 3 * number)
        for number, client in enumerate("abcdefg")
    ]
    outcomes = [
        aggregate(order, invited="abcdefg", **settings)
        for order in itertools.islice(itertools.permutations(replies), 0, 5040, 711)
    ]
    assert len(outcomes) > 5
    for done in outcomes:
        assert done.clients == tuple("abcdefg")
        assert torch.equal(done.weights, outcomes[0].weights)
        assert torch.equal(done.state.message.mean, outcomes[0].state.message.mean)


# Rules and settings that are wrong


@pytest.mark.parametrize("weights", [(math.nan, 1), (math.inf, 0), (1,), (0.3, 0.3, 0.4), ()])
def test_a_broken_weighing_rule_is_named_and_does_not_reach_the_model(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"weighing rule Fixed .* 2 clients in round 1"):
        aggregate([reply("a", 1), reply("b", 2)], weigher=Fixed(*weights))


def test_samples_weigh_by_examples_and_uniform_does_not() -> None:
    replies = [reply("a", 1, examples=1), reply("b", 1, examples=2), reply("c", 1, examples=13)]
    assert aggregate(replies).weights.tolist() == [1 / 16, 2 / 16, 13 / 16]
    assert aggregate(replies, weigher=Samples(cap=2.5)).weights.tolist() == [1 / 8, 2 / 8, 5 / 8]
    assert aggregate(replies, weigher=Uniform()).weights.tolist() == [1 / 3, 1 / 3, 1 / 3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0), ("lr", -1), ("momentum", -0.1), ("momentum", 1), ("momentum", math.nan),
        ("quorum", -0.1), ("quorum", 1.1), ("clip", 0), ("clip", -2), ("clip", math.nan),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"server\.{name}"):
        Server(**{name: value})


@pytest.mark.parametrize("value", [0, -2.0, math.nan, "mean", "usually", "", [1.0]])
def test_a_clip_that_is_none_is_refused_with_those_there_are(value: Any) -> None:
    wanted = f"server.clip must be greater than 0, 'median' or 'usual', not {value!r}."
    with pytest.raises(InputError, match=f"^{re.escape(wanted)}$"):
        Server(clip=value)


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 1e-9}, {"momentum": 0}, {"quorum": 0}, {"quorum": 1},
        {"clip": 1e-9}, {"clip": 1}, {"clip": math.inf},
        {"clip": None}, {"clip": "median"}, {"clip": "usual"},
    ],
)  # fmt: skip
def test_settings_at_the_edge_are_accepted(settings: dict[str, Any]) -> None:
    server = Server(**settings)
    assert all(getattr(server, name) == value for name, value in settings.items())


# The matrix of a round


def test_updates_that_lie_under_each_other_are_not_copied() -> None:
    matrix = torch.arange(12.0).reshape(4, 3)
    stack = stack_up(replies_of(list(matrix[1:])))
    assert torch.equal(stack.mean, matrix[1:])
    assert stack.mean.data_ptr() == matrix[1].data_ptr()


@pytest.mark.parametrize(
    "rows",
    [
        [torch.arange(3.0), torch.arange(3.0) + 5],
        list(torch.arange(12.0).reshape(4, 3))[2:0:-1],
        [torch.arange(12.0)[:3], torch.arange(12.0)[3:6]],
        [*torch.arange(12.0).reshape(4, 3)[::2]],
        [*torch.arange(12.0).reshape(3, 4).T],
        [torch.arange(12.0).reshape(4, 3)[0], torch.arange(12.0).reshape(4, 3)[0]],
    ],
    ids=["apart", "out of order", "two memories", "with gaps", "across", "the same twice"],
)
def test_other_updates_are(rows: list[Tensor]) -> None:
    assert torch.equal(stack_up(replies_of(rows)).mean, torch.stack(rows))


def test_one_row_sent_twice_is_two_rows() -> None:
    row = torch.arange(6.0).reshape(2, 3)[0]
    assert stack_up(replies_of([row, row])).mean.tolist() == [[0, 1, 2], [0, 1, 2]]


class Returning(Weigher):
    """A rule of the user's own that returns what it is given."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weighed: Weighed = self.returned
        return weighed


def weighed_by(returned: Any) -> Weighed:
    info = RoundInfo(1, ("a", "b", "c"), torch.ones(3, dtype=torch.float64))
    return weigh(Returning(returned), Geometry(torch.eye(3)), info, {})


def test_weights_in_float32_are_used_as_float64_that_sum_to_1() -> None:
    weights = weighed_by(Weighed(torch.tensor([1, 1, 1.00005]) / 3)).weights
    assert weights.dtype == torch.float64
    assert float(weights.sum()) == pytest.approx(1, abs=1e-15)
    exact = Weighed(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
    assert weighed_by(exact) is exact


@pytest.mark.parametrize("returned", [Weighed([1.0, 0.0, 0.0]), torch.ones(3) / 3, None])  # type: ignore[arg-type]
def test_a_rule_that_returns_no_tensor_of_weights_is_named(returned: Any) -> None:
    with pytest.raises(
        InputError, match=r"^weighing rule Returning must return Weighed\(weights\), with a tensor"
    ):
        weighed_by(returned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rule_whose_weights_do_not_sum_to_1_is_named(dtype: torch.dtype) -> None:
    with pytest.raises(
        InputError, match=r"rule Returning returned weights with the sum 3 in round 1; they must"
    ):
        weighed_by(Weighed(torch.ones(3, dtype=dtype)))
