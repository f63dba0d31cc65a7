"""What a model is for: how it is called on a batch, what its outputs are, and what the targets mean.

A batch is (inputs, targets). Inputs are a tensor, a tuple or a dict of tensors; targets are a tensor or None.
Most tasks are recognised from the first batch (`client.task_fitting`), so you need not write one.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from torch import Tensor, nn

from steelyard.errors import InputError, unknown
from steelyard.metrics.own import OwnMetrics
from steelyard.metrics.scores import Kind
from steelyard.types import EMPTY

TARGET_NAMES = ("labels", "label", "targets", "target", "y")
"""Under these names a dict has its targets; the first that is there counts."""


@dataclass(frozen=True, eq=False)
class Task:
    """How a model is called, what it returns, and what the targets are. All of it is found by itself.

    >>> sy.Federation(clients, model, task=sy.Task(predictions=lambda outputs: outputs["mask"]))
    """

    targets: Kind | None = None
    """"classes": one class number for each example, token or pixel. "labels": several classes at once, 0 or 1
    for each. "numbers": regression. "loss": only the loss is scored; the model returns it, or a loss function
    of your own computes it. None: found from the first batch."""
    call: Callable[[nn.Module, Any], Any] | None = None
    """`call(model, inputs)` returns the outputs. None: a tensor is passed as `model(x)`, a tuple as
    `model(*inputs)`, and a dict as `model(**inputs)` with the names that `forward` takes."""
    predictions: Callable[[Any], Tensor] | None = None
    """`predictions(outputs)` returns the tensor that loss and metrics are computed from. None: the output
    itself, or its `logits`."""
    class_dim: int | None = None
    """Where the classes are in predictions for tokens or pixels: 1, as in torch's cross-entropy, or -1. None:
    found from the first batch."""
    ignore_index: int = -100
    """Tokens or pixels with this class number are not scored. By default it is that of the objective, if this
    is an `nn.CrossEntropyLoss`."""
    columns: Sequence[str] | None = None
    """The columns of data frames in the order of the model's inputs, without targets. None: as in the first
    client's frame. Real sites, which do not see each other's frames, need it."""
    metrics: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Your own metrics by name: torchmetrics objects whose states are sums, functions of (outputs, targets)
    that return a mean over the examples, or names as in specs, such as "f1" or {"name": "top-k", "k": 3}."""
    own_metrics: OwnMetrics = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.targets not in (None, *get_args(Kind)):
            raise unknown("kind of targets", str(self.targets), get_args(Kind))
        if self.class_dim not in (None, 1, -1):
            raise InputError(f"task: class_dim must be 1 or -1, not {self.class_dim!r}.")
        if self.columns is not None:
            _check_columns(self.columns)
            object.__setattr__(self, "columns", tuple(self.columns))
        given = self.metrics
        if isinstance(given, Mapping):  # a federation makes those with names when it knows the classes
            given = {name: metric for name, metric in given.items() if not is_name(metric)}
        object.__setattr__(self, "own_metrics", OwnMetrics(given))

    @property
    def has_own_code(self) -> bool:
        """Whether code of the user's own is part of it."""
        return self.call is not None or self.predictions is not None or len(self.own_metrics) > 0


def _check_columns(columns: object) -> None:
    are_names = isinstance(columns, list | tuple) and all(isinstance(each, str) for each in columns)
    if not are_names or not columns:
        raise InputError(f'task: columns must be a list of names, such as ["age", "dose"], not {columns!r}.')
    assert isinstance(columns, list | tuple)
    if len(set(columns)) < len(columns):
        twice = max(columns, key=columns.count)
        raise InputError(f"task: columns names {twice!r} twice; name every column once.")


def is_name(metric: Any) -> bool:
    """Whether it is a metric's name, or a table with its name and settings."""
    return isinstance(metric, str | Mapping)


