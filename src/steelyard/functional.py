"""One rule in your own loop: plain J×K tensors, arrays or files in, weights with evidence out."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steelyard.combining import Combiner
from steelyard.errors import InputError
from steelyard.server.aggregation import weigh as apply_weigher
from steelyard.server.screening import MAX_MAGNITUDE
from steelyard.specs import registry
from steelyard.types import Combined, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry, Rows, in_memory

PART_BYTES = 16 << 20  # of a file that are combined at a time


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
    A matrix, a list of vectors or an `np.memmap`, which may be larger than memory: none of them is copied.

    >>> weigh(updates, "samples", num_examples=[10, 30]).weights
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    rows = _rows("updates", updates)
    geometry = Geometry(rows)
    _check("updates", rows, (~(geometry.norms <= MAX_MAGNITUDE)).nonzero().flatten().tolist())
    weigher: Weigher = _rule("weighing", Weigher, rule, settings)
    counts = _vector("num_examples", num_examples, len(rows))
    if not bool((counts > 0).all()):
        raise InputError(f"num_examples must be greater than 0, not {counts.tolist()}.")
    ids = tuple(str(position) for position in range(len(rows))) if clients is None else tuple(clients)
    if len(ids) != len(rows) or len(set(ids)) < len(ids):
        raise InputError(f"clients must be {len(rows)} different names, not {list(ids)}.")
    before = weigher.init() if state is None else state
    return apply_weigher(weigher, geometry, RoundInfo(round, ids, counts), before)


def combine(
    means: Any, weights: Any = None, rule: str | Combiner = "mean", *, variances: Any = None, **settings: Any
) -> Combined:
    """Merge J vectors (or Gaussian posteriors) into one, given weights (default: equal).

    An `np.memmap` is read and merged some coordinates after the other.

    >>> combine([[0.0, 0.0], [4.0, 8.0]], [0.25, 0.75]).mean
    tensor([3., 6.])
    """
    rows = _matrix("means", means)
    combiner: Combiner = _rule("combining", Combiner, rule, settings)
    if "variance" in combiner.needs and variances is None:
        raise InputError(f"combining rule {rule!r} needs variances.")
    shares = _vector("weights", torch.ones(len(rows)) / len(rows) if weights is None else weights, len(rows))
    spread = None if variances is None else _matrix("variances", variances)
    if spread is not None and spread.shape != rows.shape:
        raise InputError(f"variances have shape {tuple(spread.shape)}, but means have {tuple(rows.shape)}.")
    if spread is not None and bool((in_memory(spread) < 0).any()):
        raise InputError("variances must not be negative.")
    if isinstance(rows, Tensor) and not isinstance(spread, np.memmap):
        return combiner.combine(Stack(rows, spread), shares)
    return _by_parts(combiner, rows, spread, shares)


def _by_parts(
    combiner: Combiner, rows: Tensor | np.memmap, spread: Tensor | np.memmap | None, shares: Tensor
) -> Combined:
    """Combining looks at one coordinate at a time, so it may be done on some of them after the other."""
    size, width = rows.shape[1], max(1, PART_BYTES // (8 * len(rows)))
    mean, variance = [], []
    for start in range(0, size, width):
        columns = slice(start, start + width)
        part = Stack(in_memory(rows[:, columns]), None if spread is None else in_memory(spread[:, columns]))
        combined = combiner.combine(part, shares)
        mean.append(combined.mean)
        if combined.variance is not None:
            variance.append(combined.variance)
    return Combined(torch.cat(mean), torch.cat(variance) if variance else None)


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


def _rows(name: str, values: Any) -> Rows:
    """[J, K] floating point as it comes: a matrix, J vectors or a file."""
    if isinstance(values, np.memmap):
        if values.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(f"{name}: a file must hold float32 or float64, not {values.dtype}.")
        rows: Tensor | np.memmap = values
    elif isinstance(values, Sequence) and len(values) and not isinstance(values[0], int | float | str):
        vectors = [_floating(_tensor(name, row).reshape(-1)) for row in values]
        if len({len(row) for row in vectors}) > 1:
            raise InputError(f"{name} differ in length: {[len(row) for row in vectors]}.")
        if len(vectors[0]):
            return vectors
        rows = torch.stack(vectors)
    else:
        rows = _floating(_tensor(name, values))
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(
            f"{name} must be a matrix with a row for each client, not of shape {tuple(rows.shape)}."
        )
    return rows


def _matrix(name: str, values: Any) -> Tensor | np.memmap:
    """[J, K] floating point that can be used, in memory or in a file."""
    rows = _rows(name, values)
    matrix = rows if isinstance(rows, Tensor | np.memmap) else torch.stack(list(rows))
    if isinstance(matrix, np.memmap) or not _bounded(matrix):
        _check(name, matrix, range(len(matrix)))
    return matrix


def _check(name: str, rows: Rows, suspects: Iterable[int]) -> None:
    """Refuse what the server would. A row whose norm is within the bound is no suspect."""
    for number in suspects:
        if not _bounded(in_memory(rows[number : number + 1])):
            raise InputError(
                f"{name}: row {number} is not finite, or beyond {MAX_MAGNITUDE:g}; leave that client out."
            )


def _bounded(values: Tensor) -> bool:
    least, most = torch.aminmax(values)
    return float(least) >= -MAX_MAGNITUDE and float(most) <= MAX_MAGNITUDE


def _floating(values: Tensor) -> Tensor:
    return values if values.is_floating_point() else values.float()


def _vector(name: str, values: Any, length: int) -> Tensor:
    """[J] float64; equal numbers if nothing is given."""
    vector = torch.ones(length) if values is None else _tensor(name, values)
    if vector.shape != (length,) or not bool(torch.isfinite(vector).all()):
        raise InputError(f"{name} must be {length} finite numbers, not {vector.tolist()}.")
    return vector.double()
