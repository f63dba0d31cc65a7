"""Sums over rounds from which verdicts are made. They add up, so that a live page need not start again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard.verdicts.batch import ABSENT, OTHER, USED, Batch, Matrix, Names, kind_of
from steelyard.verdicts.reasons import Reason

LOW = 0.5  # of the usual factor in a round: below, the client was weighed down in this round
MAX_RATIO = 100.0  # of a factor to the usual one in a round; one extreme round must not decide
LAST_KNOWN = ("num_examples", "accuracy", "mse", "test_loss", "adversary")
"""Columns of which the last value of each client is kept."""
MAX_RANGES = 100  # of rounds that are remembered for each client and reason
MAX_KINDS = 20  # of reasons that are told apart for each client

Vector = NDArray[np.float64]


@dataclass
class Rejections:
    """The rounds of one client in which its reply was not used, for one reason."""

    count: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """First and last rounds, of the first `MAX_RANGES` ranges."""
    text: str = ""
    """The reason, as it was given last."""
    last: int = 0
    """The last round."""

    def add(self, round: int, text: str) -> None:
        self.count, self.text, self.last = self.count + 1, text, round
        if self.ranges and self.ranges[-1][1] == round - 1:
            self.ranges[-1] = (self.ranges[-1][0], round)
        elif len(self.ranges) < MAX_RANGES:
            self.ranges.append((round, round))


class FactorSums(NamedTuple):
    """Sums over a client's used rounds for one reason, [C] each."""

    rounds: Vector
    """Rounds in which the factor is known."""
    ratio: Vector
    """Of factor^power to the usual one in the round."""
    low: Vector
    """Rounds in which that ratio is below `LOW`."""
    shown: Vector
    """Of the figure that is quoted."""
    negative: Vector
    """Rounds in which that figure is negative."""


class Tally:
    """Sums over the rounds of a run, for each client."""

    def __init__(self, reasons: Sequence[Reason], metrics: Sequence[str] = ()) -> None:
        """`metrics` are the names of the user's own metrics."""
        self.reasons, self.metrics = tuple(reasons), tuple(metrics)
        self.names = Names()
        self.num_rounds = 0
        self.totals = np.zeros((5, 0))
        """[5, C]: rounds invited, rounds used, weight, equal shares, equal shares of used rounds."""
        self.factors = [np.zeros((5, 0)) for _ in reasons]
        self.last = {name: np.zeros(0) for name in (*LAST_KNOWN, *metrics)}
        """[C] each: the last known values; nan if there is none."""
        self.rejections: dict[int, dict[str, Rejections]] = {}

    def add(self, batch: Batch) -> None:
        """Add rounds that come after those so far."""
        self._grow(batch.status.shape[1])
        self.num_rounds += len(batch.rounds)
        used, invited = batch.status == USED, batch.status != ABSENT
        weight = np.where(used, np.nan_to_num(batch.column("weight")), 0.0)
        equal = 1 / np.maximum(used.sum(axis=1, keepdims=True) + ~used, 1)
        self.totals += [
            invited.sum(axis=0),
            used.sum(axis=0),
            weight.sum(axis=0),
            np.where(invited, equal, 0.0).sum(axis=0),
            np.where(used, equal, 0.0).sum(axis=0),
        ]
        for sums, reason in zip(self.factors, self.reasons, strict=True):
            sums += factor_sums(batch, used, reason)
        for name, before in self.last.items():
            self.last[name] = last_known(batch.column(name), before)
        self._note_rejections(batch)

    def _grow(self, clients: int) -> None:
        new = clients - self.totals.shape[1]
        if new:
            self.totals = np.pad(self.totals, ((0, 0), (0, new)))
            self.factors = [np.pad(sums, ((0, 0), (0, new))) for sums in self.factors]
            for name, values in self.last.items():
                self.last[name] = np.pad(values, (0, new), constant_values=np.nan)

    def _note_rejections(self, batch: Batch) -> None:
        for round, client, reason in batch.rejected:
            kinds, kind = self.rejections.setdefault(client, {}), kind_of(reason)
            if kind not in kinds and len(kinds) >= MAX_KINDS:
                kind, reason = OTHER, OTHER
            kinds.setdefault(kind, Rejections()).add(round, reason)

    def sums_of(self, reason: Reason) -> FactorSums:
        return FactorSums(*self.factors[self.reasons.index(reason)])


def last_known(values: Matrix, before: Vector) -> Vector:
    """The last number of each column [C]; where there is none, what was known before."""
    known = ~np.isnan(values)
    last = len(values) - 1 - known[::-1].argmax(axis=0)
    found = values[last, np.arange(values.shape[1])]
    return np.where(known.any(axis=0), found, before)


def factor_sums(batch: Batch, used: NDArray[np.bool_], reason: Reason) -> Matrix:
    """What a batch adds to the sums of one reason, [5, C]."""
    factor = np.where(used, batch.column(reason.factor), np.nan)
    ratio = relative_to_usual(factor) ** reason.power
    known = ~np.isnan(ratio)
    figure = np.where(known, batch.column(reason.shown), np.nan)
    if reason.relative:
        figure = relative_to_usual(figure)
    return np.array(
        [
            known.sum(axis=0),
            np.where(known, ratio, 0.0).sum(axis=0),
            np.where(known, ratio < LOW, 0).sum(axis=0),
            np.nansum(figure, axis=0),
            (figure < 0).sum(axis=0),
        ],
        np.float64,
    )


def relative_to_usual(values: Matrix) -> Matrix:
    """Values as multiples of the median of their row, between 1/100 and 100; nan stays."""
    values = np.maximum(values, 0.0)  # factors of a weight are not negative
    known = ~np.isnan(values)
    usual = np.full(len(values), np.nan)
    rows = known.any(axis=1)
    usual[rows] = np.nanmedian(values[rows], axis=1)
    usual = usual[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(values == usual, 1.0, values / usual)  # also where both are 0
    return np.where(known, np.clip(ratio, 1 / MAX_RATIO, MAX_RATIO), np.nan)
