"""One rule in your own loop: plain J×K tensors or arrays in, weights with evidence out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
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
    weigher: Weigher = _rule("rules", Weigher, rule, settings)
    counts = _vector("num_examples", num_examples, len(rows))
    if not bool((counts > 0).all()):
        raise InputError(f"num_examples must be greater than 0, not {counts.tolist()}.")
    ids = tuple(str(position) for position in range(len(rows))) if clients is None else tuple(clients)
    if len(ids) != len(rows) or len(set(ids)) < len(ids):
        raise InputError(f"clients must be {len(rows)} different names, not {list(ids)}.")
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
    combiner: Combiner = _rule("combiners", Combiner, rule, settings)
    if "variance" in combiner.needs and variances is None:
        raise InputError(f"combining rule {rule!r} needs variances.")
    shares = _vector("weights", torch.ones(len(rows)) / len(rows) if weights is None else weights, len(rows))
    spread = None if variances is None else _matrix("variances", variances)
    if spread is not None and spread.shape != rows.shape:
        raise InputError(f"variances have shape {tuple(spread.shape)}, but means have {tuple(rows.shape)}.")
    return combiner.combine(Stack(rows, spread), shares)


def _rule(family: str, base: type, rule: Any, settings: dict[str, Any]) -> Any:
    """A rule by name, with settings; or a rule object, which has its own."""
    if isinstance(rule, str):
        return registry.build(family, {"name": rule, **settings})
    if not isinstance(rule, base):
        raise InputError(f"rule must be a name or a {base.__name__}, not {rule!r}.")
    if settings:
        raise InputError(f"{', '.join(settings)}: set this where {type(rule).__name__} is made.")
    return rule


def _tensor(name: str, values: Any) -> Tensor:
    try:
        if not isinstance(values, Tensor):  # torch takes neither read-only arrays nor negative strides
            values = np.require(values, requirements=["C", "W"])
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers: {error}.") from None


def _matrix(name: str, values: Any) -> Tensor:
    """[J, K] floating point, from a matrix or from a list of J vectors."""
    if isinstance(values, Sequence) and len(values) and not isinstance(values[0], int | float | str):
        rows = [_tensor(name, row).reshape(-1) for row in values]
        if len({len(row) for row in rows}) > 1:
            raise InputError(f"{name} differ in length: {[len(row) for row in rows]}.")
        values = torch.stack(rows)
    matrix = _tensor(name, values)
    if matrix.dim() != 2 or 0 in matrix.shape:
        raise InputError(
            f"{name} must be a matrix with a row for each client, not of shape {tuple(matrix.shape)}."
        )
    broken = (~torch.isfinite(matrix).all(dim=1)).nonzero().flatten().tolist()
    if broken:
        raise InputError(f"{name}: row {broken[0]} is not finite; leave that client out.")
    return matrix if matrix.is_floating_point() else matrix.float()


def _vector(name: str, values: Any, length: int) -> Tensor:
    """[J] float64; equal numbers if nothing is given."""
    vector = torch.ones(length) if values is None else _tensor(name, values)
    if vector.shape != (length,) or not bool(torch.isfinite(vector).all()):
        raise InputError(f"{name} must be {length} finite numbers, not {vector.tolist()}.")
    return vector.double()
