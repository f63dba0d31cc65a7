"""Settings of local training and of the server, checked at construction."""

from dataclasses import dataclass
from typing import Literal, get_args

from steelyard.errors import InputError, unknown

Optimizer = Literal["sgd", "adam"]


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
        for name in ("lr", "batch_size", "epochs"):
            if not getattr(self, name) > 0:
                raise InputError(f"training.{name} must be greater than 0, not {getattr(self, name)}.")
        if self.steps is not None and not self.steps >= 0:
            raise InputError(f"training.steps must be at least 0, not {self.steps}.")
        for name in ("batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                raise InputError(f"training.{name} must be a whole number, not {value}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"training.momentum must be at least 0 and less than 1, not {self.momentum}.")
        if not self.weight_decay >= 0:
            raise InputError(f"training.weight_decay must be at least 0, not {self.weight_decay}.")


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
    geometry: Literal["mean", "precision"] = "mean"
    """What a weighing rule sees of posteriors: their means or, with "precision", their means scaled up where
    a client claims a much smaller or much larger variance than the others, which exposes false claims."""
    quorum: float = 0.5
    """The share of invited clients whose replies must be usable; with fewer, the round is skipped."""
    max_examples: int = 10_000_000
    """A reply that claims more examples than this is rejected."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise InputError(f"server.lr must be greater than 0, not {self.lr}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"server.momentum must be at least 0 and less than 1, not {self.momentum}.")
        if self.geometry not in ("mean", "precision"):
            raise InputError(f"server.geometry must be 'mean' or 'precision', not {self.geometry!r}.")
        if not 0 <= self.quorum <= 1:
            raise InputError(f"server.quorum must be a share from 0 to 1, not {self.quorum}.")
        if not self.average >= 1:
            raise InputError(f"server.average must be a number of rounds, at least 1, not {self.average}.")
        named = (None, "median", "usual")
        if self.clip not in named and not (isinstance(self.clip, float | int) and self.clip > 0):
            raise InputError(f"server.clip must be greater than 0, 'median' or 'usual', not {self.clip!r}.")
        if self.max_examples < 1:
            raise InputError(f"server.max_examples must be at least 1, not {self.max_examples}.")
