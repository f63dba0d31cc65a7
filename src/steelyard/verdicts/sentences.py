"""Verdicts: how much each client counted, and why, in one sentence with its figures.

A verdict says what the record shows: how a client's figures differ from the usual ones, the median over the
clients. It does not say why they differ: an attack, a fault and unusual data can look the same.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard.errors import unknown
from steelyard.verdicts.batch import columns_of, make_batch
from steelyard.verdicts.reasons import Reason
from steelyard.verdicts.tally import LAST_KNOWN, MAX_RATIO, Rejections, Tally, Vector

LITTLE, MUCH = 0.75, 1.33  # of an equal share: outside, the share needs a reason
MIN_EFFECT = math.log(1.1)  # of a factor, to be a reason for the share
MIN_SECOND = math.log(1.25)  # of another factor, to be named as well
MANY = 0.3  # share of the rounds: from there on, it is said in how many rounds a factor was low
OPPOSED = 0.1  # of the usual figure: below minus this, it is not 0 by chance
MAX_RANGES = 3  # of rounds that a sentence lists


@dataclass(frozen=True)
class Verdict:
    """How much a client counted, and why."""

    client: str
    text: str
    share: float | None
    """Its mean weight over the rounds that it took part in; None if it took part in none."""
    equal: float | None
    """The weight that it would have had if all had counted the same."""
    rounds: int
    """Rounds that it took part in."""
    used: int
    """Rounds in which its reply was used."""
    samples: int | None
    """The number of examples that it reported last."""
    accuracy: float | None
    """The last known accuracy on its own test data."""
    mse: float | None
    """In regression, the last known mean squared error on its own test data."""
    test_loss: float | None
    """Where only the loss is scored, the last known one on its own test data."""
    adversary: bool | None
    """Whether it was an adversary of the simulation; None if that is not known."""
    last_rejection: str | None
    """Why its reply was not used, the last time that happened."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last known values of the user's own metrics on its own test data."""
    stands_out: bool = True
    """False if all its replies were used, and its share is close to an equal one or to that of most."""

    @property
    def score(self) -> tuple[str, float] | None:
        """What stands for its scores, and the last known value: accuracy, mean squared error, or loss."""
        known = (("accuracy", self.accuracy), ("mse", self.mse), ("test_loss", self.test_loss))
        return next(((name, value) for name, value in known if value is not None), None)

    def __str__(self) -> str:
        return self.text

    @property
    def rejected(self) -> int:
        """Rounds in which its reply was not used."""
        return self.rounds - self.used


class Verdicts(dict[str, Verdict]):
    """Verdicts by client id."""

    def __missing__(self, client: str) -> Verdict:
        raise unknown("client", str(client), self)


def verdicts_of(
    rows: Iterable[Mapping[str, Any]], reasons: Sequence[Reason], metrics: Sequence[str] = ()
) -> Verdicts:
    """The verdicts for rows of the table of clients, by client id."""
    tally = Tally(reasons, metrics)
    columns = columns_of(rows)
    if columns:
        tally.add(make_batch(tally.names, columns))
    return verdicts(tally)


def verdicts(tally: Tally) -> Verdicts:
    """A verdict for every client, in the order of the ids."""
    factors = [_Factor.of(tally, reason) for reason in tally.reasons]
    invited, used, weight, equal, equal_used = tally.totals
    with np.errstate(divide="ignore", invalid="ignore"):
        factor_of_equal = weight / equal_used
    most = float(np.nanmedian(factor_of_equal)) if used.any() else math.nan
    found = Verdicts()
    for name, number in sorted(tally.names.clients.items()):
        rounds = int(invited[number])
        share = float(weight[number] / rounds) if rounds else None
        fair = float(equal[number] / rounds) if rounds else None
        clauses, stands_out = list(_rejections(tally.rejections.get(number, {}), rounds)), True
        if used[number]:
            rejected = bool(clauses)
            reasons, stands_out = _reasons(factors, number, float(factor_of_equal[number]), most, rejected)
            clauses += reasons
        text = f"{name} {_opening(rounds, int(used[number]), share, fair, tally.num_rounds)}"
        text += f": {'; '.join(clauses)}." if clauses else "."
        known = _known(tally, number)
        found[name] = Verdict(
            name, text, share, fair, rounds, int(used[number]), **known, stands_out=stands_out
        )
    return found


def _known(tally: Tally, client: int) -> dict[str, Any]:
    """What is known of a client besides its weights."""
    last = [float(tally.last[name][client]) for name in LAST_KNOWN]
    samples, accuracy, mse, test_loss, adversary = (None if math.isnan(value) else value for value in last)
    rejections = tally.rejections.get(client, {}).values()
    return {
        "samples": None if samples is None else int(samples),
        "accuracy": accuracy,
        "mse": mse,
        "test_loss": test_loss,
        "metrics": {
            name: float(tally.last[name][client])
            for name in tally.metrics
            if not math.isnan(tally.last[name][client])
        },
        "adversary": None if adversary is None else bool(adversary),
        "last_rejection": max(rejections, key=lambda each: each.last).text if rejections else None,
    }


def _opening(rounds: int, used: int, share: float | None, equal: float | None, of: int) -> str:
    if share is None or equal is None:
        return "took part in no round"
    where = "" if rounds == of else f" in its {_rounds(rounds)}"
    if not used:
        return f"did not count{where}"
    return f"counted for {percent(share)}{where} (equal share {percent(equal)})"


def _rejections(kinds: Mapping[str, Rejections], rounds: int) -> Iterator[str]:
    """What happened to replies that were not used; the two most frequent kinds."""
    ordered = sorted(kinds.values(), key=lambda each: -each.count)
    for each in ordered[:2]:
        yield _rejection(each, rounds)
    if others := sum(each.count for each in ordered[2:]):
        yield f"its reply was not used for other reasons in {_rounds(others)}"


