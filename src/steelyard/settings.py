"""Settings of local training and of the server, checked at construction."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from steelyard.errors import (
    COUNT,
    COUNT_OR_ZERO,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    InputError,
    Range,
    check_settings,
    unknown,
)

Optimizer = Literal["sgd", "adam"]
ABOVE_ZERO = Range("greater than 0", low=1, whole=True)
BELOW_ONE = Range("at least 0 and less than 1", high=math.nextafter(1, 0))


@dataclass(frozen=True)
class Training:
    """How a client trains in a round: for `epochs` passes over its data or, if given, for `steps` batches.

    With `steps=0`, clients reply without training: this measures the cost of everything else.
    """

    optimizer: Optimizer = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(Optimizer):
            raise unknown("optimizer", str(self.optimizer), get_args(Optimizer))
        check_settings("training.", self, lr=POSITIVE, batch_size=ABOVE_ZERO, epochs=ABOVE_ZERO)
        check_settings("training.", self, momentum=BELOW_ONE, weight_decay=NOT_NEGATIVE, steps=COUNT_OR_ZERO)
        if self.optimizer == "adam" and self.momentum:
            raise InputError(
                f"training.momentum is {self.momentum}, but adam does not use it: leave it out, or take sgd."
            )


@dataclass(frozen=True)
class Server:
    """How the server checks replies and updates the model."""

    lr: float = 1.0
    momentum: float = 0.0
    average: int = 1
    """The model that is evaluated and saved is an average over about this many of the last rounds; clients
    still start from the last model."""
    clip: float | Literal["median", "usual"] | None = None
    """Limit on the norm of an update: a number, "median" for the median norm of the round, or "usual" for
    three times the median of these medians over the rounds so far. "usual" stops a diverging model, whose
    updates grow from round to round."""
    max_norm_ratio: float = 100.0
    """An update longer than this multiple of the usual norm is rejected. The usual norm is the median of the
    round or of the last rounds, whichever is smaller. `inf` turns this off."""
    statistics: Literal["bounded", "median", "mean"] = "bounded"
    """How running statistics (BatchNorm) are merged: the weighted mean of values that are limited to what is
    usual in the round, the weighted median, or the plain weighted mean, which one client can spoil."""
    geometry: Literal["mean", "precision"] = "mean"
    """What a weighing rule sees of posteriors: their means or, with "precision", their means scaled up where
    a client claims a much smaller or much larger variance than the others, which exposes false claims."""
    quorum: float = 0.5
    """The share of invited clients whose replies must be usable; with fewer, the round is skipped."""
    max_examples: int = 10_000_000
    """A reply that claims more examples than this is rejected."""

    def __post_init__(self) -> None:
        check_settings("server.", self, lr=POSITIVE, momentum=BELOW_ONE, quorum=SHARE)
        check_settings("server.", self, average=COUNT, max_examples=COUNT)
        if not self.max_norm_ratio > 1:
            raise InputError(f"server.max_norm_ratio must be greater than 1, not {self.max_norm_ratio}.")
        if self.statistics not in ("bounded", "median", "mean"):
            raise InputError(
                f"server.statistics must be 'bounded', 'median' or 'mean', not {self.statistics!r}."
            )
        if self.geometry not in ("mean", "precision"):
            raise InputError(f"server.geometry must be 'mean' or 'precision', not {self.geometry!r}.")
        named = (None, "median", "usual")
        if self.clip not in named and not (isinstance(self.clip, float | int) and self.clip > 0):
            raise InputError(f"server.clip must be greater than 0, 'median' or 'usual', not {self.clip!r}.")
