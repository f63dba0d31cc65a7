"""Linear regression with known coefficients, among clients with unequal noise, some with shared samples.

Clients with the same samples make the same errors, so their agreement is no evidence. The covariance of the
clients' least-squares estimates is known exactly.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.store import Source
from steelyard.errors import InputError
from steelyard.seeds import generator

SOURCE = Source(
    name="synthetic-linear",
    about="linear regression, clients of unequal noise, some with common samples",
    licence="none needed: drawn from a seed",
    bundled="steelyard",
)


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """z_j = H_j β + e_j for each client j, all in float64."""

    inputs: Tensor
    """H_j, [J, n, D]; the first rows of the clients in the clique are the shared ones."""
    targets: Tensor
    """z_j, [J, n]."""
    beta: Tensor
    """β, [D]."""
    noise: Tensor
    """Standard deviation σ_j of the entries of e_j, [J]."""
    shared: int
    """The number of rows that the clique shares."""
    covariance: Tensor
    """E[(β̂_j − β)ᵀ(β̂_k − β)] / D of the clients' least-squares estimates, given their inputs, [J, J]. Its
    inverse gives the best weights (generalised least squares)."""


def synthetic_linear(
    *,
    parties: int = 5,
    features: int = 100,
    rows: int = 200,
    noise: tuple[float, ...] = (0.5, 2.0),
    overlap: float = 0.0,
    clique: int = 3,
    test_rows: int = 1000,
    seed: int = 0,
) -> Dataset:
    """Linear regression, `parties` clients of unequal noise as groups; the first `clique` may share samples.

    `noise` is one standard deviation for all clients, one each, or that of the first and of the last client.
    The clients of the clique have a share `overlap` of their rows in common: each has a copy. Test rows have
    no noise, so a model's error on them measures its distance from the true coefficients.
    """
    drawn = linear_problem(parties, features, rows, noise, overlap, clique, seed)
    if test_rows < 1:
        raise InputError(f"data set 'synthetic-linear': test_rows must be at least 1, not {test_rows}.")
    test = _normal((test_rows, features), seed, "test")
    return Dataset(
        SOURCE.name,
        _examples(drawn.inputs.flatten(0, 1), drawn.targets.flatten()),
        _examples(test, test @ drawn.beta),
        (),
        torch.arange(parties).repeat_interleave(rows),
    )


def linear_problem(
    parties: int = 5,
    features: int = 100,
    rows: int = 200,
    noise: tuple[float, ...] = (0.5, 2.0),
    overlap: float = 0.0,
    clique: int = 3,
    seed: int = 0,
) -> LinearProblem:
    """Inputs and β are normal, scaled so that Hβ has variance 1 on average.

    A shared sample has one draw of noise, which each client multiplies by its own level: clients with equal
    levels have exact copies.
    """
    _check(parties, features, rows, overlap, clique)
    shared = round(overlap * rows)
    inputs = _normal((parties, rows, features), seed, "inputs")
    errors = _normal((parties, rows), seed, "noise")
    for values in (inputs, errors):
        values[:clique, :shared] = values[0, :shared].clone()
    beta = _normal((features,), seed, "beta") / features**0.5
    levels = noise_levels(noise, parties)
    targets = inputs @ beta + levels[:, None] * errors
    return LinearProblem(inputs, targets, beta, levels, shared, _covariance(inputs, levels, shared, clique))


def noise_levels(noise: tuple[float, ...], parties: int) -> Tensor:
    """A level for each client: as given, or spaced geometrically from the first to the last of two."""
    if len(noise) not in (1, 2, parties) or min(noise) <= 0:
        raise InputError(
            f"data set 'synthetic-linear': noise should be one, two or {parties} numbers above 0, "
            f"not {list(noise)}."
        )
    if len(noise) == parties:
        return torch.tensor(noise, dtype=torch.float64)
    return torch.logspace(math.log10(noise[0]), math.log10(noise[-1]), parties, dtype=torch.float64)


def _covariance(inputs: Tensor, levels: Tensor, shared: int, clique: int) -> Tensor:
    """β̂_j − β = A_j e_j with A_j = (H_jᵀH_j)⁻¹H_jᵀ; Cov(e_j, e_k) is σ_j σ_k on shared samples, else 0."""
    solvers = torch.linalg.pinv(inputs)  # A_j, [J, D, n]
    common = solvers[:clique, :, :shared].flatten(1)
    products = torch.diag(solvers.square().sum((1, 2)))
    products[:clique, :clique] += (common @ common.T).fill_diagonal_(0)
    return products * levels.outer(levels) / inputs.shape[2]


def _normal(shape: tuple[int, ...], seed: int, purpose: str) -> Tensor:
    return torch.randn(shape, generator=generator(seed, "synthetic", purpose), dtype=torch.float64)


def _examples(inputs: Tensor, targets: Tensor) -> Examples:
    return Examples(inputs.float(), targets.float(), torch.arange(len(targets)))


def _check(parties: int, features: int, rows: int, overlap: float, clique: int) -> None:
    """Raise an InputError if there is no least-squares estimate or no such clique."""
    problem = ""
    if parties < 1 or features < 1:
        problem = f"parties and features must be at least 1, not {parties} and {features}"
    elif rows <= features:
        problem = f"{rows} rows are too few for {features} features: rows must exceed features"
    elif not 0 <= overlap <= 1:
        problem = f"overlap must be between 0 and 1, not {overlap}"
    elif overlap and not 0 <= clique <= parties:
        problem = f"clique must be between 0 and the number of parties, {parties}, not {clique}"
    if problem:
        raise InputError(f"data set 'synthetic-linear': {problem}.")
