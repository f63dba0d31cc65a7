"""(a) Linear regression with unequal noise: squared error of the merged estimate under each rule.

Every client sends its least-squares estimate. The oracle knows the covariance of their errors and weighs by
generalised least squares.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import steelyard as sy
from steelyard.data.synthetic import LinearProblem, linear_problem

SETTINGS: dict[str, dict[str, Any]] = {
    "no overlap": {"parties": 7, "noise": (0.5, 2.0)},
    "clique of 3, 80 % shared": {
        "parties": 7,
        "noise": (1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0),
        "overlap": 0.8,
    },
    "clique of 3, 90 % shared": {
        "parties": 7,
        "noise": (1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0),
        "overlap": 0.9,
    },
}
CLIQUE = SETTINGS["clique of 3, 90 % shared"]
RULES = {
    "uniform": "uniform",
    "geometric median": "geometric-median",
    "IVAR-VB": "ivar-vb",
    "IVAR-MLE": "ivar-mle",
    "ICOV-VB": "icov-vb",
    "ICOV-MLE": "icov-mle",
    "ICOV-EM": "icov-em",
    "majority": "majority",
}


def one_round(draws: Sequence[int]) -> dict[str, dict[str, float]]:
    """100 × squared error of each rule in each setting: the mean over the draws."""
    table: dict[str, dict[str, float]] = {}
    for name, settings in SETTINGS.items():
        errors: dict[str, list[float]] = {}
        for seed in draws:
            parties = linear_problem(seed=seed, **settings)
            estimates = least_squares(parties.inputs, parties.targets)
            for rule, merged in merge(estimates, parties).items():
                errors.setdefault(rule, []).append(100 * float((merged - parties.beta).square().sum()))
        table[name] = {rule: sum(values) / len(values) for rule, values in errors.items()}
    return table


def over_rounds(draws: Sequence[int], participation: float, rows: int, rounds: int = 10) -> dict[str, float]:
    """100 × squared error in the clique's setting over many rounds: the mean over all but the first.

    Each round has `rows` new rows per client, and only the share `participation` of the clients. Rules
    remember clients by name.
    """
    errors: dict[str, list[float]] = {}
    for seed in draws:
        states: dict[str, Any] = {}
        order = torch.Generator().manual_seed(seed)
        for number in range(1, rounds + 1):
            drawn = linear_problem(rows=rows, seed=1000 * seed + number, **CLIQUE)
            present = torch.randperm(7, generator=order)[: max(2, round(7 * participation))].sort().values
            estimates = least_squares(drawn.inputs[present], drawn.targets[present])
            names = [f"party-{place}" for place in present.tolist()]
            for rule, choice in RULES.items():
                weighed = sy.weigh(estimates, choice, clients=names, round=number, state=states.get(rule))
                states[rule] = weighed.state
                if number > 1:
                    error = (weighed.weights @ estimates - drawn.beta).square().sum()
                    errors.setdefault(rule, []).append(100 * float(error))
            if number > 1:
                covariance = drawn.covariance[present][:, present]
                error = (gls(covariance) @ estimates - drawn.beta).square().sum()
                errors.setdefault("oracle", []).append(100 * float(error))
                middle = sy.combine(estimates, rule="median").mean
                errors.setdefault("coordinate median", []).append(
                    100 * float((middle - drawn.beta).square().sum())
                )
    return {rule: sum(values) / len(values) for rule, values in errors.items()}


def merge(estimates: Tensor, parties: LinearProblem) -> dict[str, Tensor]:
    merged = {name: sy.weigh(estimates, rule).weights @ estimates for name, rule in RULES.items()}
    merged["coordinate median"] = sy.combine(estimates, rule="median").mean
    merged["oracle"] = gls(parties.covariance) @ estimates
    return merged


def least_squares(inputs: Tensor, targets: Tensor) -> Tensor:
    return torch.linalg.lstsq(inputs, targets.unsqueeze(2)).solution.squeeze(2)


def gls(covariance: Tensor) -> Tensor:
    solved = torch.linalg.solve(covariance, torch.ones_like(covariance[0]))
    return solved / solved.sum()
