"""Frozen values that the parts of steelyard pass to each other, without logic.

J clients reply in a round and K coordinates are shared. Row j of a stack belongs to client j; clients are
always in the order of their ids.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

ClientId = str
State = Mapping[str, Tensor]
"""What a rule or a client keeps between rounds: named tensors, so that it can be saved without pickle."""


class _Empty(Mapping[str, Any]):
    """An empty mapping that cannot be changed, as a default value."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "EMPTY"  # pickled and copied as the name of the one below


EMPTY: Mapping[str, Any] = _Empty()


class Message(NamedTuple):
    """What travels between server and client, as flat vectors [K].

    Downwards `mean` is the shared model; upwards it is the update, the difference from what came down.
    `variance` is there when a posterior travels.
    """

    mean: Tensor
    variance: Tensor | None = None

    @property
    def slots(self) -> frozenset[str]:
        return frozenset(name for name, value in self._asdict().items() if value is not None)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Message":
        """Apply a function to every vector of the message."""
        return Message(function(self.mean), None if self.variance is None else function(self.variance))


class Stack(NamedTuple):
    """The messages of a round as rows of matrices, [J, K]."""

    mean: Tensor
    variance: Tensor | None = None


class Combined(NamedTuple):
    """The result of a combining rule, [K]."""

    mean: Tensor
    """The merged vector; of posteriors, their merged means."""
    variance: Tensor | None = None
    """The merged variances of posteriors."""


class Weighed(NamedTuple):
    """The result of a weighing rule for one round."""

    weights: Tensor
    """[J] float64, summing to 1."""
    state: State = EMPTY
    """The new state; the old one is unchanged."""
    evidence: Mapping[str, Tensor] = EMPTY
    """The reasons: [J] for each client (cosine, variance, ...), or a single number for the round."""
    scale: Tensor | None = None
    """[J], factors from 0 to 1 on the updates before they are combined, from rules that limit how far one
    client moves the model; None: all 1."""


@dataclass(frozen=True)
class RoundInfo:
    """What a weighing rule may know of a round besides the geometry of its updates."""

    number: int
    clients: tuple[ClientId, ...]
    num_examples: Tensor
    """[J] float64, as the clients claim."""


@dataclass(frozen=True)
class Broadcast:
    """What goes down to the clients of a round."""

    round: int
    message: Message
    """The model to train from."""
    offers: Mapping[str, Tensor] = field(default_factory=dict)
    """Named vectors that objectives may need, such as the server's momentum."""
    rounds: int = 0
    """The planned number of rounds; 0 if it is not known."""
    evaluated: Message | None = None
    """The model to score, where it differs from the one to train from (`server.average`)."""

    @property
    def model_to_score(self) -> Message:
        return self.message if self.evaluated is None else self.evaluated


CLAIMS = frozenset({"loss", "steps"})
"""The metrics that a client may send with a reply: its mean training loss, and its number of steps."""


@dataclass(frozen=True)
class Reply:
    """What a client sends back after training. The server trusts nothing in it (`server.screening`)."""

    client: ClientId
    """The sender. Who it is, the channel says (`Answer.client`): a reply under another name is rejected."""
    message: Message
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers under the names of `CLAIMS`; the server drops all others."""


@dataclass(frozen=True)
class Failure:
    """A client that gave no answer: its id, what it was doing, and the reason."""

    client: ClientId
    stage: str
    reason: str
    scores: Mapping[str, Any] = field(default_factory=dict)
    """Scores that it gave before training failed (`sites.Answer.scores`)."""


Value = float | str | int | None
Row = Mapping[str, Value]


@dataclass(frozen=True)
class Round:
    """The record of one round: its metrics, and one row for each client."""

    number: int
    metrics: Mapping[str, float]
    clients: tuple[Row, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage, kept apart because it differs between equal runs."""
    calibration: tuple[tuple[float, float, float], ...] = ()
    """Predictions of the round's model by confidence: examples, mean confidence and accuracy of each bin."""
