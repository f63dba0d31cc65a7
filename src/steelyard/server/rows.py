"""The record of a round: its metrics, and one row for each client."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from steelyard.layout import Layout
from steelyard.metrics import rank_correlations
from steelyard.server.aggregation import Aggregated
from steelyard.types import ClientId, Failure, Message, Reply, Row, Value

USED = "used"
"""The status of a client whose reply was used."""


def round_metrics(done: Aggregated, replies: Mapping[ClientId, Reply]) -> dict[str, float]:
    """Metrics of the round that need no evaluation."""
    metrics = {"used": float(len(done.clients)), "rejected": float(len(done.rejected))}
    if len(done.weights):  # 1 if one client has all the weight, J if all J clients weigh the same
        metrics["effective_clients"] = float(done.weights.abs().sum() ** 2 / done.weights.square().sum())
    losses = [replies[client].metrics["loss"] for client in done.clients if "loss" in replies[client].metrics]
    if losses and len(losses) == len(done.clients):
        metrics["loss"] = float(torch.tensor(losses, dtype=torch.float64) @ done.weights)
    return metrics | {name: float(value) for name, value in done.evidence.items() if value.dim() == 0}


def sigma_metrics(layout: Layout, variance: Tensor | None) -> dict[str, float]:
    """The root mean variance of the posterior in each Bayesian layer: 0 is a point, 1 the standard prior."""
    if variance is None:
        return {}
    layers: dict[str, list[Tensor]] = {}
    for entry in layout.parameters:
        layers.setdefault(entry.name.rpartition(".")[0], []).append(variance[entry.start : entry.stop])
    means = {name: float(torch.cat(parts).double().mean()) for name, parts in layers.items()}
    return {f"sigma.{name}": mean**0.5 for name, mean in means.items() if mean > 0}


def traffic(message: Message, models: Sequence[int]) -> dict[str, float]:
    """Bytes that go down and up in a round, and what whole models (`models`, in bytes) would take."""
    shared = sum(slot.nbytes for slot in message if slot is not None)
    return {"bytes": 2.0 * len(models) * shared, "bytes_of_whole_models": 2.0 * sum(models)}


def correlation_metrics(rows: Sequence[Row], scores: Mapping[ClientId, float]) -> dict[str, float]:
    """Rank correlation of weight, and of reliability where the rule has it, with the clients' accuracy."""
    used = [row for row in rows if row["status"] == USED]
    if not used or not scores:
        return {}
    names = ["weight", *(["reliability"] if "reliability" in used[0] else [])]
    columns = {name: torch.tensor([row[name] for row in used], dtype=torch.float64) for name in names}
    accuracies = [scores.get(str(row["client"]), float("nan")) for row in used]
    return rank_correlations(columns, torch.tensor(accuracies, dtype=torch.float64))


def client_rows(
    invited: Sequence[ClientId],
    done: Aggregated,
    replies: Mapping[ClientId, Reply],
    failures: Mapping[ClientId, Failure],
) -> tuple[Row, ...]:
    """One row for each invited client and each failure: what became of its reply, and its evidence."""
    evidence = _evidence(done)
    rows = []
    for client in invited if failures.keys() <= set(invited) else sorted({*invited, *failures}):
        row = _claims(replies.get(client)) | {"client": client, "status": USED, "weight": 0.0}
        if client in failures:
            row["status"] = f"failed while {failures[client].stage}: {failures[client].reason}"
        elif client in done.rejected:
            row["status"] = done.rejected[client]
        elif done.skipped:
            row["status"] = "not used: the round fell below its quorum"
        rows.append(row | evidence.get(client, {}))
    return tuple(rows)


def _claims(reply: Reply | None) -> dict[str, Value]:
    """What a client says of itself; what the server measures overwrites it."""
    if reply is None:
        return {}
    claims = {**reply.metrics, "num_examples": reply.num_examples}
    return {name: value for name, value in claims.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    """Whether SQLite can hold it as a number; a client may send anything."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _evidence(done: Aggregated) -> dict[ClientId, dict[str, Value]]:
    """Weight, norm and the rule's evidence for each client whose reply was used."""
    columns = {"weight": done.weights, "norm": done.norms}
    columns |= {name: value for name, value in done.evidence.items() if value.dim() == 1}
    numbers = zip(*(value.double().tolist() for value in columns.values()), strict=True)
    return {
        client: dict(zip(columns, values, strict=True))
        for client, values in zip(done.clients, numbers, strict=True)
    }
