"""Settings of local training and of the server, checked at construction."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import torch

from steelyard.components import component
from steelyard.errors import (
    COUNT,
    COUNT_OR_ZERO,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    UP_TO_INFINITY,
    InputError,
    Range,
    check_settings,
    unknown,
)
from steelyard.importing import leads_to_code, load
from steelyard.schedules import AnySchedule, Constant, Schedule

ABOVE_ZERO = Range("greater than 0", low=1, whole=True)
BELOW_ONE = Range("at least 0 and less than 1", high=math.nextafter(1, 0))
Precision = Literal["float32", "bfloat16"]
MemoryFormat = Literal["auto", "contiguous", "channels-last"]
AnyOptimizer = str | Callable[..., torch.optim.Optimizer]
TORCH_OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
}
"""The classes of `torch.optim`, by the names that specs use: "adamw", "rmsprop"."""


@dataclass(frozen=True)
class Training:
    """How a client trains in a round: for `epochs` passes over its data or, if given, for `steps` batches.

    With `steps=0`, clients reply without training: this measures the cost of everything else. An optimiser
    is new in every round: its state (momentum, Adam's moments) is not kept for the next.
    """

    optimizer: AnyOptimizer = "sgd"
    """The name of a class of `torch.optim` in lower case, an optimiser class, which is called with the
    parameters, `lr`, `options`, and `momentum` and `weight_decay` where it takes them, or a function that
    returns an optimiser with settings of its own. The function gets the list of trained parameters or, if its
    only argument is called `model`, the model, of which it can make parameter groups."""
    lr: float = 0.1
    """The learning rate."""
    momentum: float = 0.0
    """Momentum of the optimiser, from 0 to less than 1; only for optimisers that have it."""
    weight_decay: float = 0.0
    """Factor of the L2 penalty, as torch's optimisers define it; only for optimisers that have it."""
    batch_size: int = 32
    """Examples in a batch; the last batch of a pass may have fewer."""
    epochs: int = 1
    """Passes over the client's data in a round; not used where `steps` is set."""
    steps: int | None = None
    """Batches in a round, instead of whole epochs. With 0, clients reply without training."""
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    """More settings of the optimiser class, such as {"betas": (0.9, 0.95)}."""
    schedule: AnySchedule = Constant()  # noqa: RUF009 - a frozen value
    """A factor on the learning rate over the rounds of a run: a schedule, its name, a table with its name and
    settings, or a function of `schedules.Progress`."""
    clip_norm: float | None = None
    """Limit on the norm of a step's gradient over all parameters of a client."""
    accumulate: int = 1
    """Batches in a step: their gradients are averaged, weighted by their numbers of examples. The last step
    of a round may have fewer."""
    precision: Precision = "float32"
    """With "bfloat16", the loss is computed with `torch.autocast`; parameters stay float32."""
    memory_format: MemoryFormat = "auto"
    """The order of the values of images in memory: "channels-last" is faster for most convolutions on CPUs.
    "auto" takes it where a rule says that it pays, which sees only the model. Results differ by rounding."""

    def __post_init__(self) -> None:
        check_settings("training.", self, lr=POSITIVE, batch_size=ABOVE_ZERO, epochs=ABOVE_ZERO)
        check_settings("training.", self, momentum=BELOW_ONE, weight_decay=NOT_NEGATIVE, steps=COUNT_OR_ZERO)
        check_settings("training.", self, clip_norm=POSITIVE, accumulate=COUNT)
        for name in ("lr", "momentum", "weight_decay", "batch_size", "epochs", "accumulate"):
            if getattr(self, name) is None:
                raise InputError(f"training.{name} must be a number, not None.")
        if self.precision not in get_args(Precision):
            raise InputError(f"training.precision must be 'float32' or 'bfloat16', not {self.precision!r}.")
        if self.memory_format not in get_args(MemoryFormat):
            raise unknown("memory format", str(self.memory_format), get_args(MemoryFormat), of="training")
        object.__setattr__(self, "optimizer", _optimizer(self.optimizer))
        object.__setattr__(self, "schedule", _schedule(self.schedule))
        if self.optimizer != "sgd" or self.options is not None:
            _check_optimizer(self)

    @property
    def optimizer_class(self) -> type[torch.optim.Optimizer] | None:
        """The class of the optimiser; None if a function makes it."""
        if isinstance(self.optimizer, str):
            return TORCH_OPTIMIZERS[self.optimizer]
        return self.optimizer if isinstance(self.optimizer, type) else None

    @property
    def optimizer_name(self) -> str:
        return self.optimizer if isinstance(self.optimizer, str) else _name(self.optimizer)

    def optimizer_arguments(self) -> dict[str, Any]:
        """The arguments of the optimiser class, besides the parameters."""
        assert self.optimizer_class is not None
        taken = inspect.signature(self.optimizer_class).parameters
        own = {name: getattr(self, name) for name in ("lr", *ZERO_IF_UNUSED) if name in taken}
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (self.options or {}).items()
        }
        return own | given


