"""What the server asks and what sites answer: the whole interface between the two places.

A site is where a client's data and private state live. The server knows a site by its `Profile` and its
answers, and nothing else. Simulated sites (`engines/`) and remote ones answer the same.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from steelyard.metrics.scores import Scores
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Message, Reply

LATE = "answering"
"""The stage of a `Failure` by a client that missed the deadline."""


@dataclass(frozen=True, eq=False)
class Profile:
    """What a client says of itself before the first round."""

    client: ClientId
    num_examples: int
    """Training examples."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the tensors that travel, in order."""
    model_bytes: int
    """Size of the client's whole model."""
    class_counts: Tensor | None = None
    """Training examples of each class, [C]; only where the objective needs them."""


@dataclass(frozen=True)
class Request:
    """What one client is asked: to score a model, to train from one, or both."""

    broadcast: Broadcast
    train: bool = True
    evaluate: bool = False
    detail: bool = False
    """Whether scores include calibration bins and the confusion matrix."""


class Answer(NamedTuple):
    """What one client answers: an update, if it was asked to train, and scores, if it was asked for them."""

    client: ClientId
    reply: Reply | None = None
    scores: Mapping[str, Scores] = EMPTY
    """By data set and model: "test" (its own test data), "held_out", "shared" (its test data under the shared
    head), "common" (the common test set under its own model), "own_mix" (its test data, classes weighted by
    their frequency in its training data)."""


class ScoreTable(NamedTuple):
    """The "test" scores of many clients at once, without an object for each."""

    clients: Sequence[ClientId]
    """Sorted."""
    values: NDArray[np.float64]
    """The sums of `Scores`, a row for each client."""
    classes: int

    def without(self, clients: Collection[ClientId]) -> "ScoreTable":
        kept = [place for place, client in enumerate(self.clients) if client not in clients]
        return ScoreTable([self.clients[place] for place in kept], self.values[kept], self.classes)


class Sites(Protocol):
    """The clients of a federation as the server reaches them."""

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All client ids, sorted."""

    @property
    def about(self) -> str:
        """How the sites are run, for the record."""

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        """The profiles of these clients. Clients that cannot give one are left out."""

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | ScoreTable | Failure]:
        """One exchange: score the model at some clients, train at some clients.

        Yields an answer or a failure for each client, in any order; scores may also come as a table. A client
        scores with its private state from before training. After `seconds`, each client that has not answered
        is a failure. The next exchange may reuse the memory of the updates.
        """

    def commit(self, round: int) -> None:
        """Keep the private states as they were after `round`, durably, before the server saves its own state.

        States of a later round are dropped: the server did not finish it.
        """

    def rewind(self, round: int) -> None:
        """Go back to the private states that were committed under `round`; later ones are dropped."""


class ServerTestSet(Protocol):
    """The server's own test set."""

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        """Scores of a shared model, with its logits divided by a temperature."""
