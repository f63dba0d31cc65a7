"""Tasks, answers and profiles as parcels, and back. What the other side sent is checked here for its form.

What an answer says is screened later, like that of any client (`server.screening`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard import __version__
from steelyard.flower.wire import MAX_DIMENSIONS, Parcel, WireError
from steelyard.metrics.scores import NO_SUMS, Scores
from steelyard.sites import Answer, Profile, Request
from steelyard.types import Broadcast, ClientId, Failure, Message, Reply

PROTOCOL = f"steelyard {'.'.join(__version__.split('.')[:2])}, messages 2"
"""Servers and sites that differ in it refuse each other: other versions may compute other numbers."""
OFFER, SCORE, OWN, EVALUATED = "offer.", "score.", "own.", "evaluated."
MAX_SHAPES = 10_000  # tensors of a model


@dataclass(frozen=True)
class Envelope:
    """Which question this is, or which question it answers; an answer repeats all of it."""

    client: ClientId
    spec: str
    """The hash of the spec that server and site must share."""
    run: str
    """The run, for the site's private states."""
    nonce: str
    """A secret that only this site and this question have: no other site can answer in its name."""
    round: int
    """0: the question is for the profile."""

    def header(self) -> dict[str, Any]:
        return {"protocol": PROTOCOL, **vars(self)}


@dataclass(frozen=True)
class States:
    """Which private state a site trains from, and which ones it must keep."""

    after: int = 0
    """The round after which the server last had an update from this site; 0: none so far."""
    keep: int = 0
    """The server may resume from this round or a later one: older states are not needed."""


def request_arrays(request: Request) -> dict[str, NDArray[Any]]:
    """The arrays of a request; they are the same for every site of a round."""
    broadcast = request.broadcast
    arrays = _message_arrays(broadcast.message)
    if broadcast.evaluated is not None:
        arrays |= _message_arrays(broadcast.evaluated, EVALUATED)
    return arrays | {f"{OFFER}{name}": value.numpy() for name, value in broadcast.offers.items()}


def request_header(envelope: Envelope, request: Request, states: States) -> dict[str, Any]:
    asked = {"train": request.train, "evaluate": request.evaluate, "detail": request.detail}
    return {**envelope.header(), **asked, "rounds": request.broadcast.rounds, **vars(states)}


def envelope_of(header: Mapping[str, Any]) -> Envelope:
    """Which question this is; read before anything else, so that the answer can be an error."""
    if header.get("protocol") != PROTOCOL:
        raise WireError(
            f"the other side runs {str(header.get('protocol'))[:40]!r}, this one {PROTOCOL!r}: install the "
            "same version of steelyard on both"
        )
    client, spec, run, nonce = (_text(header, name) for name in ("client", "spec", "run", "nonce"))
    return Envelope(client, spec, run, nonce, _count(header, "round"))


def read_request(parcel: Parcel) -> tuple[Request, States]:
    """What is asked, of a question that is not for the profile."""
    header, arrays = parcel.header, parcel.arrays
    has_other = any(name.startswith(EVALUATED) for name in arrays)
    broadcast = Broadcast(
        _count(header, "round"),
        _message(arrays),
        {name.removeprefix(OFFER): _tensor(arrays[name]) for name in arrays if name.startswith(OFFER)},
        _count(header, "rounds"),
        _message(arrays, EVALUATED) if has_other else None,
    )
    request = Request(broadcast, *(_flag(header, name) for name in ("train", "evaluate", "detail")))
    return request, States(_count(header, "after"), _count(header, "keep"))


def answer_parcel(envelope: Envelope, answer: Answer | Failure | Profile) -> Parcel:
    """What a site sends back."""
    if isinstance(answer, Profile):
        return _profile_parcel(envelope, answer)
    scores: Mapping[str, Scores] = answer.scores
    header: dict[str, Any] = {
        **envelope.header(),
        "classes": {name: each.classes for name, each in scores.items()},
    }
    if labels := {name: each.labels for name, each in scores.items() if each.labels}:
        header["labels"] = labels
    arrays = {f"{SCORE}{name}": each.values for name, each in scores.items()}
    arrays |= {f"{OWN}{name}": each.own for name, each in scores.items() if len(each.own)}
    if isinstance(answer, Failure):
        return Parcel({**header, "stage": answer.stage, "reason": answer.reason}, arrays)
    if answer.reply is not None:
        finite = {name: value for name, value in answer.reply.metrics.items() if math.isfinite(value)}
        header |= {"examples": answer.reply.num_examples, "metrics": finite}  # JSON has no other numbers
        arrays |= _message_arrays(answer.reply.message)
    return Parcel(header, arrays)


