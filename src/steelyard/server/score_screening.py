"""Scores that clients send, screened: what cannot be true is dropped, with the reason."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard.metrics.calibration import BINS
from steelyard.metrics.own import NO_METRICS, OwnMetrics
from steelyard.metrics.scores import CLASS_SUMS, LABEL_SUMS, LOSS_SUMS, MAX_CONFUSION, NUMBER_SUMS, Scores
from steelyard.metrics.temperature import HOTTEST
from steelyard.server.own_screening import MAX_POSITIONS, MAX_SUM, OwnRules, screen_own
from steelyard.server.reasons import UnusableError, kind, why
from steelyard.sites import ScoreTable
from steelyard.types import EMPTY, ClientId

ByClient = Mapping[ClientId, Mapping[str, Scores]]
Array = NDArray[np.float64]
FLOAT64 = np.dtype(np.float64)
NAMES = frozenset({"test", "held_out"})
PRIVATE_NAMES = NAMES | {"common", "own_mix", "shared"}
NEED_TEST = frozenset({"own_mix", "shared"})  # come with the scores of the client's own test data
MAX_CLASSES = 1 << 31  # so that every reason that names their number is short
ROUNDING = 1e-6  # relative error that sums may have
NOT_FINITE = "sent scores that are not finite"
IMPOSSIBLE = "sent scores that cannot be: counts, right answers and losses do not fit together"


@dataclass(frozen=True, eq=False)
class ScoreRules:
    """What scores of this exchange look like."""

    classes: int | None = None
    """The outputs of the model; 0 in regression; None: not known, then what most clients send is right."""
    detail: bool = False
    """Whether the scores of own test data have calibration bins and a confusion matrix."""
    private: bool = False
    """Whether clients have models of their own, and scores of them."""
    max_examples: int = 10_000_000
    own: OwnMetrics = NO_METRICS
    """The user's own metrics."""

    @property
    def max_count(self) -> float:
        """How many examples may have been scored; or tokens or pixels, where there may be any."""
        return self.max_examples * (MAX_POSITIONS if self.classes is None else 1)

    @property
    def names(self) -> frozenset[str]:
        return PRIVATE_NAMES if self.private else NAMES

    def size(self, name: str, form: "Form") -> int:
        """The number of sums."""
        classes, labels, sums = form
        if classes == 0:
            return LABEL_SUMS + 3 * labels if labels else sums
        confusion = classes * (classes if classes <= MAX_CONFUSION else 2)
        return CLASS_SUMS + (3 * BINS + confusion if self.detail and name == "test" else 0)


class Form(NamedTuple):
    """What scores are of: so many classes, or so many labels, or something else with so many sums."""

    classes: int
    labels: int = 0
    sums: int = 0


def form_of(scores: Scores) -> Form:
    counted = scores.classes > 0 or scores.labels > 0
    return Form(scores.classes, scores.labels, 0 if counted else len(scores.values))


def screen_scores(
    sent: Mapping[ClientId, object], asked: Collection[ClientId], table: ScoreTable | None, rules: ScoreRules
) -> tuple[ByClient, dict[ClientId, str]]:
    """The usable scores by client, and the reason for each client whose scores are dropped.

    Of a client whose sums of own metrics cannot be used, these alone are dropped.
    """
    found: dict[ClientId, dict[str, Scores]] = {}
    dropped: dict[ClientId, str] = {}
    given = {
        client: scores
        for client, scores in sent.items()
        if not (type(scores) in (dict, type(EMPTY)) and not scores)
    }
    if not given:
        return {}, {}
    names, graded = rules.names, set() if table is None else set(table.clients)
    for client, scores in given.items():
        try:
            if client not in asked:
                raise UnusableError("sent scores that were not asked for")
            found[client] = _named(scores, names)
            if client in graded and "test" in found[client]:
                raise UnusableError("sent scores of test data that are scored already")
        except Exception as error:
            found.pop(client, None)
            dropped[client] = why(error, "scores")
    dropped |= _faulty_scores(found, rules)
    usable = {client: scores for client, scores in found.items() if client not in dropped}
    own_rules = OwnRules(rules.own, rules.max_examples, rules.classes is not None)
    screened, without = screen_own(usable, own_rules)
    return screened, dropped | without


