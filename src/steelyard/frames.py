"""Rows as a data frame of the library that the user has."""

import importlib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

LIBRARIES = ("polars", "pyarrow", "modin")
"""Tried in this order where pandas is not installed."""


def frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame; without pandas, a frame of polars or pyarrow; without these, a dict of lists."""
    table = columns(rows)
    if find_spec("pandas") is not None:
        return importlib.import_module("pandas").DataFrame(table)
    library = next((name for name in LIBRARIES if find_spec(name) is not None), None)
    if library is None or find_spec("narwhals") is None:
        return table
    return importlib.import_module("narwhals").from_dict(table, backend=library).to_native()


def to_pandas(rows: Iterable[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame; an ImportError without pandas."""
    if find_spec("pandas") is None:
        raise ImportError(
            "to_pandas needs pandas: install it (`pip install pandas`), or call `to_frame`, which also makes "
            "frames of polars and pyarrow."
        )
    return importlib.import_module("pandas").DataFrame(columns(rows))


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns of one type each, in the order in which they appear; None where a row has no value."""
    given = list(rows)
    names = dict.fromkeys(name for row in given for name in row)
    return {name: _alike([row.get(name) for row in given]) for name in names}


def _alike(values: list[Any]) -> list[Any]:
    """Values of one type: numbers beside a text become texts, whole numbers beside others become floats."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    kind = str if str in kinds else float
    return [None if value is None else kind(value) for value in values]
