"""Data frames of pandas and polars as one matrix and targets, recognised without importing either."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from steelyard.data.array_examples import Examples
from steelyard.errors import InputError, unknown

Target = str | Sequence[str]
T = TypeVar("T")
NAMED = "task.columns"
"""Where a user names the columns of all frames."""


def is_frame(data: Any) -> bool:
    return _kind_of(data)[1] in ("DataFrame", "LazyFrame")


def is_series(data: Any) -> bool:
    return _kind_of(data)[1] in ("Series", "Index")


def from_frame(frame: Any, labels: Tensor | None, target: Target | None, name: str) -> Examples:
    """Examples from a frame: `target` names one of its columns or several, or `labels` are given apart."""
    columns = _columns(frame, name)
    if labels is None:
        chosen = _chosen(target, columns, name)
        labels = _targets_of([columns.pop(each) for each in chosen], chosen, isinstance(target, str), name)
    if len(labels) != len(frame):
        raise InputError(f"{name}: {len(frame)} inputs but {len(labels)} targets.")
    inputs = torch.from_numpy(_matrix(columns, len(frame), name))
    return Examples(inputs, labels, torch.arange(len(labels)), None, double=False, columns=tuple(columns))


def matrix_of(data: Any, name: str) -> Tensor:
    """A frame as a matrix [N, columns], or a series as a vector [N], of float32."""
    if is_frame(data):
        return torch.from_numpy(_matrix(_columns(data, name), len(data), name))
    return torch.from_numpy(_numbers(data, f"column {data.name!r}", name).astype(np.float32))


def targets_of(targets: Any, name: str) -> Tensor:
    """The targets in a series, or in a frame, which has several outputs unless it has one column."""
    if is_series(targets):
        return _targets_of([targets], [str(targets.name)], True, name)
    columns = _columns(targets, name)
    return _targets_of(list(columns.values()), list(columns), len(columns) == 1, name)


def _kind_of(data: Any) -> tuple[str, str]:
    """The library and the class of a frame or series; empty for anything else."""
    if isinstance(data, Tensor | np.ndarray | list | tuple):  # most data, at the least cost
        return "", ""
    for kind in type(data).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("pandas", "polars"):
            return library, kind.__name__
    return "", ""


def are_names(targets: Any) -> bool:
    """Whether targets are names of columns."""
    return isinstance(targets, str) or (
        isinstance(targets, list | tuple) and all(isinstance(each, str) for each in targets)
    )


def _columns(frame: Any, name: str) -> dict[str, Any]:
    """The columns by name, in their order."""
    library, kind = _kind_of(frame)
    if kind == "LazyFrame":
        raise InputError(f"{name}: the frame is lazy; give frame.collect().")
    names = [str(column) for column in frame.columns]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise InputError(f"{name}: two columns are called {twice!r}; rename one of them.")
    if library == "polars":
        return {each: frame.get_column(each) for each in names}
    return {each: frame.iloc[:, place] for place, each in enumerate(names)}


def _chosen(target: Target | None, columns: dict[str, Any], name: str) -> list[str]:
    """The names of the columns with the targets."""
    if target is None:
        raise InputError(
            f"{name}: say which column is the target, (frame, 'its name'), or, if there is "
            "none, give frame.to_numpy()."
        )
    chosen = [target] if isinstance(target, str) else list(target)
    for each in chosen:
        if each not in columns:
            raise unknown("column", each, columns, name)
    if not chosen or len(chosen) == len(columns) or len(set(chosen)) < len(chosen):
        raise InputError(f"{name}: targets {chosen} of columns {list(columns)} leave no inputs; name others.")
    return chosen


def _matrix(columns: dict[str, Any], rows: int, name: str) -> npt.NDArray[np.float32]:
    """Numbers and truth values as one matrix, [rows, columns]."""
    matrix = np.empty((rows, len(columns)), np.float32)
    with np.errstate(over="ignore"):  # numbers that are too large become infinite
        for place, (column, series) in enumerate(columns.items()):
            matrix[:, place] = _numbers(series, f"column {column!r}", name)
    return matrix


def _numbers(series: Any, column: str, name: str, is_target: bool = False) -> npt.NDArray[Any]:
    """The values of a column of numbers; others, and missing values, are refused by the column's name."""
    missing = _count_missing(series)
    if not _is_numeric(series) and missing < len(series):
        library, _ = _kind_of(series)
        encode = "frame.to_dummies(...)" if library == "polars" else "pandas.get_dummies"
        advice = (
            "map the classes to numbers 0, 1, ..."
            if is_target
            else f"encode it as numbers, for example with {encode}, or drop it"
        )
        raise InputError(f"{name}: {column} is not numeric but {_words(series)} ({series.dtype}); {advice}.")
    if missing:
        raise InputError(
            f"{name}: {column} has {missing} missing values of {len(series)}; fill them in or drop the rows."
        )
    values: npt.NDArray[Any] = np.asarray(series.to_numpy())
    return values.astype(np.float64) if values.dtype == object else values  # nullable types and decimals


