"""The runs of each study: a cell is one run.

The rule and its settings were tuned on seeds 100 to 107. Earlier forms of the rule were measured on seeds 0
to 2 and 20 to 22. Seeds 30 to 32 were first used after everything was decided.
"""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from steelyard.specs.schema import Spec, load_spec
from steelyard.studies.cells import Cell
from steelyard.types import EMPTY

SEEDS = (0, 1, 2)
FRESH_SEEDS = (30, 31, 32)
Changes = Mapping[str, Any]


class Method(NamedTuple):
    """A preset, and overrides."""

    preset: str
    changes: Changes = EMPTY


SHARDS: Changes = {  # the report's setting
    "model": "light-cnn",
    "clients_per_round": 10,
    "data": {
        "dataset": "mnist",
        "clients": 20,
        "partition": {"name": "shards", "shards": 300, "per_client": 2},
    },
    "training": {"lr": 0.05, "momentum": 0.9, "batch_size": 64, "epochs": 1},
}
DIGITS: Changes = {  # a small version, for studies of many runs
    "model": "mlp",
    "data.dataset": "digits",
    "data.partition": {"name": "shards", "shards": 40, "per_client": 2},
    "training.batch_size": 8,
}
SAME_STEPS: Changes = {"training.steps": 7}  # as many as one epoch on two shards

FEDAVG, FEDBAC = Method("fedavg"), Method("fedbac")
NO_REGULARISER = Method("fedbac-no-regularizer")
METHODS = {
    "FedAvg": FEDAVG,
    "FedProx": Method("fedprox"),
    "FedBaC, no regulariser": NO_REGULARISER,
    "FedBaC, literal": Method("fedbac-literal"),
    "FedBaC, stabilised": FEDBAC,
}


def concord(**settings: float) -> Method:
    return Method("fedbac", {"weighing": {"name": "concord", **settings}})


def consensus(**settings: Any) -> Method:
    soft = {"gate": "soft", "momentum": "samples"}
    return Method("fedavg", {"weighing": {"name": "consensus", **soft, **settings}})


def aligned(form: str, strength: float) -> Method:
    return Method("fedbac", {"objective": {"name": "alignment", "form": form, "strength": strength}})


ABLATION = {
    "FedAvg": FEDAVG,
    "stabilised": FEDBAC,
    "without averaging": Method("fedbac", {"server.average": 1}),
    "without the gate": concord(tolerance=inf),
    "without memory (one round)": concord(memory=0.0),
    "without the bound along the others": concord(reach=inf),
    "without the bound on lengths": Method("fedbac", {"server.clip": None}),
    "published consensus alone": Method("consensus-only"),
    "published reliability alone": Method("reliability-only"),
    "with the regulariser (update, 0.01)": aligned("update", 0.01),
    "with server momentum 0.5": Method("fedbac", {"server.momentum": 0.5, "server.lr": 0.5}),
}
ATTACKS = {
    "no attack": {},
    "sign-flip": {"name": "sign-flip"},
    "Gaussian": {"name": "gaussian"},
    "aligned, oversized": {"name": "oversized"},
    "on–off": {"name": "on-off"},
}
RULES = {
    "FedAvg": FEDAVG,
    "FedBaC, literal": NO_REGULARISER,
    "FedBaC, stabilised": FEDBAC,
    "IVAR-VB": Method("fedavg", {"weighing": "ivar-vb"}),
}
REGIMES: Mapping[str, Changes] = {
    "iid": {**SAME_STEPS, "data.partition": "iid"},
    "Dirichlet 0.1": {**SAME_STEPS, "data.partition": {"name": "dirichlet", "alpha": 0.1}},
    "Dirichlet 0.5": {**SAME_STEPS, "data.partition": {"name": "dirichlet", "alpha": 0.5}},
    "covariate shift": {
        **SAME_STEPS,
        "data.partition": "iid",
        "data.shift": {"name": "rotation", "degrees": 60.0},
    },
    "100 clients": {"data.clients": 100},
    "CIFAR-10, Dirichlet 0.5": {
        "training.steps": 20,
        "data.dataset": "cifar10",
        "data.partition": {"name": "dirichlet", "alpha": 0.5},
    },
}
SWEEPS = {
    "β": {str(value): consensus(beta=value) for value in (0.0, 0.5, 0.9, 0.99)},
    "γ": {str(value): consensus(gamma=value) for value in (0.5, 1.0, 2.0, 4.0)},
    "α": {str(value): consensus(alpha=value) for value in (0.0, 1.0, 10.0, 100.0)},
    "H": {str(value): consensus(window=value) for value in (2, 5, 20)},
    "λ, update": {f"{value:g}": aligned("update", value) for value in (1e-4, 1e-2, 1e-1)},
    "λ, gradient": {f"{value:g}": aligned("gradient", value) for value in (1e-4, 1e-2, 1e-1)},
    "λ, descent": {f"{value:g}": aligned("descent", value) for value in (1e-4, 1e-2, 1e-1)},
    "tolerance": {str(value): concord(tolerance=value) for value in (0.25, 0.5, 1.0)},
    "memory": {str(value): concord(memory=value) for value in (0.8, 0.9, 0.97, 1.0)},
}


