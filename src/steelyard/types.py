"""The vocabulary: frozen values that the parts hand to each other, and no logic.

J clients reply in a round, K coordinates are shared. Row j of a stack belongs to client j, and clients are
always in the order of their ids.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

ClientId = str
State = Mapping[str, Tensor]
"""What a rule or a client remembers between rounds: named tensors, so that it can be saved without pickle."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


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
        """The message with every vector changed alike."""
        return Message(function(self.mean), None if self.variance is None else function(self.variance))


class Stack(NamedTuple):
    """The messages of a round on top of each other, [J, K]."""

    mean: Tensor
    variance: Tensor | None = None


class Combined(NamedTuple):
    """What a combining rule makes of a stack, [K]."""

    mean: Tensor
    variance: Tensor | None = None


class Weighed(NamedTuple):
    """What a weighing rule makes of a round."""

    weights: Tensor
    """[J] float64, summing to 1."""
    state: State = EMPTY
    """The new state; the old one is not touched."""
    evidence: Mapping[str, Tensor] = EMPTY
    """Why: [J] for what is said of each client (cosine, variance, ...), a single number for the round."""


@dataclass(frozen=True)
class RoundInfo:
    """What a weighing rule may know of a round besides the geometry of its updates."""

    number: int
    clients: tuple[ClientId, ...]
    num_examples: Tensor
    """[J] float64, as claimed by the clients."""


@dataclass(frozen=True)
class Broadcast:
    """What goes down to the clients of a round."""

    round: int
    message: Message
    offers: Mapping[str, Tensor] = field(default_factory=dict)
    """Named vectors that objectives may need, such as the server's momentum."""
    rounds: int = 0
    """How many there will be; 0 if nobody knows."""


@dataclass(frozen=True)
class Reply:
    """What a client sends back. Nothing in it is to be trusted."""

    client: ClientId
    message: Message
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A client that did its work: its reply, and the state that stays with it."""

    reply: Reply
    state: State = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A client that did not: who, in which stage, and why."""

    client: ClientId
    stage: str
    reason: str


@dataclass(frozen=True)
class Round:
    """The record of one round: numbers of the round, and one row for each invited client."""

    number: int
    metrics: Mapping[str, float]
    clients: tuple[Mapping[str, float | str | int | None], ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage; kept apart because it is the one thing that differs between equal runs."""