def screen_table(
    tables: Sequence[ScoreTable], asked: Collection[ClientId], rules: ScoreRules
) -> tuple[ScoreTable | None, dict[ClientId, str]]:
    """The table with its usable rows, and the reason for each client whose row is dropped.

    A table has no sender. It comes from the sites themselves, which are one program in a simulation; so there
    is one at most, and a second or a malformed one is dropped.
    """
    if not tables:
        return None, {}
    try:
        clients, values, classes = tables[0]
        if type(clients) not in (list, tuple) or not {*map(type, clients)} <= {str}:
            return None, {}
        wanted = classes if rules.classes is None else rules.classes
        size = NUMBER_SUMS if wanted == 0 else CLASS_SUMS
        plain = type(values) is np.ndarray and values.dtype == FLOAT64 and type(classes) is int
        if not plain or classes != wanted or values.shape != (len(clients), size):
            return None, {}
    except Exception:
        return None, {}
    seen, asked = set(clients), set(asked)
    unasked = seen - asked
    if len(seen) < len(clients):
        unasked |= {client for client, times in Counter(clients).items() if times > 1}
    dropped = dict.fromkeys(unasked & asked, "is more than once in the table of scores")
    reasons = _reasons(values, Form(classes, 0, size), rules.max_count)
    dropped |= {clients[row]: reason for row, reason in reasons.items() if clients[row] not in unasked}
    table = ScoreTable(clients, values, classes)
    return (table.without({*dropped, *unasked}) if dropped or unasked else table), dropped


def _named(scores: object, names: frozenset[str]) -> dict[str, Scores]:
    """Scores by name, of the exact types; their values are not checked."""
    if type(scores) is not dict:
        raise UnusableError(f"sent {kind(scores)} where scores were asked for")
    for name, each in scores.items():
        if type(name) is not str or name not in names:
            raise UnusableError("sent scores under a name that is not known")
        if type(each) is not Scores:
            raise UnusableError(f"sent {kind(each)} where scores were asked for")
        for vector in (each.values, each.own):
            if type(vector) is not np.ndarray or vector.dtype != FLOAT64 or vector.ndim != 1:
                raise UnusableError("sent scores that are not a vector of float64")
        for count in (each.classes, each.labels):
            if type(count) is not int or not 0 <= count < MAX_CLASSES:
                raise UnusableError("sent scores without a number of classes")
    if "test" not in scores and not NEED_TEST.isdisjoint(scores):
        raise UnusableError("sent scores of a model without those of its test data")
    return scores


def _faulty_scores(found: ByClient, rules: ScoreRules) -> dict[ClientId, str]:
    """The reason for each client with values that cannot be true; all clients are checked together."""
    faults: dict[ClientId, str] = {}
    form = _usual_form(found) if rules.classes is None else Form(rules.classes)
    if form.classes == form.labels == form.sums == 0:
        form = form._replace(sums=NUMBER_SUMS)
    sizes = {name: rules.size(name, form) for name in rules.names}
    alike: dict[int, tuple[list[ClientId], list[Array]]] = {size: ([], []) for size in sizes.values()}
    for client, scores in found.items():
        for name, each in scores.items():
            reason = _wrong_form(each, form, sizes[name])
            if reason is not None:
                faults[client] = reason
            else:
                alike[sizes[name]][0].append(client)
                alike[sizes[name]][1].append(each.values)
    for clients, rows in alike.values():
        reasons = _reasons(np.stack(rows), form, rules.max_count) if rows else {}
        faults |= {clients[row]: reason for row, reason in reasons.items()}
    return faults


