"""What is wrong with a run that came to its end: then its model is not what the user thinks it is.

`Participation` finds less: clients that were often left out, and rounds that were skipped.
"""

from collections import Counter
from collections.abc import Sequence

from steelyard.server.rows import USED
from steelyard.texts import plain
from steelyard.types import ClientId, Round, Row

MAX_UNUSED = 3  # rounds in a row at the end that may leave the model as it was
OFTEN = 0.5  # of the rounds that a client was asked in
MAX_NAMED = 5  # clients, and rounds, that a sentence names
MAX_REASON = 160  # characters


def concerns(history: Sequence[Row], model_is_finite: bool, metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """One sentence for each thing that is wrong with a run; `history` has a row for each round.

    `metrics` are the names of the user's own.
    """
    last = history[-1] if history else {}
    found = _unused(history), _not_finite(last, model_is_finite), _without_value(last, metrics)
    return tuple(filter(None, found))


def _unused(history: Sequence[Row]) -> str:
    used = [number for number, row in enumerate(history, start=1) if row.get("used")]
    unused = len(history) - (used[-1] if used else 0)
    look = "the status of each client has the reasons."
    if history and not used:
        return f"no round changed the model: no reply was used, or too few were usable; {look}"
    if unused >= MAX_UNUSED:
        return f"the last {unused} rounds did not change the model, which is that of round {used[-1]}; {look}"
    return ""


def _not_finite(last: Row, model_is_finite: bool) -> str:
    if not model_is_finite:
        return "the model is not finite: it has values that are infinite or not a number."
    if _unknown(last, ("nll", "mse")) or last.get("unscored"):
        return "the score of the test set is not a number; look for NaN or infinity in its inputs."
    return ""


def _without_value(last: Row, metrics: Sequence[str]) -> str:
    found = [name for name in metrics if _unknown(last, (name, f"client_{name}", f"validation_{name}"))]
    if not found:
        return ""
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    named = ", ".join(map(repr, found[:MAX_NAMED]))
    return (
        f"in the last round there is no finite value of {named}{more}; look at what the metric returns for "
        "these predictions and targets."
    )


def _unknown(last: Row, names: Sequence[str]) -> bool:
    """Whether one of these scores was computed and is not a number; a record has None for NaN."""
    return any(last[name] is None or last[name] != last[name] for name in names if name in last)


class Participation:
    """An observer that counts how often each client was asked and not used, and which rounds were skipped."""

    def __init__(self) -> None:
        self._asked: Counter[ClientId] = Counter()
        self._unused: Counter[ClientId] = Counter()
        self._reasons: dict[ClientId, str] = {}
        self._rounds, self._skipped = 0, list[int]()

    def __call__(self, round: Round) -> None:
        self._rounds += 1
        if not round.metrics.get("used", 1):
            self._skipped.append(round.number)
        for row in round.clients:
            client, status = str(row["client"]), str(row["status"])
            if status == "idle":
                continue
            self._asked[client] += 1
            if status != USED and not status.startswith("not used: "):  # it was the round that was skipped
                self._unused[client] += 1
                self._reasons[client] = status

    def notices(self) -> tuple[str, ...]:
        """A sentence for each client that was often rejected or failed, and one for skipped rounds.

        No sentence for rounds if all were skipped: `concerns` says so.
        """
        often = [each for each, count in self._unused.items() if count >= OFTEN * self._asked[each]]
        often = sorted(often, key=lambda each: (-self._unused[each] / self._asked[each], each))
        found = [self._sentence(each) for each in often[:MAX_NAMED]]
        if len(often) > MAX_NAMED:
            found.append(f"{len(often) - MAX_NAMED:,} more clients were rejected or failed as often.")
        if 0 < len(self._skipped) < self._rounds:
            named = ", ".join(map(str, self._skipped[:MAX_NAMED]))
            more = " and others" if len(self._skipped) > MAX_NAMED else ""
            count = f"{len(self._skipped):,} of {self._rounds:,} rounds"
            found.append(
                f"{count} did not change the model, because too few replies were usable: {named}{more}."
            )
        return tuple(found)

    def _sentence(self, client: ClientId) -> str:
        """Client 'oslo' was rejected or failed in 7 of 9 rounds; the last time, it sent ...."""
        count, asked = self._unused[client], self._asked[client]
        rounds = f"{count:,} of {asked:,} rounds" if asked > 1 else "its only round"
        reason = " ".join(plain(self._reasons[client]).split()).rstrip(".")
        reason = reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 1] + "…"
        return f"client {client!r} was rejected or failed in {rounds}; the last time, it {reason}."
