"""The record of a round: its metrics, and one row for each client."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from steelyard.layout import Layout
from steelyard.metrics import rank_correlations
from steelyard.server.aggregation import Aggregated
from steelyard.server.scoring import Evaluation
from steelyard.server.screening import Exchange
from steelyard.types import EMPTY, ClientId, Message, Row, Value

MAX_LOSS_RATIO = 20.0  # of a claimed loss to the median; honest losses differ by less, or weigh little

USED = "used"
"""The status of a client whose reply was used."""


def round_metrics(done: Aggregated, exchange: Exchange) -> dict[str, float]:
    """Metrics of the round that need no evaluation."""
    rejected = exchange.rejected.keys() | done.rejected.keys()
    metrics = {"used": float(len(done.clients)), "rejected": float(len(rejected))}
    if exchange.strangers:
        metrics["unknown_senders"] = float(exchange.strangers)
    if len(done.weights):  # 1 if one client has all the weight, J if all J clients weigh the same
        metrics["effective_clients"] = float(done.weights.abs().sum() ** 2 / done.weights.square().sum())
    replies = {reply.client: reply for reply in exchange.replies}
    loss = mean_loss([replies[client].metrics.get("loss") for client in done.clients], done.weights)
    if loss is not None:
        metrics["loss"] = loss
    return metrics | {name: float(value) for name, value in done.evidence.items() if value.dim() == 0}


def mean_loss(claimed: Sequence[float | None], weights: Tensor) -> float | None:
    """The weighted mean of the training losses that the used clients claim; None without any.

    A loss may be a lie, so its magnitude counts up to `MAX_LOSS_RATIO` × the median magnitude. Clients that
    claim none are left out; then negative weights count as 0.
    """
    known = [loss for loss in claimed if loss is not None]
    if not known:
        return None
    losses = torch.tensor(known, dtype=torch.float64)
    limit = float(MAX_LOSS_RATIO * losses.abs().median())
    losses = losses.clamp(-limit, limit)
    if len(losses) < len(claimed):
        weights = weights[[loss is not None for loss in claimed]].clamp(min=0.0)
        weights = weights / weights.sum()
    return float(losses @ weights) if bool(weights.isfinite().all()) else None


def sigma_metrics(layout: Layout, variance: Tensor | None) -> dict[str, float]:
    """The root mean variance of the posterior in each Bayesian layer: 0 is a point, 1 the standard prior."""
    if variance is None:
        return {}
    layers: dict[str, list[Tensor]] = {}
    for entry in layout.parameters:
        layers.setdefault(entry.name.rpartition(".")[0], []).append(variance[entry.start : entry.stop])
    means = {name: float(torch.cat(parts).double().mean()) for name, parts in layers.items()}
    return {f"sigma.{name}": mean**0.5 for name, mean in means.items() if mean > 0}


def traffic(message: Message, clients: int, models: Sequence[int] | None) -> dict[str, float]:
    """Bytes that go down and up in a round; where a part is shared, also what whole models would take.

    `models` are the sizes of the clients' whole models, in bytes.
    """
    found = {"bytes": 2.0 * clients * sum(slot.nbytes for slot in message if slot is not None)}
    return found if models is None else found | {"bytes_of_whole_models": 2.0 * sum(models)}


def correlation_metrics(rows: Sequence[Row], scores: Mapping[ClientId, float]) -> dict[str, float]:
    """Rank correlation of weight, and of reliability where the rule has it, with the clients' accuracy."""
    used = [row for row in rows if row["status"] == USED]
    if not used or not scores:
        return {}
    names = ["weight", *(["reliability"] if "reliability" in used[0] else [])]
    columns = {name: torch.tensor([row[name] for row in used], dtype=torch.float64) for name in names}
    accuracies = [scores.get(str(row["client"]), float("nan")) for row in used]
    return rank_correlations(columns, torch.tensor(accuracies, dtype=torch.float64))


def client_rows(exchange: Exchange, done: Aggregated) -> tuple[Row, ...]:
    """One row for each client that was invited, failed or was rejected: what became of its reply, and why."""
    evidence = _evidence(done)
    replies = {reply.client: reply for reply in exchange.replies}
    reasons = {**exchange.rejected, **done.rejected}
    for client, failure in exchange.failures.items():
        reasons[client] = f"failed while {failure.stage}: {failure.reason}"
    rows = []
    for client in exchange.invited if reasons.keys() <= set(exchange.invited) else _all(exchange, reasons):
        row: dict[str, Value] = {}
        if client in replies:  # what the client claims
            row |= {**replies[client].metrics, "num_examples": replies[client].num_examples}
        row |= {"client": client, "status": USED, "weight": 0.0}
        if client in reasons:
            row["status"] = reasons[client]
        elif done.skipped:
            row["status"] = f"not used: {done.skipped}"
        rows.append(row | evidence.get(client, {}))
    return tuple(rows)


def scored_rows(
    rows: Sequence[Row], found: Evaluation, unscored: Mapping[ClientId, str], idle: Iterable[ClientId]
) -> list[Row]:
    """Rows of a round, with the scores of its model: accuracy or error, and the user's own metrics.

    `unscored` has the reason for each client whose scores are missing. Clients that are only among `idle` did
    not train in this round; they get a row of their own.
    """
    present = {str(row["client"]) for row in rows}
    added = [{"client": client, "status": "idle"} for client in sorted({*idle} - present)]
    return [_scored(row, found, unscored) for row in (*rows, *added)]


def _scored(row: Row, found: Evaluation, unscored: Mapping[ClientId, str]) -> Row:
    client = str(row["client"])
    score = {found.measure: (found.clients or {}).get(client), **found.own.get(client, EMPTY)}
    return {**row, **score, **({"evaluation": unscored[client]} if client in unscored else {})}


def _all(exchange: Exchange, reasons: Mapping[ClientId, str]) -> list[ClientId]:
    return sorted({*exchange.invited, *reasons})


def _evidence(done: Aggregated) -> dict[ClientId, dict[str, Value]]:
    """Weight, norm and the rule's evidence for each client whose reply was used."""
    columns = {"weight": done.weights, "norm": done.norms}
    columns |= {name: value for name, value in done.evidence.items() if value.dim() == 1}
    numbers = zip(*(value.double().tolist() for value in columns.values()), strict=True)
    return {
        client: dict(zip(columns, values, strict=True))
        for client, values in zip(done.clients, numbers, strict=True)
    }