def read_answer(parcel: Parcel, envelope: Envelope) -> Answer | Failure:
    """The answer to a question. Its client is the one that was asked, whatever the answer says."""
    header, arrays = parcel.header, parcel.arrays
    _check_envelope(header, envelope)
    scores = _scores(header, arrays)
    client = envelope.client
    if "reason" in header:
        return Failure(client, _text(header, "stage"), _text(header, "reason"), scores)
    if "examples" not in header:
        return Answer(client, None, scores)
    reply = Reply(client, _message(arrays), header["examples"], _table(header, "metrics"))
    return Answer(client, reply, scores)


def _scores(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Scores]:
    labels = _table(header, "labels") if "labels" in header else {}
    found = {}
    for name, classes in _table(header, "classes").items():
        own = arrays.get(f"{OWN}{name}")
        values = _native(arrays[f"{SCORE}{name}"])
        found[name] = Scores(values, classes, labels.get(name, 0), NO_SUMS if own is None else _native(own))
    return found


def _profile_parcel(envelope: Envelope, profile: Profile) -> Parcel:
    header = {
        **envelope.header(),
        "examples": profile.num_examples,
        "shapes": [list(shape) for shape in profile.shapes],
        "model_bytes": profile.model_bytes,
    }
    counts = profile.class_counts
    return Parcel(header, {} if counts is None else {"class_counts": counts.numpy()})


def read_profile(parcel: Parcel, envelope: Envelope) -> Profile | Failure:
    header, arrays = parcel.header, parcel.arrays
    _check_envelope(header, envelope)
    if "reason" in header:
        return Failure(envelope.client, _text(header, "stage"), _text(header, "reason"))
    shapes = header.get("shapes")
    if type(shapes) is not list or len(shapes) > MAX_SHAPES or not all(map(_is_shape, shapes)):
        raise WireError("the profile has no shapes")
    counts = arrays.get("class_counts")
    return Profile(
        envelope.client,
        _count(header, "examples"),
        tuple(map(tuple, shapes)),
        _count(header, "model_bytes"),
        None if counts is None else _tensor(counts),
    )


def _check_envelope(header: Mapping[str, Any], envelope: Envelope) -> None:
    found = envelope_of(header)
    for name, wanted in vars(envelope).items():
        if getattr(found, name) != wanted:
            secret = name in ("nonce", "run")
            detail = "" if secret else f": {str(getattr(found, name))[:60]!r}, not {wanted!r}"
            raise WireError(f"the answer is for another {name}{detail}")


def _message_arrays(message: Message, prefix: str = "") -> dict[str, NDArray[Any]]:
    values = {"mean": message.mean, "variance": message.variance}
    return {f"{prefix}{name}": value.detach().numpy() for name, value in values.items() if value is not None}


def _message(arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Message:
    if f"{prefix}mean" not in arrays:
        raise WireError("the message has no model")
    variance = arrays.get(f"{prefix}variance")
    return Message(_tensor(arrays[f"{prefix}mean"]), None if variance is None else _tensor(variance))


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(_native(array))


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=True)


def _is_shape(shape: object) -> bool:
    if type(shape) is not list or len(shape) > 2 * MAX_DIMENSIONS:
        return False
    return all(type(size) is int and 0 <= size < 1 << 40 for size in shape)


def _text(header: Mapping[str, Any], name: str) -> str:
    value = header.get(name)
    if type(value) is not str:
        raise WireError(f"the header has no text {name!r}")
    return value


def _count(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise WireError(f"the header has no count {name!r}")
    return value


def _flag(header: Mapping[str, Any], name: str) -> bool:
    value = header.get(name)
    if type(value) is not bool:
        raise WireError(f"the header has no flag {name!r}")
    return value


def _table(header: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = header.get(name)
    if type(value) is not dict:
        raise WireError(f"the header has no table {name!r}")
    return value
