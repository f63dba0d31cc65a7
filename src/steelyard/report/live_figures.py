"""What the live view of a run says, from the rounds so far. Nothing here writes to a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from steelyard.server.rows import USED
from steelyard.texts import plain
from steelyard.types import ClientId, Round

NEWEST = 0.2
"""How much the newest round counts in a running mean; about ten rounds have most of the weight."""
LOW = 0.5
"""Clients below this part of an equal share are shown."""
SKIPPED = "not used: "
"""How the status of all clients begins in a round that was skipped: their replies were not rejected."""
MAX_CLIENTS = 12
TREND = 40
"""Points of the accuracy's course that are kept."""
WIDE = 100
"""From this number of columns on, names are longer."""
MIN_REASON = 50
"""Columns that must be free for a reason."""

MAIN = {
    "accuracy": "accuracy",
    "mse": "mse",
    "client_accuracy": "client accuracy",
    "client_mse": "client mse",
    "test_loss": "test loss",
    "client_test_loss": "client test loss",
    "validation_accuracy": "validation accuracy",
    "validation_mse": "validation mse",
}
"""The first of these that a run has comes first."""
FURTHER = {
    "validation_accuracy": "validation accuracy",
    "validation_mse": "validation mse",
    "loss": "loss",
    "client_accuracy_worst10": "worst 10 % of clients",
    "nll": "nll",
}


