"""Apply one rule in your own training loop: `weigh` and `combine` on plain J×K tensors, arrays or files."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steelyard.combining import Combiner, ProductCombiner
from steelyard.components import Choice, as_choice, component
from steelyard.errors import InputError
from steelyard.server.aggregation import weigh as apply_weigher
from steelyard.server.lengths import ordered, usual_norm
from steelyard.server.reply_screening import MAX_MAGNITUDE
from steelyard.threads import on_one_thread
from steelyard.types import Combined, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.reading import Updates, in_memory

MAX_SUM_ERROR = 1e-4  # weights may be the float32 result of a division
PART_BYTES = 16 << 20  # size of the parts in which a file is combined


@on_one_thread
def weigh(
    updates: Any,
    rule: Choice | Weigher = "samples",
    *,
    num_examples: Any = None,
    clients: Sequence[str] | None = None,
    round: int = 1,
    state: State | None = None,
    max_norm_ratio: float = 100.0,
    **settings: Any,
) -> Weighed:
    """How much each client's update counts, with the evidence for it.

    `updates` [J, K] are the clients' models minus the model they started from: a matrix, a list of vectors or
    an `np.memmap`, which may be larger than memory. They are not copied. Some rules remember earlier rounds:
    pass the returned `state` to the next call, and `clients` if not all take part in every round. An update
    longer than `max_norm_ratio` times the median norm has weight 0, and its evidence `too_long` is 1;
    `inf` turns this off. Pass the result to `combine`: some rules also shorten updates (`Weighed.scale`).

    >>> weigh(updates, "samples", num_examples=[10, 30]).weights
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    checked = _updates("updates", updates)
    weigher: Weigher = _rule("weighing", Weigher, rule, settings)
    geometry, count = Geometry(checked, paired=weigher.needs_products), len(checked)
    _check("updates", checked, (~(geometry.norms <= MAX_MAGNITUDE)).nonzero().flatten().tolist())
    counts = _vector("num_examples", num_examples, count)
    if not bool((counts > 0).all()):
        raise InputError(f"num_examples must be greater than 0, not {counts.tolist()}.")
    ids = tuple(str(position) for position in range(count)) if clients is None else tuple(clients)
    if len(ids) != count or len(set(ids)) < len(ids):
        raise InputError(f"clients must be {count} different names, not {list(ids)}.")
    weigher.check(count)
    before = weigher.init() if state is None else state
    longest = max_norm_ratio * usual_norm(ordered(geometry.norms), None)
    kept = (geometry.norms <= longest).nonzero().flatten()
    if len(kept) == count:
        return apply_weigher(weigher, geometry, RoundInfo(round, ids, counts), before)
    rest = Geometry([checked[row] for row in kept.tolist()])
    info = RoundInfo(round, tuple(ids[row] for row in kept.tolist()), counts[kept])
    return _spread(apply_weigher(weigher, rest, info, before), kept, count)


def _spread(weighed: Weighed, kept: Tensor, count: int) -> Weighed:
    """A result for some of the rows, as one for all `count`; the others were too long."""

    def whole(values: Tensor, other: float) -> Tensor:
        return torch.full((count,), other, dtype=torch.float64).index_copy(0, kept, values.double())

    evidence = {
        name: whole(value, math.nan) if value.dim() else value for name, value in weighed.evidence.items()
    }
    evidence["too_long"] = whole(torch.zeros(len(kept)), 1.0)
    scale = None if weighed.scale is None else whole(weighed.scale, 1.0)
    return Weighed(whole(weighed.weights, 0.0), weighed.state, evidence, scale)


