"""Nothing in a reply is trusted: an unusable one is rejected with the reason, and a round needs a quorum."""

import math
import re

import pytest
import torch
from aggregating import POSTERIOR, Fixed, MeanAndVariance, aggregate, reply, screened_round

from steelyard.combining import Mean
from steelyard.server.aggregation import Aggregator, ServerState
from steelyard.server.reply_screening import screen_replies
from steelyard.settings import Server
from steelyard.types import Message, Reply
from steelyard.weighing import Uniform

MEAN = torch.tensor([1.0, 2.0])
PLAIN = Message(torch.zeros(2))


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
        pytest.param([reply("c", 1, 1), reply("c", 1, 1)], PLAIN, "more than one answer", id="twice"),
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
    assert bool(done.skipped) == skipped
    assert len(done.clients) == len(done.weights) == len(done.norms) == (0 if skipped else usable)
    assert sorted(done.rejected) == list("abcd")[usable:]
    if skipped:
        assert done.state.message is state.message
        assert done.state.velocity is state.velocity
        assert done.state.weighing is state.weighing
        assert not weigher.seen
        assert state.message.mean.tolist() == [0, 0]


@pytest.mark.parametrize(
    "mean",
    [[1.0, 2.0], torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.tensor([1.0, 1e31])],
    ids=["list", "sparse", "meta", "huge"],
)
def test_what_is_no_usable_vector_is_rejected(mean: object) -> None:
    aggregator = Aggregator(Uniform(), Mean(), Server(), 2)
    replies = [Reply("a", Message(mean), 1), Reply("b", Message(torch.ones(2)), 1)]  # type: ignore[arg-type]
    done = screened_round(aggregator, aggregator.init(Message(torch.zeros(2))), replies, ["a", "b"])
    assert list(done.rejected) == ["a"]
    assert done.clients == ("b",)


@pytest.mark.parametrize(("quorum", "invited", "usable"), [(0.55, 100, 55), (0.28, 25, 7)])
def test_a_quorum_met_exactly_is_met(quorum: float, invited: int, usable: int) -> None:
    ids = [f"{number:03d}" for number in range(invited)]
    aggregator = Aggregator(Uniform(), Mean(), Server(quorum=quorum), 2)
    replies = [Reply(client, Message(torch.ones(2)), 1) for client in ids[:usable]]
    assert not aggregator.aggregate(aggregator.init(Message(torch.zeros(2))), replies, ids, 1).skipped


@pytest.mark.parametrize("piled", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1e31])
def test_one_bad_value_is_found_in_large_updates(value: float, piled: bool) -> None:
    rows = torch.ones(9, 1_000)
    rows[7, 999] = value
    updates = [*rows] if piled else [row.clone() for row in rows]
    given = {f"c{place}": Reply(f"c{place}", Message(row), 1) for place, row in enumerate(updates)}
    usable, rejected = screen_replies(given, Message(torch.zeros(1_000)), 10)
    assert [reply.client for reply in usable] == [f"c{place}" for place in range(9) if place != 7]
    assert list(rejected) == ["c7"]