@dataclass(frozen=True, eq=False)
class FittedTask:
    """A task with everything found that it left open, for one kind of model and data."""

    targets: Kind = "classes"
    outputs: int = 0
    """Classes, labels or numbers that the model predicts; 0 if only its loss is known."""
    plain: bool = True
    """Whether inputs are one tensor, outputs one tensor [B, C], and targets a number for each example."""
    has_loss: bool = False
    """Whether the model returns its loss."""
    wide: bool = False
    """Whether the outputs of an example may be large: of models that return a loss, or classes of tokens or
    pixels, or take several inputs. They are scored in batches as small as those of training."""
    class_dim: int = 1
    ignore_index: int = -100
    call: Callable[[nn.Module, Any], Any] | None = None
    predictions: Callable[[Any], Tensor] | None = None
    loss: Callable[[Any, Any], Tensor] | None = None
    """The user's own loss of (outputs, targets), scored where targets have no other meaning."""
    loss_from: int | None = None
    """Where only the loss is scored: the first place of targets [N, T, ...] that it depends on; 1 in a causal
    language model. It is a mean over the targets from there on that are not ignored. None: it is a mean over
    examples."""
    metrics: OwnMetrics = field(default_factory=lambda: OwnMetrics({}))
    given: Task = field(default_factory=Task)
    """What the user said."""
    example: tuple[Any, Any] | None = None
    """The batch of a few examples from which it was found: inputs and targets."""

    @property
    def is_fitted(self) -> bool:
        """Whether it was found from a batch; else it is a default."""
        return self.outputs > 0 or self.targets == "loss"

    def forward(self, model: nn.Module) -> Callable[[Any], Any]:
        """The function from inputs to outputs, as loss and metrics see them."""
        if self.plain:
            return model
        return lambda inputs: self.seen(self.raw(model, inputs))

    def raw(self, model: nn.Module, inputs: Any, targets: Any = None) -> Any:
        """What the model returns. It gets the targets too if they are given and its `forward` takes them."""
        if self.call is not None:
            return self.call(model, inputs)
        return call(model, inputs if targets is None else with_targets(model, inputs, targets))

    def loss_count(self, targets: Any, examples: int) -> int:
        """The number of terms that the mean loss of a batch has."""
        if self.loss_from is None:
            return examples
        return int((targets[:, self.loss_from :] != self.ignore_index).sum())

    def seen(self, outputs: Any) -> Any:
        """Outputs as losses and metrics see them: predictions, where it is clear what these are."""
        return seen(outputs) if self.predictions is None else self.predictions(outputs)

    def aligned(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets in the shapes of torch's losses.

        Classes are in dimension 1. For labels and numbers, both have the same shape and type.
        """
        if self.targets == "classes":
            moved = self.class_dim == -1 and outputs.dim() > 2
            return outputs.movedim(-1, 1) if moved else outputs, targets
        if self.targets in ("labels", "numbers") and outputs.numel() == targets.numel():
            return outputs.reshape(targets.shape), targets.to(outputs.dtype)
        return outputs, targets


def seen(outputs: Any) -> Any:
    """The `logits` of an output that has them; any other output as it is."""
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    logits = getattr(outputs, "logits", None)
    return logits if isinstance(logits, Tensor) else outputs


def own_loss(outputs: Any) -> Tensor | None:
    """The loss that a model returned: `.loss`, ["loss"], one number, or the first of a tuple; else None."""
    if isinstance(outputs, Mapping):
        outputs = outputs.get("loss")
    elif isinstance(outputs, tuple | list) and not hasattr(outputs, "loss"):
        outputs = outputs[0] if outputs else None
    elif not isinstance(outputs, Tensor):
        outputs = getattr(outputs, "loss", None)
    is_number = isinstance(outputs, Tensor) and outputs.dim() == 0 and outputs.is_floating_point()
    return outputs if is_number else None


def call(model: nn.Module, inputs: Any) -> Any:
    """Call a model as its signature says."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    takes = signature_of(model)
    if isinstance(inputs, Mapping):
        first = [inputs[name] for name in takes.only_positions if name in inputs]
        others = {name: value for name, value in inputs.items() if name not in takes.only_positions}
        named = {name: value for name, value in others.items() if takes.anything or name in takes.names}
        return model(*first, **named) if first or named or takes.anything else model(inputs)
    return model(inputs) if takes.positions == 1 and len(inputs) > 1 else model(*inputs)


def with_targets(model: nn.Module, inputs: Any, targets: Any) -> Any:
    """The inputs, with the targets under the name that the model's `forward` takes, if it takes any."""
    if not isinstance(inputs, Mapping):
        return inputs
    takes = signature_of(model)
    name = next((name for name in TARGET_NAMES if name in takes.names), "labels" if takes.anything else None)
    return inputs if name is None else {**inputs, name: targets}


class Signature(NamedTuple):
    """What `forward` takes."""

    names: frozenset[str]
    positions: float
    """The number of positional arguments; infinite with `*args`."""
    anything: bool
    """Whether it takes any name (`**kwargs`)."""
    only_positions: tuple[str, ...] = ()
    """Arguments that cannot be given by name."""


def signature_of(model: nn.Module) -> Signature:
    """The signature of a model's `forward`, without `self`; of wrappers, that of the wrapped model."""
    return _signature_of(type(_wrapped(model)).forward)


def _wrapped(model: nn.Module) -> nn.Module:
    """The model inside a model of PEFT, `torch.compile` or `DataParallel`, which take any arguments."""
    if callable(unwrap := getattr(model, "get_base_model", None)):
        return _wrapped(unwrap())
    inner = model.module if isinstance(model, nn.DataParallel) else getattr(model, "_orig_mod", None)
    return model if inner is None else _wrapped(inner)


@lru_cache(maxsize=256)
def _signature_of(forward: Callable[..., Any]) -> Signature:
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)
    ]
    spread = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return Signature(
        frozenset(each.name for each in named),
        float("inf") if spread else len(positional),
        any(each.kind is each.VAR_KEYWORD for each in parameters),
        tuple(each.name for each in parameters if each.kind is each.POSITIONAL_ONLY),
    )
