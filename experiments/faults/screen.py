"""What the screen of lengths costs without an attack, also if honest updates differ much in length.

    python experiments/faults/screen.py

Digits, ten honest clients, 20 rounds, every weighing rule, with the screen (`server.max_norm_ratio = 100`)
and without it, on the same seeds. Clients with "epochs 1 to 30" hold their examples 1 to 30 times over.
Writes results/screen.md and .json: the mean accuracy, the largest loss over the seeds, how many updates were
rejected, and how much the lengths of a round differed.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

import steelyard as sy
from steelyard import components
from steelyard.data.digits import digits
from steelyard.data.partitions import classes, dirichlet, iid
from steelyard.seeds import generator, seeded

RESULTS = Path(__file__).parent / "results"
CLIENTS, ROUNDS, SEEDS = 10, 20, (0, 1, 2)
SIZES = (5, 8, 14, 24, 41, 70, 120, 205, 350, 600)
Rows = Sequence[Tensor]


def unequal_sizes(labels: Tensor, seed: int) -> Rows:
    return torch.randperm(len(labels), generator=generator(seed, "partition"))[: sum(SIZES)].split(SIZES)


def unequal_epochs(rows: Rows) -> Rows:
    """Each client's rows several times over: 1, 4, 7, … 30 times."""
    times = torch.linspace(1, 30, len(rows)).round().int().tolist()
    return [part.repeat(count) for part, count in zip(rows, times, strict=True)]


def dealt(how: Callable[..., Rows], **settings: Any) -> Callable[[Tensor, int], Rows]:
    return lambda labels, seed: how(labels, CLIENTS, generator(seed, "partition"), **settings)


one_class = dealt(classes, per_client=1)
SETTINGS: dict[str, Callable[[Tensor, int], Rows]] = {
    "iid": dealt(iid),
    "Dirichlet 0.1": dealt(dirichlet, alpha=0.1),
    "one class each": one_class,
    "5 to 600 examples": unequal_sizes,
    "epochs 1 to 30": lambda labels, seed: unequal_epochs(dealt(iid)(labels, seed)),
    "one class each, epochs 1 to 30": lambda labels, seed: unequal_epochs(one_class(labels, seed)),
}


def run(setting: str, rule: str, ratio: float, seed: int) -> dict[str, float]:
    """Accuracy after the last round, rejected updates, and the largest ratios of norms in a round."""
    data = digits()
    rows = SETTINGS[setting](data.train.labels, seed)
    with seeded(seed, "model"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    algorithm = sy.Algorithm(
        weighing=components.build("weighing", {"name": rule}), server=sy.Server(max_norm_ratio=ratio)
    )
    clients = [sy.Client(f"c{place}", data.train.take(part)) for place, part in enumerate(rows)]
    result = sy.Federation(clients, model, algorithm, test=data.test, rounds=ROUNDS, seed=seed).run()
    by_round: dict[int, list[float]] = {}
    for row in result.clients:
        by_round.setdefault(row["round"], []).extend([row["norm"]] if row.get("norm") else [])
    return {
        "accuracy": result.history[-1]["accuracy"],
        "rejected": sum(row["rejected"] for row in result.history),
        "longest over median": max(max(norms) / statistics.median(norms) for norms in by_round.values()),
        "longest over shortest": max(max(norms) / min(norms) for norms in by_round.values()),
    }


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for setting in SETTINGS:
        for rule in track(components.names("weighing"), setting):
            results[f"{setting} | {rule}"] = {
                screen: [run(setting, rule, ratio, seed) for seed in SEEDS]
                for screen, ratio in (("with", sy.Server().max_norm_ratio), ("without", math.inf))
            }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "screen.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    text = table(results)
    (RESULTS / "screen.md").write_text(text, "utf-8")
    print(text)


def table(results: dict[str, Any]) -> str:
    """One row for each setting: the rule that loses most, and the ranges over rules and seeds."""
    lines = [
        "| clients | accuracy, mean over rules | largest loss of a rule (points) | rejected updates | "
        "longest / shortest | longest / median |",
        "|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        cells = {key: cell for key, cell in results.items() if key.startswith(f"{setting} | ")}
        losses = {
            key.split(" | ")[1]: statistics.fmean(run["accuracy"] for run in cell["without"])
            - statistics.fmean(run["accuracy"] for run in cell["with"])
            for key, cell in cells.items()
        }
        worst = max(losses, key=lambda rule: losses[rule])
        runs = [run for cell in cells.values() for run in cell["with"]]
        free = [run for cell in cells.values() for run in cell["without"]]
        name = f" ({worst})" if losses[worst] else ""
        lines.append(
            f"| {setting} | {statistics.fmean(run['accuracy'] for run in runs):.3f} | "
            f"{100 * losses[worst]:.2f}{name} | {sum(run['rejected'] for run in runs):.0f} | "
            f"{max(run['longest over shortest'] for run in free):.0f} | "
            f"{max(run['longest over median'] for run in free):.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
