"""The summary of a recorded run as plain values, for the terminal, JSON and files."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from steelyard.runs.reader import Run


def summarise(run: Run) -> dict[str, Any]:
    """The final metrics of a run, and the mean weight and last accuracy of each client."""
    meta, rounds = run.meta, run.rounds
    evaluated = [row for row in rounds if row.get("accuracy") is not None]
    last = evaluated[-1] if evaluated else rounds[-1] if rounds else {}
    return {
        "path": str(run.path),
        "name": meta.get("name", run.path.name),
        "about": meta.get("about") or _about(run.spec),
        "status": meta.get("status", "not started"),
        "error": meta.get("error"),
        "warning": meta.get("warning"),
        "seed": run.spec.get("seed"),
        "engine": meta.get("engine"),
        "rounds": len(rounds),
        "seconds": sum(
            value for row in run.timings for key, value in row.items() if key != "round" and value
        ),
        "metrics": {key: value for key, value in last.items() if key != "round" and value is not None},
        "accuracies": [row["accuracy"] for row in evaluated],
        "clients": client_table(run.client_rows(_COLUMNS)),
    }


def _about(spec: Mapping[str, Any]) -> str:
    """The experiment in a few words: the data, who holds it, the model."""
    data = spec.get("data")
    if not data:
        return ""
    parts = [data["dataset"]["name"], f"{data['clients']} clients", describe_choice(data["partition"])]
    parts += [describe_choice(data["shift"])] if "shift" in data else []
    parts.append(spec["model"]["name"])
    adversaries = spec.get("adversaries", {})
    if adversaries.get("count"):
        parts.append(f"{adversaries['count']} adversaries: {adversaries['attack']['name']}")
    return " · ".join(parts)


def describe_choice(choice: Mapping[str, Any]) -> str:
    """A choice with its settings: dirichlet (alpha 0.3, min size 1)."""
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in choice.items() if key != "name")
    return f"{choice['name']} ({settings})" if settings else str(choice["name"])


_COLUMNS = ("client", "status", "weight", "num_examples", "accuracy", "adversary")


def client_table(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each client over the whole run; rows come in the order of rounds, and are not kept."""
    table: dict[str, dict[str, Any]] = {}
    weights: dict[str, list[float]] = {}
    for row in rows:
        client = row["client"]
        if client not in table:
            table[client] = {"client": client, **_NOTHING}
            weights[client] = []
        _add(table[client], weights[client], row)
    for client, known in table.items():
        known["weight"] = statistics.fmean(weights[client]) if weights[client] else None
    return [table[client] for client in sorted(table)]


_NOTHING = {
    "num_examples": None,
    "rounds": 0,
    "weight": None,
    "accuracy": None,
    "rejected": 0,
    "reason": None,
}


def _add(known: dict[str, Any], weights: list[float], row: Mapping[str, Any]) -> None:
    """Add what a client did in one round."""
    if row["status"] != "idle":
        known["rounds"] += 1
        weights.append(row["weight"])
        if row["status"] != "used":
            known["rejected"] += 1
            known["reason"] = row["status"]
        if row.get("num_examples") is not None:
            known["num_examples"] = row["num_examples"]
    if row.get("accuracy") is not None:
        known["accuracy"] = row["accuracy"]
    if row.get("adversary") is not None:  # only in runs with adversaries
        known["adversary"] = bool(row["adversary"])
