"""Rounds per second: steelyard's engines beside a straightforward hand-written PyTorch loop.

    python benchmarks/simulation.py              # every setting, three passes in turn, median round
    python benchmarks/simulation.py --only a e   # some of them

The same data, model, clients and local steps for everyone, in one process, in turn, so that a noisy machine
hits all alike. The loop is what one would write in an afternoon: torch.optim, floats in memory, both cores by
threads. A round is training and evaluation on the whole test set, except in (e), where clients do nothing.
Prints Markdown; benchmarks/README.md holds the last full result.
"""

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from steelyard.data import Examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.experiment import build
from steelyard.federation import Federation
from steelyard.spec import load_spec


class Setting(NamedTuple):
    title: str
    spec: dict[str, Any]
    rounds: int


SETTINGS = {
    "a": Setting("FedBaC's: light-cnn, 10 of 20 clients × 400", {"preset": "fedavg-mnist-shards"}, 5),
    "b": Setting(
        "logistic, 100 clients × 60",
        {
            "data": {"dataset": "mnist", "clients": 1000, "partition": "iid"},
            "clients_per_round": 100,
            "model": "logistic",
        },
        10,
    ),
    "c": Setting(
        "mlp, 1,000 of 10,000 clients × 6",
        {
            "data": {"dataset": "mnist", "clients": 10_000, "partition": "iid"},
            "clients_per_round": 1000,
            "model": "mlp",
        },
        3,
    ),
    "d": Setting(
        "hybrid-cnn, Fashion-MNIST, 10 clients × 6,000",
        {"data": {"dataset": "fashion-mnist", "partition": "iid"}, "model": "hybrid-cnn"},
        1,
    ),
    "e": Setting(
        "nothing to do, 10 clients × 1 example",
        {
            "data": {"clients": 10, "partition": "iid"},
            "model": "logistic",
            "training": {"steps": 1, "batch_size": 1},
        },
        100,
    ),
}


def steelyard_rounds(federation: Federation, engine: Engine, rounds: int) -> list[float]:
    """Seconds of each round, the first (which starts the workers) left out."""
    seconds = []
    with engine.open(federation.workload) as session:
        state = federation.init()
        for _ in range(rounds + 1):
            start = time.perf_counter()
            _, state = federation.round(state, session)
            seconds.append(time.perf_counter() - start)
    return seconds[1:]


def handwritten_rounds(federation: Federation, rounds: int) -> list[float]:
    """The same rounds by a plain loop."""
    training, test = federation.algorithm.training, federation.test
    tables = {each.id: as_floats(each.train) for each in federation.clients.values()}
    inputs, targets = as_floats(test)
    model = copy.deepcopy(federation.model)
    seconds = []
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        states, counts = [], []
        for client in federation.sample(number):
            local = copy.deepcopy(model).train()
            optimizer = torch.optim.SGD(local.parameters(), lr=training.lr, momentum=training.momentum)
            x, y = tables[client]
            for rows in torch.split(torch.randperm(len(x)), training.batch_size)[: training.steps]:
                optimizer.zero_grad()
                F.cross_entropy(local(x[rows]), y[rows]).backward()
                optimizer.step()
            states.append(local.state_dict())
            counts.append(len(x))
        merged = {
            name: sum(
                state[name] * (count / sum(counts)) for state, count in zip(states, counts, strict=True)
            )
            for name in states[0]
        }
        model.load_state_dict(merged)
        if number % federation.evaluate_every == 0:
            evaluate(model, inputs, targets)
        seconds.append(time.perf_counter() - start)
    return seconds


@torch.no_grad()
def evaluate(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    model.eval()
    logits = torch.cat([model(part) for part in torch.split(inputs, 1000)])
    return float((logits.argmax(1) == targets).float().mean())


def as_floats(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    assert isinstance(data, Examples)
    return data.batch(torch.arange(len(data)))


def measure(setting: Setting, passes: int) -> dict[str, float]:
    """Median seconds of a round for everyone, in turn."""
    spec = load_spec({**setting.spec, "rounds": 10_000})
    federation = build(spec)
    if "nothing" in setting.title:
        federation.evaluate_every = 10**6
    peers: dict[str, Callable[[], list[float]]] = {
        "hand-written loop": lambda: handwritten_rounds(federation, setting.rounds),
        "serial": lambda: steelyard_rounds(federation, Serial(), setting.rounds),
        "pool": lambda: steelyard_rounds(federation, Pool(), setting.rounds),
    }
    times: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(passes):
        for name, run in peers.items():
            times[name] += run()
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {os.cpu_count()} cores; milliseconds a round, median\n")
    print("| setting | hand-written loop | serial | pool | pool against the loop |\n|---|---|---|---|---|")
    for key in options.only:
        found = measure(SETTINGS[key], options.passes)
        cells = " | ".join(f"{1000 * value:.1f}" for value in found.values())
        ratio = found["hand-written loop"] / found["pool"]
        print(f"| ({key}) {SETTINGS[key].title} | {cells} | {ratio:.1f} × |", flush=True)


if __name__ == "__main__":
    main()
