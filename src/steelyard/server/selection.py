"""Which round has the best model, by one metric on data that are not trained on, and when to stop.

Metrics on validation data have the prefix `validation_`. The data are the server's own set, or a share of the
training data that each client holds out; then they are scores over the examples of all clients together. A
client can lie about its scores, as about everything: only a set of the server's own is safe from that.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

from torch import nn

from steelyard.errors import InputError, SelectionWarning, warn_caller
from steelyard.metrics import named
from steelyard.metrics.named import Mode
from steelyard.metrics.own import NO_METRICS, OwnMetrics
from steelyard.server.score_screening import ByClient
from steelyard.server.scoring import metrics_of, pooled_scores
from steelyard.server.state import FederationState
from steelyard.sites import ServerTestSet
from steelyard.types import Message

PREFIX = "validation_"
MODES: Mapping[str, Mode] = {
    **named.MODES,
    **dict.fromkeys(("accuracy", "shared_accuracy", "exact_match", "auc", "r2"), "max"),
    **dict.fromkeys(("nll", "ece", "brier", "mse", "mae", "rmse", "loss", "test_loss", "perplexity"), "min"),
}
"""Whether a metric is better when it is larger ("max") or smaller ("min")."""
USUAL = ("accuracy", "mse", "loss")
"""What is monitored on validation data unless `monitor` says it: the first that there is."""
LOSSES = ("loss", "nll", "mse")
"""What stands for "loss" on validation data: the first that there is."""
USUAL_WITHOUT = ("accuracy", "mse", "test_loss", "client_accuracy", "client_mse", "client_test_loss", "loss")
"""The same without validation data: test data and, without any, the training loss."""
ENDINGS = ("_weighted", "_worst10", "_min", "_max", "_balanced", "_own_mix", "_scaled")
"""Of metrics that are as good, or as bad, when they are large as those without the ending."""


class Best(NamedTuple):
    """The best model of a run."""

    round: int
    metric: str
    score: float
    model: nn.Module
    """What is shared, after that round: the whole model, or the head."""

    @property
    def text(self) -> str:
        return f"best: round {self.round} by {self.metric} {self.score:.4g}"


@dataclass(frozen=True, eq=False)
class Selection:
    """How the best round is found. Nothing is kept, or scored, unless one of these is set."""

    monitor: str | None = None
    """The metric. Where there are validation data, it is the one on these, with the prefix or without. "loss"
    is there the negative log-likelihood or, in regression, the mean squared error, if no loss is scored."""
    mode: str | None = None
    """"min" if a smaller value is better, "max" if a larger one is; None: as is usual for this metric."""
    patience: int | None = None
    """The run stops after this many evaluations without a better value."""
    validation: ServerTestSet | float | None = None
    """The server's own set, or the share of its training data that each client holds out."""

    def __post_init__(self) -> None:
        check(self.monitor, self.mode, self.validation is not None)

    @property
    def is_used(self) -> bool:
        return any(each is not None for each in (self.monitor, self.patience, self.validation))

    def is_over(self, state: FederationState) -> bool:
        """Whether the patience is used up."""
        return self.patience is not None and state.stale >= self.patience

    def begin(self, state: FederationState) -> FederationState:
        """A state to go on from; what it says of the best round counts only for the same metric."""
        if self.is_used and (state.monitor in self._names() if state.monitor else not self.monitor):
            return state
        return replace(state, best=-math.inf, stale=0, monitor="", best_round=0, best_model=None)

    def metrics(self, model: Message, answers: ByClient, own: OwnMetrics = NO_METRICS) -> dict[str, float]:
        """Metrics of a model on validation data; none if there are no such data, or no client scored them.

        `own` are the user's own metrics.
        """
        if self.validation is None:
            return {}
        if isinstance(self.validation, int | float):
            held_out = [scores["held_out"] for _, scores in sorted(answers.items()) if "held_out" in scores]
            found = pooled_scores(held_out)
        else:
            found = self.validation.scores(model)
        metrics = {} if found is None else metrics_of(found, own)
        return {f"{PREFIX}{name.removeprefix('test_')}": value for name, value in metrics.items()}

    def judge(
        self,
        state: FederationState,
        trained: Mapping[str, float],
        metrics: Mapping[str, float],
        all_answered: bool = True,
    ) -> FederationState:
        """Note whether the model of the last round is the best so far.

        `trained` are the metrics of the round's training, `metrics` all that there are. If the metric is
        missing although all clients answered, it will never be there.
        """
        if not self.is_used:
            return state
        if not state.monitor:
            state = replace(state, monitor=self._found(state.round, trained, metrics, all_answered))
        unscored = f"{PREFIX if state.monitor.startswith(PREFIX) else ''}unscored" in metrics
        value = metrics.get(state.monitor, math.nan if unscored else None)
        if value is None:
            return state
        score = _sign(self.mode, state.monitor) * value
        if not (math.isfinite(score) and score > state.best):
            return replace(state, stale=state.stale + 1)
        model = state.server.evaluated_model
        return replace(state, best=score, stale=0, best_round=state.round, best_model=model)

    def _names(self) -> tuple[str, ...]:
        """What the monitored metric may be called, in the order of preference."""
        if self.validation is None:
            return USUAL_WITHOUT if self.monitor is None else (self.monitor,)
        if self.monitor is None:
            return tuple(f"{PREFIX}{name}" for name in USUAL)
        name = self.monitor.removeprefix(PREFIX).removeprefix("test_")
        return tuple(f"{PREFIX}{each}" for each in (LOSSES if name == "loss" else (name,)))

    def _found(
        self, round: int, trained: Mapping[str, float], metrics: Mapping[str, float], all_answered: bool
    ) -> str:
        """The metric to monitor, by the name that it has here; empty if it is not there yet."""
        usable = [each for each in metrics if self.validation is None or each.startswith(PREFIX)]
        name = next((each for each in self._names() if each in usable), "")
        if name and self.validation is None and (name not in trained or self.monitor is None):
            warn_caller(_on_data(name, name in trained, self.patience), SelectionWarning)
        may_come = not all_answered or "unscored" in metrics or f"{PREFIX}unscored" in metrics
        if not (name or may_come) and (self.monitor is not None or usable):
            raise _missing(self.monitor, round, usable, self.validation is not None)
        return name


