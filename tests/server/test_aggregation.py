"""The server's side of a round: nothing in a reply is trusted, and the model moves as the settings say."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.combining import Combiner, Mean
from steelyard.errors import InputError
from steelyard.server.aggregation import Aggregated, Aggregator, ServerState, stack_up
from steelyard.settings import Server
from steelyard.types import Combined, Message, Reply, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Samples, Uniform, Weigher
from steelyard.weighing.geometry import Geometry

MEAN = torch.tensor([1.0, 2.0])


class MeanAndVariance(Combiner):
    needs = frozenset({"mean", "variance"})

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        assert stack.variance is not None
        return Combined(weights.float() @ stack.mean, weights.float() @ stack.variance)


class Fixed(Weigher):
    """Returns what it was told to, and keeps what it saw."""

    def __init__(self, *weights: float) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.seen: list[tuple[Tensor, RoundInfo, State]] = []

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        self.seen.append((geometry.updates, round, state))
        return Weighed(self.weights, {"calls": torch.tensor(len(self.seen))})


def reply(client: str, *mean: float, examples: Any = 10, variance: Tensor | None = None) -> Reply:
    return Reply(client, Message(torch.tensor(mean, dtype=torch.float32), variance), examples)


def aggregate(
    replies: Sequence[Reply],
    *,
    invited: Sequence[str] | None = None,
    start: Message | ServerState | None = None,
    weigher: Weigher | None = None,
    combiner: Combiner | None = None,
    num_parameters: int | None = None,
    **server: Any,
) -> Aggregated:
    if start is None:
        start = Message(torch.zeros_like(replies[0].message.mean))
    message = start.message if isinstance(start, ServerState) else start
    size = len(message.mean) if num_parameters is None else num_parameters
    aggregator = Aggregator(weigher or Samples(), combiner or Mean(), Server(**server), size)
    state = start if isinstance(start, ServerState) else aggregator.init(start)
    return aggregator.aggregate(state, replies, invited or sorted({each.client for each in replies}), 1)


# Screening

PLAIN = Message(torch.zeros(2))
POSTERIOR = Message(torch.zeros(2), torch.ones(2))


@pytest.mark.parametrize(
    ("bad", "start", "reason"),
    [
        pytest.param([reply("c", math.nan, 1)], PLAIN, "mean that is not finite", id="nan"),
        pytest.param([reply("c", 1, math.inf)], PLAIN, "mean that is not finite", id="inf"),
        pytest.param([reply("c", 1, -math.inf)], PLAIN, "mean that is not finite", id="minus-inf"),
        pytest.param([reply("c", 1, 2, 3)], PLAIN, r"shape \(3,\), not \(2,\)", id="too-long"),
        pytest.param([reply("c", 1)], PLAIN, r"shape \(1,\), not \(2,\)", id="too-short"),
        pytest.param(
            [Reply("c", Message(torch.ones(1, 2)), 10)], PLAIN, r"shape \(1, 2\), not \(2,\)", id="matrix"
        ),
        pytest.param(
            [Reply("c", Message(MEAN.double()), 10)], PLAIN, "torch.float64, not torch.float32", id="float64"
        ),
        pytest.param(
            [Reply("c", Message(MEAN.int()), 10)], PLAIN, "torch.int32, not torch.float32", id="int"
        ),
        pytest.param([reply("c", 1, 1, variance=torch.ones(2))], PLAIN, "variance", id="extra-variance"),
        pytest.param([reply("c", 1, 1)], POSTERIOR, "variance", id="missing-variance"),
        pytest.param(
            [reply("c", 1, 1, variance=torch.tensor([1.0, -0.1]))],
            POSTERIOR,
            "negative variance",
            id="negative-variance",
        ),
        pytest.param(
            [reply("c", 1, 1, variance=torch.tensor([1.0, math.nan]))],
            POSTERIOR,
            "variance that is not finite",
            id="nan-variance",
        ),
        pytest.param(
            [reply("c", 1, 1, variance=torch.ones(3))], POSTERIOR, "variance of shape", id="long-variance"
        ),
        pytest.param([reply("c", 1, 1, examples=0)], PLAIN, "claims 0 examples", id="no-examples"),
        pytest.param([reply("c", 1, 1, examples=-3)], PLAIN, "claims -3 examples", id="negative-examples"),
        pytest.param([reply("c", 1, 1, examples=10**15)], PLAIN, f"claims {10**15} ", id="too-many-examples"),
        pytest.param([reply("c", 1, 1, examples=True)], PLAIN, "claims True examples", id="true-examples"),
        pytest.param([reply("c", 1, 1, examples=10.0)], PLAIN, "claims 10.0 examples", id="float-examples"),
        pytest.param([reply("c", 1, 1), reply("c", 1, 1)], PLAIN, "more than one reply", id="twice"),
        pytest.param([reply("c", 1, math.nan), reply("c", 1, 1)], PLAIN, "more than one", id="second-try"),
        pytest.param([], PLAIN, "no reply", id="missing"),
    ],
)
def test_an_unusable_reply_is_rejected_with_the_reason_and_the_round_goes_on(
    bad: list[Reply], start: Message, reason: str
) -> None:
    variance = None if start.variance is None else torch.tensor([2.0, 3.0])
    good = [reply("a", 1, 0, examples=30, variance=variance), reply("b", 0, 4, variance=variance)]
    combiner = Mean() if variance is None else MeanAndVariance()
    done = aggregate([*bad, *good], invited=["a", "b", "c"], start=start, combiner=combiner)
    assert done.clients == ("a", "b")
    assert list(done.rejected) == ["c"]
    assert re.search(reason, done.rejected["c"])
    assert done.weights.tolist() == [0.75, 0.25]
    assert done.state.message.mean.tolist() == [0.75, 1.0]
    assert not done.skipped


def test_a_client_that_was_not_invited_is_rejected_and_takes_no_place() -> None:
    done = aggregate([reply("a", 1, 0), reply("z", 9, 9)], invited=["a", "b"])
    assert done.clients == ("a",)
    assert "not invited" in done.rejected["z"]
    assert "no reply" in done.rejected["b"]
    assert done.state.message.mean.tolist() == [1, 0]


def test_the_largest_believable_count_is_a_setting() -> None:
    replies = [reply("a", 1, 0, examples=100), reply("b", 0, 1, examples=101)]
    assert aggregate(replies, max_examples=100).clients == ("a",)
    assert aggregate(replies, max_examples=101).clients == ("a", "b")


@pytest.mark.parametrize(
    ("quorum", "usable", "skipped"),
    [(0.5, 1, True), (0.5, 2, False), (1.0, 3, True), (1.0, 4, False), (0.0, 1, False), (0.0, 0, True)],
)
def test_below_its_quorum_a_round_is_skipped_whole(quorum: float, usable: int, skipped: bool) -> None:
    weigher = Fixed(*[1 / max(usable, 1)] * usable)
    state = ServerState(Message(torch.zeros(2)), {"calls": torch.tensor(0)}, torch.ones(2))
    replies = [reply(client, 1 if number < usable else math.nan, 1) for number, client in enumerate("abcd")]
    done = aggregate(replies, start=state, weigher=weigher, quorum=quorum, momentum=0.5)
    assert done.skipped == skipped
    assert len(done.clients) == len(done.weights) == len(done.norms) == (0 if skipped else usable)
    assert sorted(done.rejected) == list("abcd")[usable:]
    if skipped:
        assert done.state is state
        assert not weigher.seen
        assert state.message.mean.tolist() == [0, 0]


# Clipping


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
        pytest.param([1, 1, 1], (100, 50, 200), (3, 3, 3), 3, id="all too long"),
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
    state = ServerState(Message(torch.zeros(2)), lengths=known)
    updates, done = clipped(of_lengths(*lengths), "usual", start=state)
    for update, length in zip(updates, bounded, strict=True):
        torch.testing.assert_close(update, torch.tensor([0.6 * length, -0.8 * length]))
    assert done.state.lengths is not None
    assert done.state.lengths.dtype == torch.float64
    assert done.state.lengths.tolist() == pytest.approx([*(before or []), entry])
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
    assert state.lengths is not None
    assert state.lengths.tolist() == pytest.approx([*[1.0] * 7, *[3.0] * 6, 6.0])


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
    assert usual.lengths is not None
    assert len(usual.lengths) == 4
    assert plain.lengths is None


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
    assert skipped.state.lengths is not None
    assert skipped.state.lengths.tolist() == pytest.approx([2])


@pytest.mark.parametrize("limit", [None, 2.0, "median"])
def test_lengths_are_kept_only_where_the_usual_one_bounds(limit: float | str | None) -> None:
    assert aggregate(of_lengths(1, 2, 50), clip=limit).state.lengths is None


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


@pytest.mark.parametrize(
    "mean",
    [[1.0, 2.0], torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.tensor([1.0, 1e31])],
    ids=["list", "sparse", "meta", "huge"],
)
def test_what_is_no_usable_vector_is_rejected(mean: object) -> None:
    aggregator = Aggregator(Uniform(), Mean(), Server(), 2)
    replies = [Reply("a", Message(mean), 1), Reply("b", Message(torch.ones(2)), 1)]  # type: ignore[arg-type]
    done = aggregator.aggregate(aggregator.init(Message(torch.zeros(2))), replies, ["a", "b"], 1)
    assert list(done.rejected) == ["a"]
    assert done.clients == ("b",)


@pytest.mark.parametrize(("quorum", "invited", "usable"), [(0.55, 100, 55), (0.28, 25, 7)])
def test_a_quorum_met_exactly_is_met(quorum: float, invited: int, usable: int) -> None:
    ids = [f"{number:03d}" for number in range(invited)]
    aggregator = Aggregator(Uniform(), Mean(), Server(quorum=quorum), 2)
    replies = [Reply(client, Message(torch.ones(2)), 1) for client in ids[:usable]]
    assert not aggregator.aggregate(aggregator.init(Message(torch.zeros(2))), replies, ids, 1).skipped


# The matrix of a round


def replies_of(rows: list[Tensor]) -> list[Reply]:
    return [Reply(f"c{number}", Message(row), 1) for number, row in enumerate(rows)]


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
