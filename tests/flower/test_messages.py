"""Tasks, answers, failures and profiles come back as they were; an answer must belong to its question."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from steelyard.flower import messages
from steelyard.flower.messages import MAX_SHAPES, PROTOCOL, Envelope, States
from steelyard.flower.wire import Parcel, WireError, from_records, to_records
from steelyard.metrics.scores import Scores
from steelyard.sites import Answer, Profile, Request
from steelyard.types import Broadcast, Failure, Message, Reply

QUESTION = Envelope("oslo", "a spec", "0f" * 16, "a nonce", 3)


def sent(parcel: Parcel) -> Parcel:
    records: RecordDict = to_records(parcel)
    return from_records(records)


def model(*values: float, variance: float | None = None) -> Message:
    mean = torch.tensor(values)
    return Message(mean, None if variance is None else torch.full_like(mean, variance))


def equal(one: Message | None, other: Message | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(
        (a is None and b is None)
        or (a is not None and b is not None and a.dtype == b.dtype and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    "broadcast",
    [
        Broadcast(3, model(1.0, -2.0)),
        Broadcast(3, model(1.0), {"momentum": torch.ones(2), "": torch.zeros(0)}, 9),
        Broadcast(3, model(1.0, 2.0, variance=0.5), {}, 9, model(7.0, 8.0, variance=0.25)),
        Broadcast(3, Message(torch.zeros(2, dtype=torch.float64))),
    ],
)
@pytest.mark.parametrize("asked", [(True, False, False), (False, True, True)])
def test_a_task_comes_back_as_it_was(broadcast: Broadcast, asked: tuple[bool, bool, bool]) -> None:
    request, states = Request(broadcast, *asked), States(2, 1)
    header = messages.request_header(QUESTION, request, states)
    found, kept = messages.read_request(sent(Parcel(header, messages.request_arrays(request))))
    assert messages.envelope_of(header) == QUESTION
    assert kept == states
    assert (found.train, found.evaluate, found.detail) == asked
    assert (found.broadcast.round, found.broadcast.rounds) == (broadcast.round, broadcast.rounds)
    assert equal(found.broadcast.message, broadcast.message)
    assert equal(found.broadcast.evaluated, broadcast.evaluated)
    assert {name: each.tolist() for name, each in found.broadcast.offers.items()} == {
        name: each.tolist() for name, each in broadcast.offers.items()
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [("round", True), ("rounds", -1), ("train", 1), ("evaluate", None), ("after", 0.0), ("keep", 1 << 53)],
)
def test_a_task_with_another_value_is_refused(key: str, value: Any) -> None:
    request = Request(Broadcast(3, model(1.0)))
    header = {**messages.request_header(QUESTION, request, States()), key: value}
    with pytest.raises(WireError, match=f"'{key}'"):
        messages.read_request(sent(Parcel(header, messages.request_arrays(request))))


def answered(found: Answer | Failure, question: Envelope = QUESTION) -> Answer | Failure:
    return messages.read_answer(sent(messages.answer_parcel(question, found)), question)


SCORES = {"test": Scores(np.array([20.0, 12.0, 9.0, 4.0, 0.1]), 3), "held_out": Scores(np.arange(4.0), 0)}


def same_scores(found: Any) -> bool:
    return {name: (each.values.tolist(), each.classes) for name, each in found.items()} == {
        name: (each.values.tolist(), each.classes) for name, each in SCORES.items()
    }


@pytest.mark.parametrize("message", [model(1.0, float("nan")), model(0.1, 0.2, variance=0.5)])
def test_an_answer_comes_back_as_it_was(message: Message) -> None:
    reply = Reply("oslo", message, 17, {"loss": 0.1, "steps": 3.0})
    found = answered(Answer("oslo", reply, SCORES))
    assert type(found) is Answer
    assert type(found.reply) is Reply
    assert (found.client, found.reply.client) == ("oslo", "oslo")
    assert (found.reply.num_examples, found.reply.metrics) == (17, {"loss": 0.1, "steps": 3.0})
    for one, other in zip(found.reply.message, message, strict=True):
        assert (one is None) is (other is None)
        assert one is None or one.numpy().tobytes() == other.numpy().tobytes()  # type: ignore[union-attr]
    assert same_scores(found.scores)


def test_scores_alone_are_an_answer_without_a_reply() -> None:
    found = answered(Answer("oslo", None, SCORES))
    assert type(found) is Answer
    assert found.reply is None
    assert same_scores(found.scores)


def test_a_failure_comes_back_with_its_words_and_scores() -> None:
    found = answered(Failure("oslo", "training", "no\x1b[31m memory", SCORES))
    assert type(found) is Failure
    assert (found.client, found.stage, found.reason) == ("oslo", "training", "no\x1b[31m memory")
    assert same_scores(found.scores)


def test_a_loss_that_is_not_finite_is_left_out_as_the_server_would() -> None:
    """Training that diverges is an answer, not the end of the site."""
    metrics = {"loss": float("nan"), "steps": 2.0, "x": float("inf")}
    found = answered(Answer("oslo", Reply("oslo", model(1.0), 5, metrics)))
    assert type(found) is Answer
    assert found.reply is not None
    assert found.reply.metrics == {"steps": 2.0}


@pytest.mark.parametrize("counts", [None, torch.tensor([3, 0, 4])])
def test_a_profile_comes_back_as_it_was(counts: Any) -> None:
    question = replace(QUESTION, round=0)
    profile = Profile("oslo", 7, ((3, 2), (3,), ()), 36, counts)
    found = messages.read_profile(sent(messages.answer_parcel(question, profile)), question)
    assert type(found) is Profile
    assert (found.client, found.num_examples, found.shapes, found.model_bytes) == (
        "oslo",
        7,
        profile.shapes,
        36,
    )
    assert (found.class_counts is None) is (counts is None)
    assert counts is None or (found.class_counts is not None and found.class_counts.tolist() == [3, 0, 4])


def test_a_profile_may_be_a_failure() -> None:
    found = messages.read_profile(
        messages.answer_parcel(QUESTION, Failure("oslo", "reading", "no data")), QUESTION
    )
    assert found == Failure("oslo", "reading", "no data")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("examples", -1),
        ("model_bytes", 10**20),
        *(
            ("shapes", each)
            for each in (None, [3], [[-1]], [[1 << 40]], [[True]], [[1] * 9], [[]] * (MAX_SHAPES + 1))
        ),
    ],
)
def test_a_profile_with_another_value_is_refused(key: str, value: Any) -> None:
    parcel = messages.answer_parcel(QUESTION, Profile("oslo", 7, ((3,),), 36))
    with pytest.raises(WireError, match=key):
        messages.read_profile(Parcel({**parcel.header, key: value}), QUESTION)


@pytest.mark.parametrize("read", [messages.read_answer, messages.read_profile])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("client", "bergen", "another client: 'bergen', not 'oslo'"),
        ("spec", "x", "another spec"),
        ("run", "x", "another run$"),
        ("nonce", "x", "another nonce$"),
        ("round", 2, "another round: '2', not 3"),
        ("protocol", "steelyard 9.9, messages 1", "install the same version"),
        ("protocol", None, "install the same version"),
        ("client", 7, "no text 'client'"),
        ("spec", None, "no text 'spec'"),
        ("run", [], "no text 'run'"),
        ("nonce", True, "no text 'nonce'"),
        ("round", 3.0, "no count 'round'"),
        ("round", True, "no count 'round'"),
    ],
)
def test_an_answer_must_repeat_all_of_its_question(read: Any, name: str, value: Any, words: str) -> None:
    parcel = messages.answer_parcel(QUESTION, Failure("oslo", "training", "x"))
    with pytest.raises(WireError, match=words) as error:
        read(Parcel({**parcel.header, name: value}), QUESTION)
    assert "a nonce" not in str(error.value)
    assert QUESTION.run not in str(error.value)


def test_the_protocol_names_the_version_of_both_sides() -> None:
    assert QUESTION.header()["protocol"] == PROTOCOL
    with pytest.raises(WireError, match=f"this one {PROTOCOL!r}"):
        messages.envelope_of({**QUESTION.header(), "protocol": "x" * 1000})


def test_an_update_without_a_model_is_refused() -> None:
    parcel = messages.answer_parcel(QUESTION, Answer("oslo", Reply("oslo", model(1.0), 5)))
    with pytest.raises(WireError, match="no model"):
        messages.read_answer(Parcel(parcel.header), QUESTION)


def test_an_answer_shares_no_memory_with_what_came() -> None:
    """What came is read only, and may be thrown away."""
    found = answered(Answer("oslo", Reply("oslo", model(1.0, 2.0), 5), SCORES))
    assert type(found) is Answer
    assert found.reply is not None
    found.reply.message.mean.add_(1)
    found.scores["test"].values[0] = 1