def best_of(state: FederationState, mode: str | None, model: nn.Module) -> Best:
    """The best round of a state that has one; `model` is its model as a module."""
    return Best(state.best_round, state.monitor, _sign(mode, state.monitor) * state.best, model)


def _sign(mode: str | None, metric: str) -> int:
    """-1 if a smaller value is better."""
    return -1 if (mode or usual_mode(metric)) == "min" else 1


def mode_of(monitor: str | None, mode: str | None, own: OwnMetrics) -> str | None:
    """The mode as it was given, or else that of a metric of the user's own, if its object says it."""
    if mode is not None or not isinstance(monitor, str):
        return mode
    name = monitor.removeprefix(PREFIX).removeprefix("client_")
    return own.modes.get(name, own.modes.get(_plain(name)))


def check(monitor: str | None, mode: str | None, has_validation: bool) -> None:
    """Refuse a metric or mode that cannot be meant, before the first round."""
    if mode not in (None, "min", "max"):
        raise InputError(f"mode must be 'min' or 'max', not {mode!r}.")
    if monitor is None:
        if mode is not None:
            raise InputError(f"mode is {mode!r}, but monitor is not set; name the metric that it is for.")
        return
    if not isinstance(monitor, str) or not monitor:
        raise InputError(f"monitor must be the name of a metric, not {monitor!r}.")
    if monitor.startswith(PREFIX) and not has_validation:
        raise InputError(
            f"monitor is {monitor!r}, but there are no validation data; set validation to a share, such as "
            "0.1, of each client's training data, or give the server's own set."
        )
    if mode is None and usual_mode(monitor) is None:
        raise InputError(
            f"monitor is {monitor!r}, a metric of which it is not known whether larger is better; set mode "
            "to 'max' if it is, else to 'min'."
        )


def usual_mode(metric: str) -> str | None:
    """Whether a metric is better when it is larger ("max") or smaller ("min"); None if that is not known."""
    name = _plain(metric)
    return "min" if name.endswith("_sd") else MODES.get(name)


def _plain(metric: str) -> str:
    """The name of a metric without what says on which data, and over which clients."""
    name = metric.removeprefix(PREFIX).removeprefix("client_")
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def _on_data(name: str, on_training: bool, patience: int | None) -> str:
    what = "the best round is" if patience is None else "the best round and the last one are"
    why = (
        "training data, because there are no others"
        if on_training
        else "test data, so the score of the chosen model on them is too good"
    )
    return (
        f"{what} chosen by {name!r} on {why}; set validation=0.1 to choose on a share of each client's "
        "training data, or give validation=(x, y)."
    )


def never_scored(state: FederationState) -> str:
    """What is wrong with a run in which a best round was looked for, and none was found."""
    what = f"a finite {state.monitor!r}" if state.monitor else "the monitored metric"
    return f"no round had {what}, so there is no best model; result.best_model is the last one."


def _missing(monitor: str | None, round: int, names: Collection[str], has_validation: bool) -> InputError:
    where = " on validation data" if has_validation else ""
    there = f"after round {round} the metrics{where} are: {', '.join(sorted(names)) or 'none'}"
    if monitor is None:
        return InputError(f"set monitor to the metric to choose by; {there}.")
    near = get_close_matches(monitor, sorted(names), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "; take one of them."
    return InputError(f"monitor is {monitor!r}, but there is no such metric; {there}{hint}")
