"""FedAvg on MNIST in the FedBaC report's setting: accuracy over three seeds, wall time, and a profile.

    python benchmarks/fedavg_mnist.py            # three seeds of 60 rounds, then a profile of one round
    python benchmarks/fedavg_mnist.py --rounds 3 --seeds 0 --out /tmp/runs   # a quick check

Prints Markdown. The last full result is in benchmarks/README.md.
"""

import argparse
import os
import platform
import statistics
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import steelyard as sy
from steelyard.runs.summary import summarise
from steelyard.server.federation import advance
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec

PRESET = "fedavg-mnist-shards"


def accuracy_table(seeds: list[int], rounds: int, engine: str, out: Path) -> None:
    print("| seed | final accuracy | last 10 | worst 10 % clients | exchange s | evaluate s | aggregate s |")
    print("|---|---|---|---|---|---|---|")
    finals = []
    for seed in seeds:
        result = sy.run(PRESET, seed=seed, rounds=rounds, engine=engine, out=out)
        assert result.path is not None
        run = sy.Run(result.path)
        summary = summarise(run)
        metrics, late = summary["metrics"], statistics.fmean(summary["accuracies"][-10:])
        stages = {
            stage: sum(row[stage] or 0 for row in run.timings)
            for stage in ("exchange", "evaluate", "aggregate")
        }
        finals.append(metrics["accuracy"])
        print(
            f"| {seed} | {metrics['accuracy']:.4f} | {late:.4f} | {metrics['client_accuracy_worst10']:.4f} "
            f"| {stages['exchange']:.1f} | {stages['evaluate']:.1f} | {stages['aggregate']:.2f} |",
            flush=True,
        )
    spread = f" ± {statistics.stdev(finals):.4f}" if len(finals) > 1 else ""
    print(f"\nmean final accuracy {statistics.fmean(finals):.4f}{spread}")


def profile_round() -> None:
    """Self time by operator over one round: ten clients and one evaluation of 10,000 images."""
    federation = build(load_spec(PRESET, {"engine": "serial"}))
    with federation.open() as sites:
        server = federation.server(sites)
        _, state = advance(server, server.init())
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            advance(server, state)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    print("\n| operator | share of self time | calls |\n|---|---|---|")
    for event in events[:12]:
        print(f"| `{event.key}` | {event.self_cpu_time_total / total:.1%} | {event.count} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1, 2]
    )
    parser.add_argument("--engine", default="auto", help="auto, serial or pool")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    print(
        f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, engine {options.engine}\n"
    )
    accuracy_table(options.seeds, options.rounds, options.engine, options.out)
    profile_round()


if __name__ == "__main__":
    main()