def _none() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True)
class Seen:
    """What is remembered of the rounds so far. Row c of an array belongs to client c in `clients`."""

    rounds: int
    """The planned number of rounds."""
    number: int = 0
    """The last round that is complete."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    trend: Mapping[int, float] = field(default_factory=dict)
    """Accuracies in the course of the run: the last one in each of `TREND` equal parts of it."""
    clients: Mapping[ClientId, int] = field(default_factory=dict)
    shares: NDArray[np.float64] = field(default_factory=_none)
    """[C] running means of weight × number of used clients: 1 is an equal share. NaN where the last reply was
    rejected, and before the first."""
    asked: NDArray[np.float64] = field(default_factory=_none)
    """[C] number of rounds in which a client took part."""
    rejected: NDArray[np.float64] = field(default_factory=_none)
    """[C] number of rounds in which its reply was rejected, or missing."""
    reasons: Mapping[ClientId, str] = field(default_factory=dict)
    """Why the last of them was rejected."""

    def after(self, round: Round) -> "Seen":
        """The same with one round more."""
        rows = [row for row in round.clients if row["status"] != "idle"]
        clients, places = _places(self.clients, [str(row["client"]) for row in rows])
        shares = _grown(self.shares, len(clients), np.nan)
        asked, rejected = (_grown(values, len(clients), 0.0) for values in (self.asked, self.rejected))
        used = np.array([row["status"] == USED for row in rows], bool)
        weights = np.array([row["weight"] for row in rows], np.float64)[used]
        old, new = shares[places[used]], weights * len(weights)
        shares[places[used]] = np.where(np.isnan(old), new, old + NEWEST * (new - old))
        unused = {str(rows[j]["client"]): str(rows[j]["status"]) for j in np.flatnonzero(~used)}
        reasons = {client: why for client, why in unused.items() if not why.startswith(SKIPPED)}
        refused = [clients[client] for client in reasons]
        shares[refused] = np.nan
        rejected[refused] += 1
        asked[places] += 1
        return replace(
            self,
            number=round.number,
            metrics={**self.metrics, **round.metrics},
            trend={**self.trend, **_point(round, self.rounds)},
            clients=clients,
            shares=shares,
            asked=asked,
            rejected=rejected,
            reasons={**self.reasons, **reasons},
        )


def _places(
    known: Mapping[ClientId, int], clients: Sequence[ClientId]
) -> tuple[Mapping[ClientId, int], NDArray[np.intp]]:
    """All known clients, with those that are new, and the rows of `clients`."""
    if new := [client for client in clients if client not in known]:
        known = {**known, **{client: len(known) + position for position, client in enumerate(new)}}
    return known, np.fromiter(map(known.__getitem__, clients), np.intp, len(clients))


def _grown(values: NDArray[np.float64], length: int, start: float) -> NDArray[np.float64]:
    """A copy with `length` entries."""
    return np.concatenate((values, np.full(length - len(values), start)))


def _point(round: Round, rounds: int) -> dict[int, float]:
    """{part of the run: accuracy}, if the model of the round was scored."""
    name = _main(round.metrics)
    place = (round.number - 1) * TREND // max(rounds, 1)
    return {place: round.metrics[name]} if "accuracy" in name else {}


def _main(metrics: Mapping[str, float]) -> str:
    """The score that says most about the model, or "" if there is none."""
    return next((name for name in MAIN if name in metrics), "")


def scores(seen: Seen) -> list[tuple[str, str]]:
    """(what it is, its value), the most important first."""
    metrics = seen.metrics
    names = [name for name in dict.fromkeys((_main(metrics), *FURTHER)) if name in metrics]
    found = [((MAIN | FURTHER)[name], number(metrics[name])) for name in names]
    if "effective_clients" in metrics:
        found.append(
            ("effective clients", f"{metrics['effective_clients']:.1f} of {metrics.get('used', 0):.0f}")
        )
    return found


def weighed_down(seen: Seen, width: int) -> str:
    """Clients far below an equal share, the lowest first, as many as `width` columns allow."""
    low = np.flatnonzero(seen.shares < LOW)
    lowest = low[np.argsort(seen.shares[low], kind="stable")][:MAX_CLIENTS]
    items = [
        f"{name} {share:.2f} ×"
        for name, share in zip(_names(seen, lowest, width), seen.shares[lowest], strict=True)
    ]
    return listed(items, " an equal share", len(low), width)


def rejections(seen: Seen, width: int) -> str:
    """Clients whose replies were rejected, those with the most rejections first; "" if there are none."""
    found = np.flatnonzero(seen.rejected)
    most = found[np.argsort(-seen.rejected[found], kind="stable")][:MAX_CLIENTS]
    numbers = zip(seen.rejected[most], seen.asked[most], strict=True)
    counts = [f"{count:.0f}/{asked:.0f}" for count, asked in numbers]
    names = _names(seen, most, width)
    items = [f"{name} {count}" for name, count in zip(names, counts, strict=True)]
    text = listed(items, " rounds", len(found), width)
    room = width - cell_len(text)
    if not items or room < MIN_REASON:
        return text
    text = f"{text}; {names[0]}: "
    return text + shortened(seen.reasons[list(seen.clients)[most[0]]], width - cell_len(text))


def _names(seen: Seen, rows: NDArray[np.intp], width: int) -> list[str]:
    clients = list(seen.clients)
    return [shortened(clients[row], 24 if width >= WIDE else 12) for row in rows]


def listed(items: Sequence[str], unit: str, total: int, width: int) -> str:
    """As many items as fit into `width` columns, the unit, and how many more there are; "" if none fits."""
    for count in range(len(items), 0, -1):
        rest = f", +{total - count} more" if total > count else ""
        text = ", ".join(items[:count]) + unit + rest
        if cell_len(text) <= width:
            return text
    return f"{total} clients" if total > 1 else "one client" if total else ""


def shortened(text: str, cells: int) -> str:
    """Text of a client or a file as one short word: its beginning and its end, in at most `cells` columns."""
    text = " ".join(plain(text).split()) or "?"
    if len(text) <= cells and cell_len(text) <= cells:
        return text
    head, tail = text[: cells // 2], text[len(text) - (cells - 1) // 2 :]
    while cell_len(head) + cell_len(tail) >= cells:
        head, tail = (head[:-1], tail) if cell_len(head) > cell_len(tail) else (head, tail[1:])
    return f"{head}…{tail}"


def number(value: float) -> str:
    """Three decimals, or three digits of what is very large or very small."""
    return f"{value:.3f}" if 0.01 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"