def _rejection(found: Rejections, rounds: int) -> str:
    when = _when(found, rounds)
    text = found.text.rstrip(".")
    if text.startswith("failed while "):
        stage, _, reason = text.partition(": ")
        return f"it {stage} {when}: {reason}" if reason else f"it {stage} {when}"
    if text.startswith("not used: "):
        return f"its reply was not used {when}: {text.removeprefix('not used: ')}"
    return f"it was rejected {when}: it {text}"


def _when(found: Rejections, rounds: int) -> str:
    """In all 20 rounds; in rounds 3–9; in 7 of 20 rounds (3–5, 9, 11–12 and others)."""
    if found.count == rounds:
        return f"in all {rounds} rounds" if rounds > 1 else f"in round {found.ranges[0][0]}"
    listed = [str(first) if first == last else f"{first}–{last}" for first, last in found.ranges]
    if len(listed) == 1:
        return f"in round{'s' if found.count > 1 else ''} {listed[0]}"
    more = " and others" if len(listed) > MAX_RANGES else ""
    return f"in {found.count:,} of {rounds:,} rounds ({', '.join(listed[:MAX_RANGES])}{more})"


@dataclass(frozen=True)
class _Factor:
    """One reason's figures for all clients, [C]; nan for clients without it."""

    reason: Reason
    effect: Vector
    """log of the mean ratio of the factor to the usual one: below 0 it lowers the weight."""
    shown: Vector
    """Mean of the figure that is quoted."""
    usual: float
    """Its median over the clients."""
    rounds: Vector
    low: Vector
    negative: Vector

    @classmethod
    def of(cls, tally: Tally, reason: Reason) -> "_Factor":
        sums = tally.sums_of(reason)
        with np.errstate(divide="ignore", invalid="ignore"):
            effect, shown = np.log(sums.ratio / sums.rounds), sums.shown / sums.rounds
        known = ~np.isnan(shown)
        usual = float(np.median(shown[known])) if known.any() else math.nan
        return cls(reason, effect, shown, usual, sums.rounds, sums.low, sums.negative)

    def clause(self, client: int, rejected: bool) -> str:
        """Why it lowers or raises the weight of a client in rounds that used its reply, with the figures."""
        reason, rounds = self.reason, int(self.rounds[client])
        if self.effect[client] > 0:
            return reason.more + self.figures(client)
        opposed = bool(reason.against) and self.shown[client] < -OPPOSED * abs(self.usual)
        count = int((self.negative if opposed else self.low)[client])
        of = "all " if count == rounds else f"{count:,} of {'the ' if rejected else ''}"
        often = f" in {of}{rounds:,} {'other ' if rejected else ''}rounds"
        text = reason.against if opposed else reason.less
        return text + (often if count >= MANY * rounds and rounds > 1 else "") + self.figures(client)

    def figures(self, client: int) -> str:
        """In brackets: agreement −0.21, usual 0.34; variance 0.4 × the usual."""
        value, label = float(self.shown[client]), self.reason.label
        if not label:
            return ""
        if not self.reason.relative:
            return f" ({label} {figure(value)}, usual {figure(self.usual)})"
        if value > 0.95 * MAX_RATIO:
            return f" ({label} over {0.95 * MAX_RATIO:.0f} × the usual)"
        return f" ({label} {figure(value)} × the usual)"


def _reasons(
    factors: Sequence[_Factor], client: int, of_equal: float, most: float, rejected: bool
) -> tuple[list[str], bool]:
    """Why a client whose replies were used has its weight, and whether this sets it apart from the others.

    `of_equal` is its weight in equal shares.
    """
    known = [factor for factor in factors if not math.isnan(factor.effect[client])]
    sign = -1 if of_equal < LITTLE else 1 if of_equal > MUCH else 0
    if not known:
        return [], rejected or sign != 0
    causes = [each for each in known if each.reason.less] if sign < 0 else [f for f in known if f.reason.more]
    causes = [each for each in causes if sign * each.effect[client] > MIN_EFFECT]
    causes.sort(key=lambda each: -abs(float(each.effect[client])))
    if sign and causes:
        first, rest = causes[0], causes[1:2]
        largest = abs(float(first.effect[client]))
        also = [each for each in rest if abs(float(each.effect[client])) > max(MIN_SECOND, largest / 2)]
        return [each.clause(client, rejected) for each in (first, *([] if rejected else also))], True
    if rejected:
        return [], True
    usual = all(abs(float(factor.effect[client])) < MIN_SECOND for factor in known)
    unusual = "no single figure explains it" if sign else "close to an equal share"
    text = known[0].reason.same or ("its figures were usual" if usual else unusual)
    like_most = "as much as most clients; " if sign and abs(of_equal - most) < 0.25 * abs(most) else ""
    return [like_most + text + known[0].figures(client)], bool(sign) and not like_most


def _rounds(count: int) -> str:
    return f"{count:,} round{'s' if count != 1 else ''}"


def percent(share: float) -> str:
    """A share as a percentage with two significant digits: 19 %, 2.1 %, 0.04 %."""
    value = abs(100 * share)
    if value < 0.01:
        return "0 %" if value < 1e-9 else "under 0.01 %"
    digits = f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"
    return f"{'−' if share < 0 else ''}{digits} %"


def figure(value: float) -> str:
    """A number with two or three significant digits."""
    if math.isnan(value):
        return "unknown"
    size = abs(value)
    text = f"{size:,.0f}" if size >= 100 else f"{size:.2g}"
    return f"{'−' if value < 0 else ''}{text}"
