"""The rows of a round: what is written down about it and about each of its clients."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from steelyard.layout import Layout
from steelyard.metrics import detection, rank_correlations
from steelyard.server.aggregation import Aggregated
from steelyard.types import ClientId, Failure, Message, Reply

Value = float | str | int | None
Row = Mapping[str, Value]


def round_metrics(done: Aggregated, replies: Mapping[ClientId, Reply]) -> dict[str, float]:
    """Numbers of the round that need no evaluation."""
    metrics = {"used": float(len(done.clients)), "refused": float(len(done.refused))}
    if len(done.weights):  # how many clients the round is made of in effect: 1 if one of them is everything
        metrics["effective_clients"] = float(done.weights.abs().sum() ** 2 / done.weights.square().sum())
    losses = [replies[client].metrics["loss"] for client in done.clients if "loss" in replies[client].metrics]
    if losses and len(losses) == len(done.clients):
        metrics["loss"] = float(torch.tensor(losses, dtype=torch.float64) @ done.weights)
    return metrics | {name: float(value) for name, value in done.evidence.items() if value.dim() == 0}


def sigma_metrics(layout: Layout, variance: Tensor | None) -> dict[str, float]:
    """The posterior's root mean variance in each Bayesian layer: at 0 it is a point, at 1 the prior."""
    if variance is None:
        return {}
    layers: dict[str, list[Tensor]] = {}
    for entry in layout.parameters:
        layers.setdefault(entry.name.rpartition(".")[0], []).append(variance[entry.start : entry.stop])
    means = {name: float(torch.cat(parts).double().mean()) for name, parts in layers.items()}
    return {f"sigma.{name}": mean**0.5 for name, mean in means.items() if mean > 0}


def traffic(message: Message, models: Sequence[int]) -> dict[str, float]:
    """Bytes that go down and up in a round, and what they would be if whole models travelled."""
    head = sum(slot.nbytes for slot in message if slot is not None)
    return {"bytes": 2.0 * len(models) * head, "bytes_of_whole_models": 2.0 * sum(models)}


def detection_metrics(
    invited: Sequence[ClientId], done: Aggregated, adversaries: Collection[ClientId]
) -> dict[str, float]:
    """Whether the weights of a round tell its adversaries; whoever was set aside weighs nothing."""
    if done.skipped or not adversaries:
        return {}
    weights = dict(zip(done.clients, done.weights.tolist(), strict=True))
    return detection(
        torch.tensor([weights.get(client, 0.0) for client in invited], dtype=torch.float64),
        torch.tensor([client in adversaries for client in invited]),
    )


def coupling_metrics(done: Aggregated, scores: Mapping[ClientId, float]) -> dict[str, float]:
    """Whether weight, and reliability where the rule speaks of it, go with the clients' own accuracy."""
    if done.skipped or not scores:
        return {}
    findings = {"weight": done.weights}
    if "reliability" in done.evidence:
        findings["reliability"] = done.evidence["reliability"]
    own = [scores.get(client, float("nan")) for client in done.clients]
    return rank_correlations(findings, torch.tensor(own, dtype=torch.float64))


def marked(rows: Sequence[Row], adversaries: Collection[ClientId]) -> tuple[Row, ...]:
    """The rows of a run that has adversaries say who is one."""
    if not adversaries:
        return tuple(rows)
    return tuple({**row, "adversary": int(str(row["client"]) in adversaries)} for row in rows)


def client_rows(
    invited: Sequence[ClientId],
    done: Aggregated,
    replies: Mapping[ClientId, Reply],
    failures: Mapping[ClientId, Failure],
    scores: Mapping[ClientId, float],
    measure: str = "accuracy",
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
        row[measure] = scores.get(client)
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