def combine(
    means: Any,
    weights: Any = None,
    rule: Choice | Combiner = "mean",
    *,
    variances: Any = None,
    **settings: Any,
) -> Combined:
    """Merge J vectors [J, K], or Gaussian posteriors, into one, given weights (default: equal).

    `weights` are [J] numbers or the result of `weigh`, whose factors on the updates are then applied. An
    `np.memmap` is read and merged in parts that fit in memory.

    >>> combine([[0.0, 0.0], [4.0, 8.0]], [0.25, 0.75]).mean
    tensor([3., 6.])
    """
    mean_rows = _matrix("means", means)
    count = len(mean_rows)
    combiner: Combiner = _rule("combining", Combiner, rule, settings)
    if isinstance(combiner, ProductCombiner):
        raise InputError(
            f"combining rule {rule!r} needs the places of the factors: call "
            "steelyard.combining.LowRank().merge with steelyard.sharing.Adapter().layout(model).pairs."
        )
    if "variance" in combiner.needs and variances is None:
        raise InputError(f"combining rule {rule!r} needs variances.")
    scale = weights.scale if isinstance(weights, Weighed) else None
    weights = weights.weights if isinstance(weights, Weighed) else weights
    shares = _vector("weights", torch.ones(count) / count if weights is None else weights, count)
    if not math.isclose(total := float(shares.sum()), 1, abs_tol=MAX_SUM_ERROR):
        raise InputError(f"weights must sum to 1, not {total:g}: divide them by their sum.")
    variance_rows = None if variances is None else _matrix("variances", variances)
    if variance_rows is not None and variance_rows.shape != mean_rows.shape:
        given, wanted = tuple(variance_rows.shape), tuple(mean_rows.shape)
        raise InputError(f"variances have shape {given}, but means have {wanted}.")
    if variance_rows is not None and bool((in_memory(variance_rows) < 0).any()):
        raise InputError("variances must not be negative.")
    if isinstance(mean_rows, Tensor) and not isinstance(variance_rows, np.memmap):
        return combiner.combine_scaled(Stack(mean_rows, variance_rows), shares, scale)
    return _by_parts(combiner, mean_rows, variance_rows, shares, scale)


def _by_parts(
    combiner: Combiner,
    means: Tensor | np.memmap,
    variances: Tensor | np.memmap | None,
    weights: Tensor,
    scale: Tensor | None,
) -> Combined:
    """Combine some coordinates at a time. Combiners treat each coordinate separately, so parts are exact."""
    size, width = means.shape[1], max(1, PART_BYTES // (8 * len(means)))
    mean, variance = [], []
    for start in range(0, size, width):
        columns = slice(start, start + width)
        variance_part = None if variances is None else in_memory(variances[:, columns])
        part = Stack(in_memory(means[:, columns]), variance_part)
        combined = combiner.combine_scaled(part, weights, scale)
        mean.append(combined.mean)
        if combined.variance is not None:
            variance.append(combined.variance)
    return Combined(torch.cat(mean), torch.cat(variance) if variance else None)


def _rule(family: str, base: type, rule: Any, settings: dict[str, Any]) -> Any:
    """A rule by name and settings, or a rule object, which has its own settings."""
    if settings and isinstance(rule, base):
        raise InputError(f"{', '.join(settings)}: pass this to {type(rule).__name__}(...) instead.")
    named = {**as_choice("rule", rule), **settings} if settings else rule
    return component("rule", family, base, named)


def _tensor(name: str, values: Any) -> Tensor:
    try:
        if not isinstance(values, Tensor):  # torch rejects read-only arrays and negative strides
            values = np.require(values, requirements=["C", "W"])
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers: {error}.") from None


def _updates(name: str, values: Any) -> Updates:
    """[J, K] floating point in the form given: a matrix, J vectors or a file."""
    if isinstance(values, np.memmap):
        if values.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(f"{name}: a file must contain float32 or float64, not {values.dtype}.")
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
    """[J, K] floating point as one matrix, in memory or in a file, with all values in range."""
    rows = _updates(name, values)
    matrix = rows if isinstance(rows, Tensor | np.memmap) else in_memory(rows)
    if isinstance(matrix, np.memmap) or not _bounded(matrix):
        _check(name, matrix, range(len(matrix)))
    return matrix


def _check(name: str, rows: Updates, numbers: Iterable[int]) -> None:
    """Raise if one of these rows has a value that the server would reject."""
    for number in numbers:
        if not _bounded(in_memory(rows[number : number + 1])):
            raise InputError(
                f"{name}: row {number} is not finite, or beyond {MAX_MAGNITUDE:g}; leave that client out."
            )


def _bounded(values: Tensor) -> bool:
    smallest, largest = torch.aminmax(values)
    return float(smallest) >= -MAX_MAGNITUDE and float(largest) <= MAX_MAGNITUDE


def _floating(values: Tensor) -> Tensor:
    return values if values.is_floating_point() else values.float()


def _vector(name: str, values: Any, length: int) -> Tensor:
    """[J] float64; ones if None is given."""
    vector = torch.ones(length) if values is None else _tensor(name, values)
    if vector.shape != (length,) or not bool(torch.isfinite(vector).all()):
        raise InputError(f"{name} must be {length} finite numbers, not {vector.tolist()}.")
    return vector.double()
