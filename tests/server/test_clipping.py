"""Long updates are shortened: to a given length, to the median of the round, or to what is usual."""

import math
from typing import Any

import pytest
import torch
from aggregating import Fixed, aggregate, replies_of, reply
from torch import Tensor

from steelyard.server.aggregation import Aggregated, ServerState
from steelyard.types import Message, Reply
from steelyard.weighing import Uniform


def clipped(replies: list[Reply], limit: float | str, **settings: Any) -> tuple[list[Tensor], Aggregated]:
    """Each client's update as it comes out of a round in which only that client counts."""
    eye = torch.eye(len(replies)).tolist()
    rounds = [aggregate(replies, weigher=Fixed(*weights), clip=limit, **settings) for weights in eye]
    return [done.state.message.mean for done in rounds], rounds[0]


def test_clip_shortens_long_updates_and_keeps_their_direction() -> None:
    updates, done = clipped([reply("a", 3, 4), reply("b", 0.3, 0.4), reply("c", 0, 0)], 1)
    torch.testing.assert_close(updates[0], torch.tensor([0.6, 0.8]))
    assert torch.equal(updates[1], torch.tensor([0.3, 0.4]))
    assert updates[2].tolist() == [0, 0]
    assert done.norms.tolist() == pytest.approx([5, 0.5, 0]), "as they came, before clipping"


@pytest.mark.parametrize(
    ("lengths", "bounded"),
    [((1, 2, 50), (1, 2, 2)), ((50, 3, 4, 1), (3.5, 3, 3.5, 1)), ((0, 0, 9), (0, 0, 0))],
)
def test_the_median_bound_is_the_median_norm_of_the_round(
    lengths: tuple[float, ...], bounded: tuple[float, ...]
) -> None:
    replies = [reply(client, 0.6 * s, -0.8 * s) for client, s in zip("abcd", lengths, strict=False)]
    updates, _ = clipped(replies, "median")
    for update, length in zip(updates, bounded, strict=True):
        torch.testing.assert_close(update, torch.tensor([0.6 * length, -0.8 * length]))


def test_running_statistics_do_not_count_towards_the_norm() -> None:
    updates, done = clipped([reply("a", 3, 4, 1000), reply("b", 1, 0, 7)], 5, num_parameters=2)
    assert done.norms.tolist() == [5, 1]
    assert [update.tolist() for update in updates] == [[3, 4, 1000], [1, 0, 7]]


def test_the_weigher_sees_the_clipped_parameters_in_the_order_of_ids() -> None:
    weigher = Fixed(0.5, 0.5)
    aggregate(
        [reply("b", 3, 4, 8, examples=7), reply("a", 0, 1, 5, examples=3)],
        weigher=weigher,
        num_parameters=2,
        clip=2.5,
    )
    updates, info, _ = weigher.seen[0]
    torch.testing.assert_close(updates, torch.tensor([[0.0, 1.0], [1.5, 2.0]]))
    assert info.clients == ("a", "b")
    assert info.num_examples.tolist() == [3, 7]
    assert info.number == 1


def of_lengths(*lengths: float) -> list[Reply]:
    return [reply(client, 0.6 * s, -0.8 * s) for client, s in zip("abcde", lengths, strict=False)]


