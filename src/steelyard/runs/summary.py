"""What a recorded run came to, as plain values: the terminal, JSON and files all show this."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.runs.reader import Run


def summarise(run: Run) -> dict[str, Any]:
    """The end of a run, and for each client how much it counted and how well it is served."""
    meta, rounds = run.meta, run.rounds
    evaluated = [row for row in rounds if row.get("accuracy") is not None]
    last = evaluated[-1] if evaluated else rounds[-1] if rounds else {}
    return {
        "path": str(run.path),
        "name": meta.get("name", run.path.name),
        "about": _about(run.spec),
        "status": meta.get("status", "not started"),
        "error": meta.get("error"),
        "seed": run.spec.get("seed"),
        "engine": meta.get("engine"),
        "rounds": len(rounds),
        "seconds": sum(
            value for row in run.timings for key, value in row.items() if key != "round" and value
        ),
        "metrics": {key: value for key, value in last.items() if key != "round" and value is not None},
        "accuracies": [row["accuracy"] for row in evaluated],
        "clients": client_table(run.clients),
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
    """A choice in words: dirichlet (alpha 0.3, min size 1)."""
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in choice.items() if key != "name")
    return f"{choice['name']} ({settings})" if settings else str(choice["name"])


def client_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each client over the whole run."""
    by_client: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_client.setdefault(row["client"], []).append(row)
    return [_client(client, mine) for client, mine in sorted(by_client.items())]


def _client(client: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    invited = [row for row in rows if row["status"] != "idle"]
    rejected = [row["status"] for row in invited if row["status"] != "used"]
    counts = [row["num_examples"] for row in invited if row.get("num_examples") is not None]
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    known = [{"adversary": bool(row["adversary"])} for row in rows if row.get("adversary") is not None]
    return {
        "client": client,
        "num_examples": counts[-1] if counts else None,
        "rounds": len(invited),
        "weight": statistics.fmean(row["weight"] for row in invited) if invited else None,
        "accuracy": accuracies[-1] if accuracies else None,
        "rejected": len(rejected),
        "reason": rejected[-1] if rejected else None,
        **(known[-1] if known else {}),  # a run without adversaries says nothing of them
    }
