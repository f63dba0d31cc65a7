"""The summary of a recorded run as plain values, for the terminal, JSON and files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from steelyard.runs.reader import Run
from steelyard.verdicts.sentences import Verdict

MEASURES = ("accuracy", "mse", "test_loss")
"""What stands for the scores of a model."""


def summarise(run: Run) -> dict[str, Any]:
    """The final metrics of a run, and the mean weight and last accuracy of each client."""
    meta, rounds = run.meta, run.rounds
    return {
        "path": str(run.path),
        "name": meta.get("name", run.path.name),
        "about": meta.get("about") or describe_spec(run.spec),
        "status": meta.get("status", "not started"),
        "error": meta.get("error"),
        "warning": meta.get("warning"),
        "best": best_round(meta),
        "seed": run.spec.get("seed"),
        "engine": meta.get("engine"),
        "rounds": len(rounds),
        "seconds": sum(
            value for row in run.timings for key, value in row.items() if key != "round" and value
        ),
        **final_scores(rounds),
        "own_metrics": run.own_metrics,
        "clients": client_table(run.verdicts.values()),
    }


def final_scores(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of the last round that was scored, and the accuracies of all that were."""
    scored = [row for row in rounds if any(row.get(name) is not None for name in MEASURES)]
    last = scored[-1] if scored else rounds[-1] if rounds else {}
    return {
        "metrics": {key: value for key, value in last.items() if key != "round" and value is not None},
        "accuracies": [row["accuracy"] for row in scored if row.get("accuracy") is not None],
    }


def best_round(meta: Mapping[str, str]) -> dict[str, Any] | None:
    """The best round, where one was looked for: its number, the monitored metric and its value."""
    if "best_round" not in meta:
        return None
    score = float(meta.get("best_score", "nan"))
    return {"round": int(meta["best_round"]), "metric": meta.get("monitor", ""), "score": score}


def describe_spec(spec: Mapping[str, Any]) -> str:
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


def flattened(settings: Any, place: str = "") -> dict[str, Any]:
    """Nested tables and dataclasses as one table: {"training.lr": 0.1, "weighing": "samples"}.

    The name of a choice, or of a dataclass within another, stands for the whole.
    """
    if is_dataclass(settings) and not isinstance(settings, type):
        name = {"name": _text(type(settings)).rpartition(".")[2]} if place else {}
        settings = name | {one.name: getattr(settings, one.name) for one in fields(settings) if one.init}
    if settings is None or isinstance(settings, str | int | float):
        return {place: settings}
    if isinstance(settings, list | tuple):
        return {place: json.dumps(settings, default=_text)}
    if not isinstance(settings, Mapping):
        return {place: _text(settings)}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flattened(value, place if place and key == "name" else f"{place}.{key}".lstrip("."))
    return found


def _text(value: Any) -> str:
    """An object in words that are the same in every process, and others if the object is changed."""
    from steelyard.contents import text_of  # needs torch, which takes time: tables of plain values do not

    return text_of(value)


def client_table(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """One row for each client over the whole run."""
    return [
        {
            "client": each.client,
            "num_examples": each.samples,
            "rounds": each.rounds,
            "weight": each.share,
            "equal_share": each.equal,
            "accuracy": each.accuracy,
            **({} if each.mse is None else {"mse": each.mse}),
            **({} if each.test_loss is None else {"test_loss": each.test_loss}),
            **each.metrics,
            "rejected": each.rejected,
            "reason": each.last_rejection,
            **({} if each.adversary is None else {"adversary": each.adversary}),
            "verdict": each.text,
            "stands_out": each.stands_out,
        }
        for each in verdicts
    ]
