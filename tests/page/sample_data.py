"""Made-up data for the page, in the shape that the browser gets: `page(sample_run(...))`."""

import copy
import random
from typing import Any

from sample_parts import REASONS, calibration_of, column_of, evidence_of, metrics_of, people_of

HOSTILE = [
    "</script><img src=x onerror=\"window.hacked='name'\">",
    "<b>bold</b><br><a href='javascript:window.hacked=1'>link</a>",
    "__proto__",
    "constructor",
    "   ",
    "\u202eoslo",
    "a\x00b\x1b[31m",
    "%{x}",
    "{{x}} ${x}",
    "=HYPERLINK(1)",
    "🏥 Universitätsklinikum 東京",
    "x" * 5000,
]


def page(*runs: dict[str, Any], live: bool = False) -> dict[str, Any]:
    comparison = compare(list(runs)) if len(runs) > 1 else None
    return {"format": 1, "runs": list(runs), "comparison": comparison, "live": live}


def sample_run(
    clients: int = 10,
    rounds: int = 30,
    *,
    adversaries: int = 0,
    names: list[str] | None = None,
    task: str = "classification",
    posterior: bool = False,
    every: int = 1,
    seed: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """A run. The last `adversaries` clients are often rejected; the model is scored `every` n rounds."""
    draw = random.Random(seed)
    ids = names or sorted(f"site-{number:03d}" for number in range(clients))
    hostile = set(range(len(ids) - adversaries, len(ids)))
    columns = [column_of(draw, len(ids), hostile, number) for number in range(rounds)]
    weights = [[cell[0] for cell in column] for column in columns]
    rejected = [[cell[1] for cell in column] for column in columns]
    reasons = [[(index % 2 if cell[1] else -1) for index, cell in enumerate(column)] for column in columns]
    measure = "mse" if task == "regression" else "accuracy"
    bins = [[number, number] for number in range(1, rounds + 1)]
    evidence = evidence_of(draw, weights, measure, every)
    people = people_of(ids, hostile, adversaries, weights, rejected, evidence[-1]["values"])
    score = 0.947 if measure == "accuracy" else 0.031
    return {
        "key": f"20260101-120000-majority-s{seed}",
        "name": "poisoned" if adversaries else "honest",
        "about": f"digits · {len(ids)} clients · dirichlet (alpha 1.0) · mlp · {adversaries} adversaries",
        "path": f"runs/20260101-120000-majority-s{seed}",
        "status": "finished",
        "error": None,
        "warning": "3 rounds had fewer clients than planned." if adversaries else None,
        "started": "2026-01-01T12:00:00+00:00",
        "ended": "2026-01-01T12:00:12+00:00",
        "engine": "pool, 2 workers",
        "seed": seed,
        "version": "0.1.0",
        "planned": rounds,
        "done": rounds,
        "seconds": 0.41 * rounds,
        "rule": "majority",
        "headline": f"Test {measure} {score} after {rounds} rounds with {len(ids)} clients.",
        "facts": [
            {"label": f"test {measure}", "value": str(score), "note": f"best in round {max(1, rounds - 3)}"},
            {"label": "worst 10 % of clients", "value": "0.881", "note": "mean of the clients 0.934"},
            {
                "label": "clients that counted",
                "value": f"{len(ids) - adversaries} of {len(ids)}",
                "note": None,
            },
            {"label": "replies rejected", "value": str(sum(map(sum, rejected))), "note": None},
            {"label": "time", "value": "12.3 s", "note": "0.41 s a round"},
        ],
        "measure": {
            "name": measure,
            "label": f"{measure} on the client's own test data",
            "better": "higher" if measure == "accuracy" else "lower",
        },
        "clients": people,
        "omitted": None,
        "groups": ["like most", "group 2"],
        "group_order": sorted(range(len(ids)), key=lambda index: (index in hostile, index)),
        "cells": {
            "bins": bins,
            "note": None,
            "weight": weights,
            "rejected": rejected,
            "reason": reasons,
        },
        "reasons": REASONS,
        "evidence": {"bins": bins, "note": None, "columns": evidence},
        "rounds": {
            "bins": bins,
            "note": None,
            "metrics": metrics_of(draw, rounds, measure, bool(adversaries), posterior, every),
            "seconds": {
                "exchange": [round(0.3 + 0.1 * draw.random(), 3) for _ in bins],
                "aggregate": [round(0.05 + 0.02 * draw.random(), 3) for _ in bins],
                "evaluate": [round(0.04 * draw.random(), 3) for _ in bins],
            },
        },
        "calibration": None if task == "regression" else calibration_of(draw, rounds),
        "spec": f'name = "poisoned"\nrounds = {rounds}\n\n[weighing]\nname = "majority"\n',
        "environment": [["python", "3.11.7"], ["torch", "2.9.0"], ["system", "Linux 6.1"]],
        "command": f"steelyard run runs/20260101-120000-majority-s{seed}/spec.toml",
    } | fields


def widened(run: dict[str, Any], width: int) -> dict[str, Any]:
    """The same run with columns of `width` rounds each."""
    run = copy.deepcopy(run)
    for part in ("cells", "evidence", "rounds"):
        run[part]["bins"] = [[width * (a - 1) + 1, width * b] for a, b in run[part]["bins"]]
        run[part]["note"] = f"{width * run['done']:,} rounds: each column is the mean of {width} rounds."
    run["done"] = run["planned"] = width * run["done"]
    return run


def grown(run: dict[str, Any], start: int, **fields: Any) -> dict[str, Any]:
    """The update message that turns the first `start` columns of a run into the whole run."""
    cells, evidence, rounds = run["cells"], run["evidence"], run["rounds"]
    return {
        "type": "update",
        "key": run["key"],
        "fields": {"done": run["done"], "headline": run["headline"], **fields},
        "cells": {"from": start} | {k: cells[k][start:] for k in ("bins", "weight", "rejected", "reason")},
        "evidence": {
            "from": start,
            "bins": evidence["bins"][start:],
            "columns": [column["values"][start:] for column in evidence["columns"]],
        },
        "rounds": {
            "from": start,
            "bins": rounds["bins"][start:],
            "metrics": {name: values[start:] for name, values in rounds["metrics"].items()},
            "seconds": {name: values[start:] for name, values in rounds["seconds"].items()},
        },
    }


def shortened(run: dict[str, Any], end: int) -> dict[str, Any]:
    """The run as it was after `end` rounds."""
    run = copy.deepcopy(run)
    cells, evidence, rounds = run["cells"], run["evidence"], run["rounds"]
    for name in ("bins", "weight", "rejected", "reason"):
        cells[name] = cells[name][:end]
    evidence["bins"], rounds["bins"] = evidence["bins"][:end], rounds["bins"][:end]
    for column in evidence["columns"]:
        column["values"] = column["values"][:end]
    for group in ("metrics", "seconds"):
        rounds[group] = {name: values[:end] for name, values in rounds[group].items()}
    run["done"], run["status"], run["seconds"] = end, "running", 0.41 * end
    return run


def compare(runs: list[dict[str, Any]]) -> dict[str, Any]:
    ids = [client["id"] for client in runs[0]["clients"]]
    shares = {client["id"]: [] for run in runs for client in run["clients"]}  # type: dict[str, list[Any]]
    scores = copy.deepcopy(shares)
    for run in runs:
        found = {client["id"]: client for client in run["clients"]}
        for name in shares:
            shares[name].append(found[name]["share"] if name in found else None)
            scores[name].append(found[name]["score"] if name in found else None)

    def row(name: str, label: str, better: str | None) -> dict[str, Any]:
        values = [
            next((v for v in reversed(run["rounds"]["metrics"].get(name, [])) if v is not None), None)
            for run in runs
        ]
        return {"name": name, "label": label, "better": better, "values": values}

    return {
        "metrics": [
            row("accuracy", "test accuracy", "higher"),
            row("nll", "negative log-likelihood", "lower"),
            row("effective_clients", "effective clients", None),
        ],
        "settings": [{"name": "weighing", "values": [run["rule"] for run in runs]}],
        "clients": [{"id": name, "shares": shares[name], "scores": scores[name]} for name in ids],
    }