def cells(quick: bool) -> Iterator[Cell]:
    """All runs, the most important first. Quick: one seed, small data, few rounds."""
    for full in _cells(quick):
        yield full._replace(spec=small(full.spec)) if quick else full


def small(spec: Spec) -> Spec:
    """The same on digits, for --quick; shards are so large that a client makes several steps in a round."""
    shards = {"data.partition.shards": 2 * spec.data.clients}
    changes = {"data.dataset": "digits", "model": "mlp", "training.batch_size": 8}
    return load_spec(spec.model_dump(), changes | (shards if spec.data.partition["name"] == "shards" else {}))


def data_set(spec: Spec) -> str:
    """The data set of a spec as titles name it."""
    name = str(spec.data.dataset["name"])
    return {"mnist": "MNIST", "cifar10": "CIFAR-10"}.get(name, name)


def _cells(quick: bool) -> Iterator[Cell]:
    seeds = SEEDS[:1] if quick else SEEDS
    long, short = (10, 6) if quick else (200, 50)
    for seed in seeds:
        for name, method in METHODS.items():
            yield cell("paper", "MNIST, shards", name, method, seed, {"rounds": long})
    for seed in FRESH_SEEDS[: len(seeds)]:
        for name in ("FedAvg", "FedBaC, stabilised"):
            yield cell("fresh", "MNIST, shards", name, METHODS[name], seed, {"rounds": long})
    for seed in seeds:
        for attack, choice in ATTACKS.items():
            for name, method in RULES.items():
                yield cell("attacks", attack, name, method, seed, _rarely_evaluated(short) | under(choice))
    for seed in seeds[:2]:
        for regime, changes in REGIMES.items():
            for name in ("FedAvg", "FedBaC, stabilised"):
                yield cell("regimes", regime, name, RULES[name], seed, _rarely_evaluated(short) | changes)
    digits = {**DIGITS, "rounds": 5 if quick else 100}
    for seed in seeds:
        for attack in ("no attack", "sign-flip", "aligned, oversized"):
            for name, method in ABLATION.items():
                yield cell("ablation", attack, name, method, seed, digits | under(ATTACKS[attack]))
        for name in ("FedAvg", "stabilised", "without the bound on lengths"):
            real = _rarely_evaluated(short) | under(ATTACKS["sign-flip"])
            yield cell("ablation", "sign-flip, MNIST", name, ABLATION[name], seed, real)
    for seed in seeds[:1]:
        for setting, methods in SWEEPS.items():
            for name, method in methods.items():
                yield cell("sweeps", setting, name, method, seed, digits)


def _rarely_evaluated(rounds: int) -> dict[str, Any]:
    return {"rounds": rounds, "evaluate_every": min(5, rounds)}


def under(attack: Changes) -> dict[str, Any]:
    """Six of the twenty clients attack. The server does not screen lengths: the rule is on its own."""
    hostile = {"adversaries": {"count": 6, "attack": attack}, "server.max_norm_ratio": inf}
    return hostile if attack else {}


def cell(study: str, setting: str, name: str, method: Method, seed: int, changes: Changes) -> Cell:
    base = {"preset": method.preset, **_tables(SHARDS)}
    spec = load_spec(base, {"seed": seed, **changes, **method.changes})
    return Cell(study, setting, name, seed, spec)


def _tables(changes: Changes) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in changes.items()}
