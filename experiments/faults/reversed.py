"""`concord` against reversed updates and random labels, seed by seed: how much its accuracy varies.

    python experiments/faults/reversed.py

FedBaC's setting (preset `fedbac`: MNIST in 300 label shards, 20 clients, 10 a round, a small CNN) for 50
rounds without attack and with 6 of 20 clients that reverse their updates; and ten clients with one class of
MNIST each, four of which train on random labels. Needs MNIST. Writes results/reversed.md and .json.
"""

import json
import statistics
from pathlib import Path
from typing import Any

from rich.progress import track

import steelyard as sy

RESULTS = Path(__file__).parent / "results"
SEEDS = (0, 1, 2, 3, 4, 5)
SHARDS: dict[str, Any] = {
    "rounds": 50,
    "evaluate_every": 10,
    "clients_per_round": 10,
    "data.dataset": "mnist",
    "data.clients": 20,
    "data.partition": {"name": "shards", "shards": 300, "per_client": 2},
    "model": "light-cnn",
    "training": {"lr": 0.05, "momentum": 0.9, "batch_size": 64},
}
ONE_CLASS: dict[str, Any] = {
    "rounds": 15,
    "evaluate_every": 15,
    "data.dataset": "mnist",
    "data.clients": 10,
    "data.partition": {"name": "classes", "per_client": 1},
    "model": {"name": "mlp", "hidden": 32},
    "training": {"lr": 0.1, "steps": 15, "batch_size": 32},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "shards, no attack": ("fedbac", SHARDS),
    "shards, 6 of 20 reversed": ("fedbac", {**SHARDS, "adversaries": {"count": 6, "attack": "sign-flip"}}),
    "one class each, no attack": ("fedavg", {**ONE_CLASS, "weighing": "concord"}),
    "one class each, 4 of 10 with random labels": (
        "fedavg",
        {**ONE_CLASS, "weighing": "concord", "adversaries": {"count": 4, "attack": "random-labels"}},
    ),
}


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    found: dict[str, list[float]] = {}
    for case, (preset, settings) in CASES.items():
        for seed in track(SEEDS, case):
            result = sy.run(preset, out=None, seed=seed, **settings)
            found.setdefault(case, []).append(float(result.history[-1]["accuracy"]))
            (RESULTS / "reversed.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    lines = ["| clients | mean | lowest | highest | by seed |", "|---|---|---|---|---|"]
    for case, values in found.items():
        seeds = ", ".join(f"{value:.3f}" for value in values)
        row = f"{statistics.fmean(values):.3f} | {min(values):.3f} | {max(values):.3f} | {seeds}"
        lines.append(f"| {case} | {row} |")
    (RESULTS / "reversed.md").write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
