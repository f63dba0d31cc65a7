"""A site answers its own questions, and refuses those of others in words."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from steelyard.flower import messages
from steelyard.flower.answering import Answering
from steelyard.flower.deployment import Invitation, spec_hash
from steelyard.flower.messages import Envelope, States
from steelyard.flower.wire import Parcel, WireError, from_records, to_records
from steelyard.sites import Answer, Profile, Request
from steelyard.specs.schema import load_spec
from steelyard.types import Broadcast, Failure, Message

RUN = "0f" * 16


def invitation(**overrides: Any) -> Invitation:
    spec = load_spec(None, {"rounds": 2, "model": {"name": "linear"}, **overrides})
    return Invitation("oslo", "fed", "h:1", "", spec.to_toml(), spec_hash(spec, [4], 3), False, [4], 3)


def data(site: str) -> Any:
    draw = np.random.default_rng(1)
    return draw.normal(size=(30, 4)).astype(np.float32), draw.integers(0, 3, 30)


@pytest.fixture
def site(tmp_path: Path) -> Answering:
    return Answering(invitation(), tmp_path, data)


def ask(site: Answering, request: Request | None = None, states: States | None = None, **changes: Any) -> Any:
    """The answer of a site as the server reads it; some of the question is changed."""
    question = Envelope(
        "oslo", site.invitation.hash, RUN, "a nonce", request.broadcast.round if request else 0
    )
    question = replace(question, **changes)
    header = (
        question.header()
        if request is None
        else messages.request_header(question, request, states or States())
    )
    parcel = Parcel(header, {} if request is None else messages.request_arrays(request))
    answer = from_records(to_records(site.answer(from_records(to_records(parcel)))))
    return (messages.read_answer if question.round else messages.read_profile)(answer, question)


def model_of(site: Answering) -> Message:
    return Message(torch.zeros(site.site.learner.layout.size))


def test_a_site_gives_its_profile_and_an_update(site: Answering) -> None:
    profile = ask(site)
    assert type(profile) is Profile
    assert (profile.client, profile.num_examples) == ("oslo", 30)
    found = ask(site, Request(Broadcast(1, model_of(site))))
    assert type(found) is Answer
    assert found.reply is not None
    assert found.reply.num_examples == 30
    assert float(found.reply.message.mean.norm()) > 0


def test_asked_again_a_site_sends_the_same_bits(site: Answering) -> None:
    request = Request(Broadcast(1, model_of(site)))
    first, second = ask(site, request), ask(site, request)
    assert torch.equal(first.reply.message.mean, second.reply.message.mean)
    assert first.reply.metrics == second.reply.metrics


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client": "bergen"}, "this is the site oslo, not bergen."),
        ({"spec": "another"}, "the site oslo was invited to another spec; give it a new invitation."),
    ],
)
@pytest.mark.parametrize("train", [False, True])
def test_questions_for_others_are_refused_in_words(
    site: Answering, changes: dict[str, str], words: str, train: bool
) -> None:
    found = ask(site, Request(Broadcast(1, model_of(site))) if train else None, **changes)
    assert type(found) is Failure
    assert (found.stage, found.reason) == ("answering", words)


def test_a_run_id_of_another_form_is_refused_in_words(site: Answering, tmp_path: Path) -> None:
    found = ask(site, Request(Broadcast(1, model_of(site))), run="../../x")
    assert type(found) is Failure
    assert found.reason == "the server sent a run id of the wrong form."
    assert not (tmp_path / "x").exists()


def test_a_server_of_another_version_is_told_so(site: Answering) -> None:
    answer = site.answer(Parcel({"protocol": "steelyard 0.0, messages 0"}))
    assert "install the same version" in answer.header["reason"]
    with pytest.raises(WireError, match="no text 'client'"):
        messages.read_answer(answer, Envelope("oslo", "x", RUN, "a nonce", 1))


def test_private_layers_that_are_missing_are_refused_in_words(tmp_path: Path) -> None:
    site = Answering(invitation(model={"name": "mlp"}, sharing="head"), tmp_path, data)
    request = Request(Broadcast(5, model_of(site)))
    found = ask(site, request, States(after=4))
    assert type(found) is Failure
    assert "private layers after round 4 are not in" in found.reason
    assert type(ask(site, request)) is Answer
    assert type(ask(site, Request(Broadcast(6, model_of(site))), States(after=5))) is Answer


def test_training_that_diverges_is_still_an_answer(tmp_path: Path) -> None:
    site = Answering(invitation(training={"lr": 1e30, "epochs": 3}), tmp_path, data)
    found = ask(site, Request(Broadcast(1, model_of(site))))
    assert type(found) in (Answer, Failure)
    assert found.client == "oslo"


def test_a_site_refuses_what_does_not_fit_when_it_starts(tmp_path: Path) -> None:
    edited = Invitation(**{**asdict(invitation()), "classes": 4})
    with pytest.raises(ValueError, match="does not fit its own spec"):
        Answering(edited, tmp_path, data)
    with pytest.raises(ValueError, match="say where the data are"):
        Answering(invitation(), tmp_path, None)
    with pytest.raises(ValueError, match=r"oslo"):
        Answering(invitation(), tmp_path, lambda name: (np.zeros((5, 7), np.float32), np.zeros(5, np.int64)))