def _wrong_form(scores: Scores, form: Form, size: int) -> str | None:
    """Why scores do not have the form that they should."""
    if scores.classes != form.classes:
        return f"sent scores of {scores.classes} classes, not {form.classes}"
    if scores.labels != form.labels:
        return f"sent scores of {scores.labels} labels, not {form.labels}"
    if len(scores.values) != size:
        return f"sent scores of {len(scores.values)} sums, not {size}"
    return None


def _usual_form(found: ByClient) -> Form:
    """The form that most scores have."""
    counts = Counter(form_of(each) for scores in found.values() for each in scores.values())
    return max(sorted(counts), key=counts.__getitem__, default=Form(0, 0, NUMBER_SUMS))


def _reasons(values: Array, form: Form, max_count: float) -> dict[int, str]:
    """The reason to drop each row of sums [J, S] that cannot be true, by its number."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.asarray(np.isfinite(values).all(axis=1))
        if form.classes:
            possible = _possible_classes(values)
        else:
            possible = _possible_labels(values) if form.labels else _possible_numbers(values)
        possible &= (values[:, 0] >= 1) & (values[:, 0] <= max_count)
    faulty = np.flatnonzero(~(finite & possible)).tolist()
    return {row: IMPOSSIBLE if finite[row] else NOT_FINITE for row in faulty}


def _possible_numbers(values: Array) -> NDArray[np.bool_]:
    """Count; squared errors, targets, squared targets of each output. Or count, loss."""
    small = (np.abs(values) <= MAX_SUM).all(axis=1)
    if values.shape[1] == LOSS_SUMS:
        return np.asarray(small)
    error, _, squares = np.split(values[:, 1:], 3, axis=1)
    return np.asarray(small & (error >= 0).all(axis=1) & (squares >= 0).all(axis=1))


def _possible_labels(values: Array) -> NDArray[np.bool_]:
    """Count, right labels, negative log-likelihood, all right; true and false positives, false negatives."""
    count, right, nll, exact = values[:, :LABEL_SUMS].T
    slack = ROUNDING * count
    possible = (right >= 0) & (right <= count + slack) & (nll >= -slack) & (nll <= MAX_SUM)
    possible &= (exact >= 0) & (exact <= right + slack)
    by_label = values[:, LABEL_SUMS:].reshape(len(values), 3, -1)
    possible &= (by_label >= 0).all(axis=(1, 2))
    possible &= (by_label.sum(axis=1) <= (count + slack)[:, None]).all(axis=1)
    wrong = by_label[:, 1:].sum(axis=1).mean(axis=1)
    return np.asarray(possible & (np.abs(count - wrong - right) <= slack))


def _possible_classes(values: Array) -> NDArray[np.bool_]:
    """Count, right answers, negative log-likelihood, Brier score, log temperature; bins and confusions."""
    count, right, nll, brier, log_temperature = values[:, :CLASS_SUMS].T
    slack = ROUNDING * count
    possible = (right >= 0) & (right <= count + slack) & (nll >= -slack) & (nll <= MAX_SUM)
    possible &= (brier >= -slack) & (brier <= 2 * count + slack)
    possible &= np.abs(log_temperature) <= count * math.log(HOTTEST) + slack
    if values.shape[1] > CLASS_SUMS:
        detail = values[:, CLASS_SUMS:]
        bins, confusion = detail[:, : 3 * BINS].reshape(-1, 3, BINS), detail[:, 3 * BINS :]
        inside = (bins[:, 1:] <= bins[:, :1] + slack[:, None, None]).all(axis=(1, 2))
        possible &= (detail >= 0).all(axis=1) & inside
        for total in (bins[:, 0].sum(axis=1), confusion.sum(axis=1)):
            possible &= np.abs(total - count) <= slack
    return np.asarray(possible)