ZERO_IF_UNUSED = ("momentum", "weight_decay")
DEFAULT_LR = Training.lr


def _optimizer(given: AnyOptimizer) -> AnyOptimizer:
    """A class or function as it is, or imported from "module:name"; a name in lower case."""
    if not isinstance(given, str):
        return given
    return load("optimizer", given) if leads_to_code(given) else given.lower()


def _schedule(given: Any) -> AnySchedule:
    """A schedule, or a function, as it is; or what a name or a table with a name stands for."""
    if callable(given) and not isinstance(given, type):
        return cast(AnySchedule, given)
    return cast(Schedule, component("training.schedule", "schedules", Schedule, given))


def _name(optimizer: object) -> str:
    return str(getattr(optimizer, "__name__", type(optimizer).__name__))


def _check_optimizer(training: Training) -> None:
    """Refuse an optimiser that does not exist, and settings that it does not have."""
    optimizer = training.optimizer
    if isinstance(optimizer, str):
        if optimizer not in TORCH_OPTIMIZERS:
            raise unknown("training.optimizer", optimizer, TORCH_OPTIMIZERS)
    elif not callable(optimizer) or (
        isinstance(optimizer, type) and not issubclass(optimizer, torch.optim.Optimizer)
    ):
        raise InputError(
            "training.optimizer must be a name, a torch.optim.Optimizer class or a function that returns an "
            f"optimiser, not {optimizer!r}."
        )
    if training.optimizer_class is None:
        _check_function(training)
    else:
        _check_class(training, training.optimizer_class)


def _check_function(training: Training) -> None:
    """A function sets everything itself: nothing else may be set."""
    changed = {name: getattr(training, name) for name in ("options", *ZERO_IF_UNUSED)}
    changed["lr"] = None if training.lr == DEFAULT_LR else training.lr
    for name, value in changed.items():
        if value:
            raise InputError(
                f"training.{name} is {value}, but the function {_name(training.optimizer)} that makes the "
                "optimiser does not get it: leave it out, and set it in the function."
            )


def _check_class(training: Training, kind: type[torch.optim.Optimizer]) -> None:
    """Refuse settings that the class does not take, or takes with other values."""
    name, options = training.optimizer_name, training.options or {}
    if not isinstance(options, Mapping):
        raise InputError(f"training.options must be a table, not {options!r}.")
    signature = inspect.signature(kind).parameters.values()
    taken = {each.name for each in list(signature)[1:] if each.kind is not each.VAR_KEYWORD}
    is_open = any(each.kind is each.VAR_KEYWORD for each in signature)
    for option in options:
        if option == "lr" or (option in ZERO_IF_UNUSED and getattr(training, option)):
            raise InputError(f"training.options has {option}: set training.{option} alone.")
        if option not in taken and not is_open:
            raise unknown("option", str(option), taken - {"lr"}, of=f"training.optimizer {name!r}")
    for setting in ZERO_IF_UNUSED:
        if (value := getattr(training, setting)) and setting not in taken:
            raise InputError(
                f"training.{setting} is {value}, but {name} does not use it: leave it out, or take sgd."
            )
    if "lr" not in taken and training.lr != DEFAULT_LR:
        raise InputError(f"training.lr is {training.lr}, but {name} does not use it: leave it out.")
    if name != "adam" or options:
        _try_class(training, kind)


def _try_class(training: Training, kind: type[torch.optim.Optimizer]) -> None:
    """Make the optimiser once: torch checks the values of its settings."""
    try:
        kind([torch.zeros(1, 1, requires_grad=True)], **training.optimizer_arguments())
    except Exception as error:
        reason = f"{error}".strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"training.optimizer {training.optimizer_name} cannot be made with these settings: {reason}."
        ) from error


@dataclass(frozen=True)
class Server:
    """How the server checks replies and updates the model."""

    lr: float = 1.0
    """Factor on the step that the server adds to its model; 1 adds the merged update as it is."""
    momentum: float = 0.0
    """From 0 to less than 1: the step is the merged update plus this share of the step before (FedAvgM)."""
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
        if wanted := Range("greater than 1", low=1.0, above=True).wanted(self.max_norm_ratio):
            raise InputError(f"server.max_norm_ratio must be {wanted}, not {self.max_norm_ratio!r}.")
        if self.statistics not in ("bounded", "median", "mean"):
            raise InputError(
                f"server.statistics must be 'bounded', 'median' or 'mean', not {self.statistics!r}."
            )
        if self.geometry not in ("mean", "precision"):
            raise InputError(f"server.geometry must be 'mean' or 'precision', not {self.geometry!r}.")
        if self.clip not in (None, "median", "usual") and UP_TO_INFINITY.wanted(self.clip):
            raise InputError(f"server.clip must be greater than 0, 'median' or 'usual', not {self.clip!r}.")