def _is_numeric(series: Any) -> bool:
    if _kind_of(series)[0] == "polars":
        return bool(series.dtype.is_numeric()) or str(series.dtype) == "Boolean"
    return getattr(series.dtype, "kind", "O") in "biuf"


def _words(series: Any) -> str:
    """What a column holds that is not numeric."""
    dtype = str(series.dtype).lower()
    if dtype.startswith(("categor", "enum")):
        return "categories"
    return "dates or times" if any(word in dtype for word in ("date", "time", "duration")) else "text"


def _count_missing(series: Any) -> int:
    if _kind_of(series)[0] == "pandas":
        return int(series.isna().sum())
    nans = series.is_nan().sum() if series.dtype.is_float() else 0
    return int(series.null_count()) + int(nans or 0)


def _targets_of(series: Sequence[Any], columns: Sequence[str], single: bool, name: str) -> Tensor:
    """One column: class numbers if they are whole or all 0 and 1, else numbers. Several: numbers [N, k]."""
    values = [
        _numbers(each, f"target column {column!r}", name, is_target=True)
        for each, column in zip(series, columns, strict=True)
    ]
    if not single:
        return torch.from_numpy(np.stack(values, 1).astype(np.float32))
    [one] = values
    if one.dtype.kind in "biu" or bool(((one == 0) | (one == 1)).all()):
        return torch.from_numpy(one.astype(np.int64))
    return torch.from_numpy(one.astype(np.float64))


@dataclass(frozen=True)
class FrameForm:
    """What frames that one model learns from have in common."""

    columns: tuple[str, ...]
    """Names of the inputs, in the order of the model's inputs."""
    numbers: bool
    """Whether the targets are numbers: then 0 and 1 of a client are numbers too, not classes."""
    whose: str
    """Where the columns are from, in words."""

    def ordered(self, columns: Sequence[str] | None) -> "FrameForm":
        """The same form with the columns that the user has named, if any."""
        return self if columns is None else replace(self, columns=tuple(columns), whose=NAMED)

    def fit(self, data: T, where: str) -> T:
        """The same data in this form; other columns are refused by name. Data without columns are kept."""
        if not isinstance(data, Examples) or data.columns is None:
            return data
        fitted = data
        if self.numbers and not data.targets.is_floating_point():
            fitted = replace(fitted, targets=data.targets.double())
        if data.columns == self.columns:
            return fitted
        for column in (*self.columns, *data.columns):
            if column not in data.columns:
                raise InputError(
                    f"{where} has no column {column!r}, which {self.whose} has; give all the same columns."
                )
            if column not in self.columns:
                raise InputError(
                    f"{where} has a column {column!r}, which {self.whose} has not; give all the same columns."
                )
        order = [data.columns.index(column) for column in self.columns]
        return replace(fitted, inputs=data.inputs[:, order], columns=self.columns)


def form_of(parts: Sequence[Any], whose: str) -> FrameForm | None:
    """The form of several examples: the columns of the first, and numbers if any has them."""
    frames = [part for part in parts if isinstance(part, Examples) and part.columns is not None]
    if not frames or frames[0].columns is None:
        return None
    numbers = any(part.targets.is_floating_point() for part in frames)
    return FrameForm(frames[0].columns, numbers, whose)
