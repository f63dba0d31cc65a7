"""The runs of each study, and how one is run. The settings were chosen on seed 0 without attacks."""

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from text import Size, adapted, gpt, pretrained, split, texts
from torch import nn

import steelyard as sy
from steelyard.attacks import Attack, Gaussian, SignFlip
from steelyard.engines import Serial

SEEDS = (0, 1, 2)
SMALL = Size(width=16, layers=1, length=16, pretraining_steps=20, roles=3)  # for --quick
RANK, MIXED = 4, (1, 2, 4, 8, 16)
FULL = 10**6  # limited to the rank of each weight
TRAINING = {"optimizer": "adam", "lr": 3e-3, "batch_size": 16, "steps": 30}
MERGING: Mapping[str, Mapping[str, Any]] = {
    "separate means": {"combining": "mean"},
    "product, rank 4": {"combining": "low-rank"},
    "product, rank 16": {"combining": "low-rank", "sharing": {"name": "adapter", "rank": 16}},
    "product, exact": {"combining": "low-rank", "sharing": {"name": "adapter", "rank": FULL}},
}
MIXED_MERGING: Mapping[str, Mapping[str, Any]] = {
    "separate means": {"combining": "mean", "sharing": {"name": "adapter", "rank": max(MIXED)}},
    "product, rank 16": MERGING["product, rank 16"],
    "product, exact": MERGING["product, exact"],
}
RULES = ("samples", "geometric-median", "majority")
ATTACKS: Mapping[str, Attack | None] = {"none": None, "sign flip": SignFlip(), "noise": Gaussian()}


@dataclass(frozen=True)
class Cell:
    """One run."""

    study: str
    setting: str
    method: str
    seed: int
    algorithm: Mapping[str, Any]
    rounds: int = 6
    steps: int = 30
    ranks: tuple[int, ...] = (RANK,)
    attack: Attack | None = None
    whole: bool = False


def cells(quick: bool) -> Iterator[Cell]:
    for seed in SEEDS[:1] if quick else SEEDS:
        short = {"rounds": 2, "steps": 2} if quick else {}
        for method, algorithm in MERGING.items():
            yield Cell("merging", "6 rounds of 30 steps", method, seed, algorithm, **short)
            many = short or {"rounds": 2, "steps": 150}
            yield Cell("merging", "2 rounds of 150 steps", method, seed, algorithm, **many)
        for method, algorithm in MIXED_MERGING.items():
            ranks = MIXED[:3] if quick else MIXED
            yield Cell("merging", "ranks 1, 2, 4, 8, 16", method, seed, algorithm, ranks=ranks, **short)
        yield Cell("merging", "6 rounds of 30 steps", "whole model", seed, {"sharing": "whole-model"},
                   whole=True, **short)  # fmt: skip
        for rule in RULES:
            for name, attack in ATTACKS.items():
                for method in ("separate means", "product, rank 4"):
                    algorithm = {**MERGING[method], "weighing": rule, "server": {"max_norm_ratio": math.inf}}
                    setting = f"{rule}, {method}"
                    settings = {"rounds": 4, **short, "attack": attack}
                    yield Cell("attacks", setting, name, seed, algorithm, **settings)


@dataclass(frozen=True)
class Data:
    """What all runs share."""

    size: Size
    base: Mapping[str, torch.Tensor]
    clients: Mapping[str, Any]
    """Training rows of each role."""
    test: tuple[torch.Tensor, torch.Tensor]

    @property
    def model(self) -> nn.Module:
        model = gpt(self.size)
        model.load_state_dict(self.base)
        return model


def prepared(size: Size) -> Data:
    """The first training, without the roles that are clients and in lower case, and the clients' rows."""
    rest, spoken = texts(size)
    parts = {role: split(text, size) for role, text in spoken.items()}
    inputs, targets = (torch.cat(each) for each in zip(*(test for _, test in parts.values()), strict=True))
    base = pretrained(rest.lower(), size).state_dict()
    return Data(size, base, {role: train for role, (train, _) in parts.items()}, (inputs, targets))


def run(data: Data, cell: Cell) -> dict[str, Any]:
    """Bits per character on the test rows of all roles after every round, and what it cost."""
    torch.set_num_threads(1)
    model = data.model
    shared = model if cell.whole else adapted(model, data.size, max(cell.ranks), cell.seed)
    clients = [
        sy.Client(
            role, rows, model=None if len(cell.ranks) == 1 else adapted(model, data.size, rank, cell.seed)
        )
        for (role, rows), rank in zip(data.clients.items(), cell.ranks * len(data.clients), strict=False)
    ]
    training = {**TRAINING, "steps": cell.steps, **({"lr": 1e-3} if cell.whole else {})}
    algorithm = sy.Algorithm(**{"sharing": "adapter", **cell.algorithm, "training": training})
    hostile = sorted(data.clients)[cell.seed % len(data.clients)]
    attack = {} if cell.attack is None else {hostile: cell.attack}
    result = sy.Federation(
        clients, shared, algorithm,
        rounds=cell.rounds, test=data.test, seed=cell.seed, adversaries=attack, engine=Serial(),
    ).run()  # fmt: skip
    weights = [row["weight"] for row in result.clients if row["client"] == hostile]
    last = result.history[-1]
    return {
        "bits": [row["nll"] / math.log(2) for row in result.history],
        "rank_error": [row.get("rank_error") for row in result.history],
        "bytes": last["bytes"],
        "bytes_of_whole_models": last.get("bytes_of_whole_models", last["bytes"]),
        "hostile_weight": statistics.fmean(weights) if attack else None,
    }
