"""One rule in your own loop: plain J×K tensors or arrays in, weights with evidence out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steelyard import registry
from steelyard.aggregation import weigh as apply_weigher
from steelyard.combining import Combiner
from steelyard.errors import InputError
from steelyard.geometry import Geometry
from steelyard.types import Combined, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher


def weigh(
    updates: Any,
    rule: str | Weigher = "samples",
    *,
    num_examples: Any = None,
    clients: Sequence[str] | None = None,
    round: int = 1,
    state: State | None = None,
    **settings: Any,
) -> Weighed:
    """How much does each client count?

    `updates` [J, K] are what the clients sent minus the model they were sent. A rule that learns over rounds
    gives back a `state`: pass it to the next call, with the clients' names if not all take part every time.

    >>> weigh(updates, "samples", num_examples=[10, 30]).weights
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    rows = _matrix("updates", updates)
    weigher = rule if isinstance(rule, Weigher) else registry.build("rules", {"name": rule, **settings})
    counts = _counts(num_examples, len(rows))
    ids = tuple(str(position) for position in range(len(rows))) if clients is None else tuple(clients)
    if len(ids) != len(rows):
        raise InputError(f"{len(ids)} clients are named for {len(rows)} updates.")
    before = weigher.init() if state is None else state
    return apply_weigher(weigher, Geometry(rows), RoundInfo(round, ids, counts), before)


def combine(
    means: Any, weights: Any = None, rule: str | Combiner = "mean", *, variances: Any = None, **settings: Any
) -> Combined:
    """Merge J vectors (or Gaussian posteriors) into one, given weights (default: equal).

    >>> combine([[0.0, 0.0], [4.0, 8.0]], [0.25, 0.75]).mean
    tensor([3., 6.])
    """
    rows = _matrix("means", means)
    combiner = rule if isinstance(rule, Combiner) else registry.build("combiners", {"name": rule, **settings})
    if "variance" in combiner.needs and variances is None:
        raise InputError(f"combining rule {rule!r} needs variances.")
    shares = torch.full((len(rows),), 1 / len(rows)) if weights is None else torch.as_tensor(weights)
    if shares.shape != (len(rows),):
        raise InputError(f"weights have shape {tuple(shares.shape)}, but there are {len(rows)} means.")
    spread = None if variances is None else _matrix("variances", variances)
    if spread is not None and spread.shape != rows.shape:
        raise InputError(f"variances have shape {tuple(spread.shape)}, but means have {tuple(rows.shape)}.")
    return combiner.combine(Stack(rows, spread), shares.double())


def _matrix(name: str, values: Any) -> Tensor:
    """[J, K] floating point, from a matrix or from a list of J vectors."""
    if isinstance(values, Sequence) and len(values) and not isinstance(values[0], int | float):
        rows = [torch.as_tensor(row).reshape(-1) for row in values]
        if len({len(row) for row in rows}) > 1:
            raise InputError(f"{name} differ in length: {[len(row) for row in rows]}.")
        values = torch.stack(rows)
    matrix = torch.as_tensor(values)
    if matrix.dim() != 2 or 0 in matrix.shape:
        raise InputError(
            f"{name} must be a matrix with a row for each client, not of shape {tuple(matrix.shape)}."
        )
    matrix = matrix if matrix.is_floating_point() else matrix.float()
    for position in (~torch.isfinite(matrix).all(dim=1)).nonzero()[:1].flatten().tolist():
        raise InputError(f"{name}: row {position} is not finite; leave that client out.")
    return matrix.detach()


def _counts(num_examples: Any, rows: int) -> Tensor:
    counts = torch.ones(rows) if num_examples is None else torch.as_tensor(num_examples)
    if counts.shape != (rows,) or not bool((counts > 0).all()):
        raise InputError(f"num_examples must be {rows} numbers greater than 0, not {counts.tolist()}.")
    return counts.double()
