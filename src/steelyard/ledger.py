"""The rows of a round: what is written down about it and about each of its clients."""

from collections.abc import Mapping, Sequence

import torch

from steelyard.aggregation import Aggregated
from steelyard.types import ClientId, Failure, Reply

Value = float | str | int | None
Row = Mapping[str, Value]


def round_metrics(done: Aggregated, replies: Mapping[ClientId, Reply]) -> dict[str, float]:
    """Numbers of the round that need no evaluation."""
    metrics = {"used": float(len(done.clients)), "refused": float(len(done.refused))}
    losses = [replies[client].metrics["loss"] for client in done.clients if "loss" in replies[client].metrics]
    if losses and len(losses) == len(done.clients):
        metrics["loss"] = float(torch.tensor(losses, dtype=torch.float64) @ done.weights)
    return metrics | {name: float(value) for name, value in done.evidence.items() if value.dim() == 0}


def client_rows(
    invited: Sequence[ClientId],
    done: Aggregated,
    replies: Mapping[ClientId, Reply],
    failures: Mapping[ClientId, Failure],
    accuracies: Mapping[ClientId, float],
) -> tuple[Row, ...]:
    """One row for each invited client: what became of its reply, and why it counts as it does."""
    findings = _findings(done)
    rows = []
    for client in invited:
        row = _claims(replies.get(client)) | {"client": client, "status": "used", "weight": 0.0}
        if client in failures:
            row["status"] = f"failed while {failures[client].stage}: {failures[client].reason}"
        elif client in done.refused:
            row["status"] = done.refused[client]
        elif done.skipped:
            row["status"] = "not used: the round fell below its quorum"
        row |= findings.get(client, {})
        row["accuracy"] = accuracies.get(client)
        rows.append(row)
    return tuple(rows)


def _claims(reply: Reply | None) -> dict[str, Value]:
    """What a client says of itself; what the server finds out is written over it."""
    if reply is None:
        return {}
    claims = {**reply.metrics, "num_examples": reply.num_examples}
    return {name: value for name, value in claims.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    """What fits a column of numbers; a client may send anything."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _findings(done: Aggregated) -> dict[ClientId, dict[str, Value]]:
    """What the server finds of each client it used: weight, norm and the rule's evidence."""
    columns = {"weight": done.weights, "norm": done.norms}
    columns |= {name: value for name, value in done.evidence.items() if value.dim() == 1}
    numbers = zip(*(value.double().tolist() for value in columns.values()), strict=True)
    return {
        client: dict(zip(columns, found, strict=True))
        for client, found in zip(done.clients, numbers, strict=True)
    }
