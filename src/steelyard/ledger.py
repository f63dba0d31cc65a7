"""The rows of a round: what is written down about it and about each of its clients."""

from collections.abc import Mapping, Sequence

import torch

from steelyard.aggregation import Aggregated
from steelyard.types import ClientId, Failure, Reply

Row = Mapping[str, float | str | int | None]


def round_metrics(done: Aggregated, replies: Mapping[ClientId, Reply]) -> dict[str, float]:
    """Numbers of the round that need no evaluation."""
    metrics = {"used": float(len(done.clients)), "refused": float(len(done.refused))}
    losses = [replies[client].metrics.get("loss", float("nan")) for client in done.clients]
    if losses:
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
    place = {client: position for position, client in enumerate(done.clients)}
    rows = []
    for client in invited:
        row: dict[str, float | str | int | None] = {"client": client, "status": "used", "weight": 0.0}
        if client in failures:
            row["status"] = f"failed while {failures[client].stage}: {failures[client].reason}"
        elif client in done.refused:
            row["status"] = done.refused[client]
        if client in replies:
            row |= {"num_examples": replies[client].num_examples, **replies[client].metrics}
        if client in place:
            row |= {"weight": float(done.weights[place[client]]), "norm": float(done.norms[place[client]])}
            row |= {
                name: float(value[place[client]]) for name, value in done.evidence.items() if value.dim() == 1
            }
        elif done.skipped and row["status"] == "used":
            row["status"] = "not used: the round fell below its quorum"
        rows.append(row | {"accuracy": accuracies.get(client)})
    return tuple(rows)