@pytest.mark.parametrize(
    ("before", "lengths", "bounded", "entry"),
    [
        pytest.param(None, (1, 2, 50), (1, 2, 6), 2, id="first"),
        pytest.param([1, 1, 1], (60, 50, 90), (3, 3, 3), 3, id="all too long"),
        pytest.param([1, 1, 1], (1, 2, 9), (1, 2, 3), 2, id="one too long"),
        pytest.param([4, 1, 2], (1, 2, 8), (1, 2, 6), 2, id="not in order"),
        pytest.param([1, 5], (9, 16, 2), (9, 15, 2), 9, id="this one included"),
        pytest.param([1, 9], (14, 14, 40), (14, 14, 27), 14, id="of three"),
        pytest.param([1, 1, 2], (2, 4, 5), (2, 4, 4.5), 4, id="between two"),
    ],
)
def test_the_usual_bound_is_three_times_the_median_of_the_median_norms_so_far(
    before: list[float] | None, lengths: tuple[float, ...], bounded: tuple[float, ...], entry: float
) -> None:
    """A round is remembered by its median, at most the bound."""
    known = None if before is None else torch.tensor(before, dtype=torch.float64)
    state = ServerState(Message(torch.zeros(2)), medians=known)
    updates, done = clipped(of_lengths(*lengths), "usual", start=state)
    for update, length in zip(updates, bounded, strict=True):
        torch.testing.assert_close(update, torch.tensor([0.6 * length, -0.8 * length]))
    assert done.state.medians is not None
    assert done.state.medians.dtype == torch.float64
    assert done.state.medians.tolist() == pytest.approx([*(before or []), entry])
    assert done.norms.tolist() == pytest.approx(list(lengths)), "as they came, before clipping"
    assert known is None or known.tolist() == before, "the state before is not touched"


def test_updates_that_grow_a_hundredfold_move_the_model_by_three_usual_lengths_at_most() -> None:
    """Nor do rounds that were clipped make the next ones longer, until they are the usual ones."""
    state, last = ServerState(Message(torch.zeros(2))), 0.0
    for number in range(14):
        size = 1.0 if number < 7 else 100.0
        state = aggregate(of_lengths(size, size, size), start=state, weigher=Uniform(), clip="usual").state
        now = float(state.message.mean.norm())
        assert now - last == pytest.approx(min(size, 3.0) if number < 13 else 6.0, rel=1e-5)
        last = now
    assert state.medians is not None
    assert state.medians.tolist() == pytest.approx([*[1.0] * 7, *[3.0] * 6, 6.0])


def test_within_the_usual_bound_nothing_is_changed_or_copied() -> None:
    random = torch.Generator().manual_seed(0)
    plain = usual = ServerState(Message(torch.zeros(50)))
    for _ in range(4):
        matrix = torch.randn(3, 50, generator=random)
        weigher = Fixed(0.5, 0.2, 0.3)
        usual = aggregate(replies_of(list(matrix)), start=usual, weigher=weigher, clip="usual").state
        plain = aggregate(replies_of(list(matrix)), start=plain, weigher=Fixed(0.5, 0.2, 0.3)).state
        assert weigher.seen[0][0].data_ptr() == matrix.data_ptr()
        assert torch.equal(usual.message.mean, plain.message.mean)
    assert usual.medians is not None
    assert plain.medians is not None
    assert usual.medians.tolist() == plain.medians.tolist()
    assert len(usual.medians) == 4


def test_the_weigher_sees_what_is_left_by_the_usual_bound() -> None:
    weigher = Fixed(0.2, 0.3, 0.5)
    aggregate(of_lengths(1, 2, 50), weigher=weigher, clip="usual")
    torch.testing.assert_close(
        torch.linalg.vector_norm(torch.as_tensor(weigher.seen[0][0]), dim=1), torch.tensor([1.0, 2.0, 6.0])
    )


def test_nothing_is_usual_while_nobody_moves() -> None:
    state = ServerState(Message(torch.zeros(2)))
    for _ in range(3):
        state = aggregate(of_lengths(0, 0, 0), start=state, weigher=Uniform(), clip="usual").state
    moved = aggregate(of_lengths(5, 5, 5), start=state, weigher=Uniform(), clip="usual").state
    assert float(moved.message.mean.norm()) == pytest.approx(5)


def test_the_usual_lengths_outlive_a_skipped_round() -> None:
    first = aggregate(of_lengths(1, 2, 3), clip="usual")
    skipped = aggregate([reply("a", math.nan, 0)], start=first.state, clip="usual")
    assert skipped.state.medians is not None
    assert skipped.state.medians.tolist() == pytest.approx([2])
