"""The settings, written down so that any framework can read them, and the arithmetic in them."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from contenders.setting import Setting, read
from steelyard.client.private_state import MemoryStates
from steelyard.data import Examples
from steelyard.engines import Serial
from steelyard.seeds import derive
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec


class Plan(NamedTuple):
    title: str
    spec: dict[str, Any]
    rounds: int
    """How many are timed."""


# BlazeFL's own benchmark, with 10 of the 100 clients in a round in place of all, and without its label skew,
# under which the accuracy stays at chance for so few rounds and says nothing. ResNet-18 has the learning rate
# 0.005 in place of 0.1, for the same reason.
CIFAR = {"data": {"dataset": "cifar10", "clients": 100, "partition": "iid"}, "clients_per_round": 10}
PLANS = {
    "a": Plan("FedBaC's: light-cnn, 10 of 20 clients × 400", {"preset": "fedavg-mnist-shards"}, 5),
    "b": Plan(
        "logistic, 100 of 1,000 clients × 60",
        {
            "data": {"dataset": "mnist", "clients": 1000, "partition": "iid"},
            "clients_per_round": 100,
            "model": "logistic",
        },
        10,
    ),
    "c": Plan(
        "mlp, 1,000 of 10,000 clients × 6",
        {
            "data": {"dataset": "mnist", "clients": 10_000, "partition": "iid"},
            "clients_per_round": 1000,
            "model": "mlp",
        },
        3,
    ),
    "d": Plan(
        "hybrid-cnn, Fashion-MNIST, 10 clients × 6,000",
        {"data": {"dataset": "fashion-mnist", "partition": "iid"}, "model": "hybrid-cnn"},
        2,
    ),
    "e": Plan(
        "10 clients that do nothing, no evaluation",
        {
            "data": {"clients": 10, "partition": "iid"},
            "model": "logistic",
            "training": {"steps": 0},
            "evaluate_every": 10**6,
        },
        100,
    ),
    "f": Plan(
        "BlazeFL's: hybrid-cnn, CIFAR-10, 10 of 100 clients × 500, 5 epochs",
        {**CIFAR, "model": "hybrid-cnn", "training": {"lr": 0.1, "batch_size": 50, "epochs": 5}},
        3,
    ),
    "g": Plan(
        "BlazeFL's: ResNet-18, CIFAR-10, 10 of 100 clients × 500, 1 epoch",
        {**CIFAR, "model": "contenders.resnet:resnet18", "training": {"lr": 0.005, "batch_size": 50}},
        2,
    ),
}


def prepare(plan: Plan, folder: Path) -> Setting:
    """Write a setting down so that any framework can read it."""
    spec = {**plan.spec, "rounds": 10**5}
    resolved = load_spec(spec)
    federation = build(resolved)
    places = {client: place for place, client in enumerate(federation.clients)}
    with Serial().open(federation.workload, MemoryStates()) as sites:
        server = federation.server(sites)
    cohorts = {number: server.sample(number) for number in range(1, plan.rounds + 2)}
    data = [each.train for each in federation.clients.values()]
    first, test = data[0], federation.test
    assert isinstance(first, Examples)
    assert isinstance(test, Examples)
    arrays = {
        "inputs": first.inputs,
        "targets": first.targets,
        "rows": torch.cat([each.rows for each in data]),
        "offsets": torch.tensor([0, *(len(each) for each in data)]).cumsum(0),
        "test_inputs": test.inputs[test.rows],
        "test_targets": test.targets[test.rows],
    }
    facts = {
        "spec": spec,
        "model": resolved.model,
        "input_shape": first.input_shape,
        "num_classes": int(first.targets.max()) + 1,
        "mean": first.mean,
        "std": first.std,
        "training": resolved.training,
        "clients": len(data),
        "cohorts": [[places[client] for client in cohort] for cohort in cohorts.values()],
        "orders": [
            [derive(resolved.seed, number, client, "train", "order") for client in cohort]
            for number, cohort in cohorts.items()
        ],
        "evaluates": resolved.evaluate_every == 1,
    }
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.numpy())
    np.savez(folder / "weights.npz", **{k: v.numpy() for k, v in federation.model.state_dict().items()})
    (folder / "setting.json").write_text(json.dumps(facts), "utf-8")
    return read(str(folder))


def flops(setting: Setting) -> float:
    """Multiplications and additions of matrix products and convolutions in a round, on average."""
    model, sample = setting.network(), 64
    x, y = torch.zeros(sample, *setting.facts["input_shape"]), torch.zeros(sample, dtype=torch.long)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(x)
    with FlopCounterMode(display=False) as both:
        F.cross_entropy(model(x), y).backward()
    training, tested = setting.training, len(setting.test()[1]) if setting.evaluates else 0
    every = setting.sizes
    sizes = [every[client] for cohort in setting.cohorts for client in cohort]
    steps, batch = training["steps"], training["batch_size"]
    trained = sum(training["epochs"] * size if steps is None else min(steps * batch, size) for size in sizes)
    each = trained / len(setting.cohorts)
    return (each * both.get_total_flops() + tested * forward.get_total_flops()) / sample


def peak() -> float:
    """Multiplications and additions a second of a large matrix product on all cores."""
    side = 2048
    left, right = torch.rand(side, side), torch.rand(side, side)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best
