"""Several runs side by side: their scores, the settings that differ, and the shares of each client."""

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.page.run_page import RunPage
from steelyard.page.series import Json
from steelyard.runs.summary import flattened

METRICS = (
    ("accuracy", "test accuracy", "higher"),
    ("nll", "NLL", "lower"),
    ("ece", "calibration error (ECE)", "lower"),
    ("brier", "Brier score", "lower"),
    ("mse", "mean squared error", "lower"),
    ("test_loss", "test loss", "lower"),
    ("r2", "R²", "higher"),
    ("validation_accuracy", "validation accuracy", "higher"),
    ("validation_nll", "validation NLL", "lower"),
    ("validation_mse", "mean squared error on validation data", "lower"),
    ("validation_loss", "validation loss", "lower"),
    ("client_accuracy", "mean accuracy of the clients", "higher"),
    ("client_accuracy_worst10", "worst 10 % of clients", "higher"),
    ("client_accuracy_sd", "spread of the clients' accuracy (sd)", "lower"),
    ("client_mse", "mean squared error over the clients", "lower"),
    ("client_test_loss", "mean test loss of the clients", "lower"),
    ("shared_accuracy", "accuracy of the shared head", "higher"),
    ("effective_clients", "effective clients", None),
    ("detection_auroc", "detection AUROC", "higher"),
    ("bytes", "bytes a round", "lower"),
)


def compare(pages: Sequence[RunPage], runs: Sequence[Json]) -> Json:
    """`pages` have been read; `runs` are their data."""
    return {
        "metrics": _metrics(runs),
        "settings": differing_settings([page.run.spec for page in pages]),
        "clients": _clients(runs),
    }


def _metrics(runs: Sequence[Json]) -> list[Json]:
    rows = []
    for name, label, better in METRICS:
        values = [_last(run["rounds"]["metrics"].get(name, [])) for run in runs]
        if any(value is not None for value in values):
            rows.append({"name": name, "label": label, "better": better, "values": values})
    rounds = {"name": "rounds", "label": "rounds", "better": None, "values": [run["done"] for run in runs]}
    seconds = [run["seconds"] for run in runs]
    return [*rows, rounds, {"name": "seconds", "label": "seconds", "better": "lower", "values": seconds}]


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def differing_settings(specs: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Settings that are not the same in all runs, as texts; "–" where a run does not have one."""
    flat = [{name: str(value) for name, value in flattened(spec).items()} for spec in specs]
    names = dict.fromkeys(name for spec in flat for name in spec if name not in ("name", "about"))
    rows = [{"name": name, "values": [spec.get(name, "–") for spec in flat]} for name in names]
    return [row for row in rows if len(set(row["values"])) > 1]


def _clients(runs: Sequence[Json]) -> list[Json]:
    """Share and score of each client in each run; None where a run does not have it."""
    tables = [{client["id"]: client for client in run["clients"]} for run in runs]
    ids = sorted({name for table in tables for name in table})
    return [
        {
            "id": name,
            "shares": [table[name]["share"] if name in table else None for table in tables],
            "scores": [table[name]["score"] if name in table else None for table in tables],
        }
        for name in ids
    ]
