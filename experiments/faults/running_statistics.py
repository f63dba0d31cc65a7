"""How running statistics (BatchNorm) should be merged: with and without a client that sends wild ones.

    python experiments/faults/running_statistics.py

Digits, ten clients, Linear-BatchNorm-ReLU-Linear. One to three clients are honest in every parameter and send
Gaussian noise of three sizes as running statistics. Writes results/running_statistics.md and .json.
"""

import itertools
import json
import statistics
from pathlib import Path

import torch
from rich.progress import track
from torch import nn

import steelyard as sy
from steelyard.attacks import Gaussian, Tail
from steelyard.data import deal
from steelyard.data.digits import digits
from steelyard.data.partitions import dirichlet, iid
from steelyard.seeds import generator, seeded
from steelyard.settings import Server
from steelyard.weighing import GeometricMedian, Majority, Samples

RESULTS = Path(__file__).parent / "results"
HIDDEN = 32
RULES = {"samples": Samples(), "majority": Majority(), "geometric-median": GeometricMedian()}
MERGES = ("mean", "median", "bounded")
SPLITS = {"iid": None, "Dirichlet 0.3": 0.3, "Dirichlet 0.1": 0.1}
ATTACKS = {
    "none": (0, 0.0),
    "1 of 10, scale 1": (1, 1.0),
    "1 of 10, scale 10": (1, 10.0),
    "1 of 10, scale 1000": (1, 1e3),
    "3 of 10, scale 10": (3, 10.0),
    "3 of 10, scale 1000": (3, 1e3),
}
SEEDS = (0, 1, 2)


def accuracy(rule: str, merge: str, split: str, attack: str, seed: int, rounds: int = 30) -> float:
    """Test accuracy after the last round."""
    data = digits()
    draw = generator(seed, "partition")
    labels, alpha = data.train.labels, SPLITS[split]
    rows = iid(labels, 10, draw) if alpha is None else dirichlet(labels, 10, draw, alpha=alpha)
    with seeded(seed, "model"):
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)
        )
    clients = deal(data, rows, seed)
    count, scale = ATTACKS[attack]
    wild = Tail(Gaussian(scale), size=2 * HIDDEN)
    federation = sy.Federation(
        clients,
        model,
        sy.Algorithm(weighing=RULES[rule], server=Server(statistics=merge)),
        test=data.test,
        rounds=rounds,
        seed=seed,
        adversaries=dict.fromkeys(list(clients)[:count], wild),
    )
    return float(federation.run().history[-1]["accuracy"])


def main() -> None:
    torch.set_num_threads(1)
    cells = list(itertools.product(SPLITS, RULES, MERGES, ATTACKS))
    results = {}
    for split, rule, merge, attack in track(cells):
        found = [accuracy(rule, merge, split, attack, seed) for seed in SEEDS]
        results[f"{split} | {rule} | {merge} | {attack}"] = found
    lines = [
        "| split | weighing | statistics | " + " | ".join(ATTACKS) + " |",
        "|---|---|---|" + "---|" * len(ATTACKS),
    ]
    for split, rule, merge in itertools.product(SPLITS, RULES, MERGES):
        values = [statistics.fmean(results[f"{split} | {rule} | {merge} | {attack}"]) for attack in ATTACKS]
        lines.append(f"| {split} | {rule} | {merge} | {' | '.join(f'{value:.3f}' for value in values)} |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "running_statistics.md").write_text("\n".join(lines) + "\n", "utf-8")
    (RESULTS / "running_statistics.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
