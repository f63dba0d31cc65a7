"""The runs of each study: a cell is one run.

The recipe `chfl` was tuned on seeds 100 to 109. The reported seeds were not used before.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from steelyard.specs.schema import load_spec
from steelyard.studies.cells import Cell

Changes = Mapping[str, Any]
TABULAR_SEEDS = tuple(range(10))
DIGIT_SEEDS = tuple(range(5))
TABLES = ("adult", "hcc", "bcd", "ilpd")
PARTITIONS: Mapping[str, Changes] = {
    "iid": {"name": "iid"},
    "Dirichlet 0.5": {"name": "dirichlet", "alpha": 0.5, "min_size": 8},
}
TABULAR: Changes = {
    "rounds": 40,
    "model": "random-mlp",
    "data.clients": 5,
    "training": {"lr": 0.05, "momentum": 0.9, "batch_size": 32, "steps": 20},
    "evaluate_every": 4,
}
DIGIT: Changes = {
    "rounds": 20,
    "model": "assorted",
    "data.clients": 6,
    "data.dataset": {"name": "digit-domains", "size": 1000, "test": 500},
    "training": {"lr": 0.03, "momentum": 0.9, "batch_size": 16},
    "evaluate_every": 4,
}
PIXELS: Changes = {**TABULAR, "data.dataset": "digit-pixels", "rounds": 30, "evaluate_every": 5}
SMALL: Changes = {  # for --quick
    "rounds": 3,
    "data.clients": 3,
    "data.dataset": "digits",
    "model": "mlp",
}


def head(adopt: bool, common: bool = True, **objective: Any) -> Changes:
    return {
        "sharing": {"name": "head", "adopt": adopt, "common": common},
        "objective": objective or {"name": "cross-entropy"},
    }


def taught(common: bool = False, name: str = "distillation", **settings: Any) -> Changes:
    return head(False, common, name=name, **settings)


def literal(clients: int) -> Changes:
    """KD as in the paper: the sum of the heads, and a temperature for the teacher only."""
    return taught(literal=True, scale=float(clients))


METHODS: Mapping[str, Changes] = {
    "SOLO": head(False, common=False),
    "AVG": head(True),
    "AVGKD": head(True, name="distillation"),
    "KD": taught(),
}
BALANCED: Changes = {"name": "cross-entropy", "balance": 0.5}
CHFL: Changes = head(True, **BALANCED)
CONTROLS: Mapping[str, Changes] = {
    "SOLO, common head": head(False),
    "SOLO, balanced": head(False, common=False, **BALANCED),
    "KD, scrambled teacher": taught(name="controls:Scrambled"),
    "KD, self-taught": taught(name="controls:SelfTaught"),
}
POISON: Changes = {
    "adversaries": {"count": 1, "attack": {"name": "gaussian", "scale": 10.0}},
    "server.max_norm_ratio": math.inf,  # the rules alone, without the server's screen of lengths
}
RULES = ("samples", "ivar-vb", "geometric-median", "majority")


def cells(quick: bool) -> Iterator[Cell]:
    """All runs, the most important first. Quick: one seed, small data, few rounds."""
    for table in TABLES[2:3] if quick else TABLES:
        for seed in TABULAR_SEEDS[:1] if quick else TABULAR_SEEDS:
            yield from _rows(table.upper(), {**TABULAR, "data.dataset": table}, seed, quick)
    for seed in DIGIT_SEEDS[:1] if quick else DIGIT_SEEDS:
        yield from _rows("DIGIT", DIGIT, seed, quick)
        yield from _small(seed, quick)
        yield from _teaching(seed, quick)
        yield from _clients(seed, quick)
        yield from _poison(seed, quick)


def _rows(name: str, base: Changes, seed: int, quick: bool) -> Iterator[Cell]:
    """Both rows of Table 1 for one data set, with control experiments."""
    for partition, choice in PARTITIONS.items():
        setting = {**base, "data.partition": choice}
        clients = int(base["data.clients"])
        methods = {**METHODS, "KD, literal": literal(clients), **CONTROLS, "chfl": CHFL}
        for method, changes in methods.items():
            yield cell("table", f"{name}, {partition}", method, seed, setting, changes, quick)


def _small(seed: int, quick: bool) -> Iterator[Cell]:
    """Clients with few examples, and few or none of some of the ten classes."""
    for setting, changes in {
        "135 images each": {"data.clients": 10, "data.partition": PARTITIONS["iid"]},
        "45 images each": {"data.clients": 30, "data.partition": PARTITIONS["iid"]},
        "135 images, Dirichlet 0.5": {"data.clients": 10, "data.partition": PARTITIONS["Dirichlet 0.5"]},
        "135 images, 5 classes each": {
            "data.clients": 10,
            "data.partition": {"name": "classes", "per_client": 5},
        },
    }.items():
        for name, method in {
            "SOLO": METHODS["SOLO"],
            "SOLO, balanced": CONTROLS["SOLO, balanced"],
            "AVG": METHODS["AVG"],
            "KD": METHODS["KD"],
            "chfl": CHFL,
        }.items():
            yield cell("small", setting, name, seed, {**PIXELS, **changes}, method, quick)


def _teaching(seed: int, quick: bool) -> Iterator[Cell]:
    """Settings of the distillation: α, β, and the sum or the mean of the heads."""
    base = {**PIXELS, "data.clients": 10, "data.partition": PARTITIONS["iid"]}
    for name, method in {
        "SOLO": METHODS["SOLO"],
        "α 0.1": taught(alpha=0.1),
        "α 0.5, β 5, mean": taught(),
        "α 2": taught(alpha=2.0),
        "β 0": taught(beta=0.0),
        "β 20": taught(beta=20.0),
        "scrambled": CONTROLS["KD, scrambled teacher"],
        "sum": taught(scale=10.0),
        "sum, literal": literal(10),
    }.items():
        yield cell("teaching", "135 images each", name, seed, base, method, quick)


def _clients(seed: int, quick: bool) -> Iterator[Cell]:
    """The same images, split among 3 to 30 clients."""
    for clients in (3, 5, 10, 30):
        base = {**PIXELS, "data.clients": clients, "data.partition": PARTITIONS["iid"]}
        for name, method in {"SOLO": METHODS["SOLO"], "KD": METHODS["KD"], "chfl": CHFL}.items():
            yield cell("clients", f"{clients} clients", name, seed, base, method, quick)


def _poison(seed: int, quick: bool) -> Iterator[Cell]:
    """One of ten clients sends noise as its head."""
    base = {**PIXELS, "data.clients": 10, "data.partition": PARTITIONS["iid"]}
    for rule in RULES:
        for attack, hostile in {"clean": {}, "one poisoned head": POISON}.items():
            yield cell("poison", rule, attack, seed, base, {**CHFL, "weighing": rule, **hostile}, quick)


def cell(
    study: str, setting: str, method: str, seed: int, base: Changes, changes: Changes, quick: bool
) -> Cell:
    small = {key: value for key, value in SMALL.items() if key != "data.clients" or "poison" not in study}
    merged = {**base, **changes}
    return Cell(
        study, setting, method, seed, load_spec("solo", {**merged, **(small if quick else {}), "seed": seed})
    )
