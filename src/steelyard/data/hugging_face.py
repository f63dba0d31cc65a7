"""Data sets of Hugging Face's `datasets`, recognised without importing it."""

from collections.abc import Iterable
from typing import Any

from steelyard.errors import InputError, unknown

TEXT = ("string", "large_string")


def is_hugging_face(data: Any) -> bool:
    """Whether it is a `datasets.Dataset` or `datasets.IterableDataset`."""
    return hasattr(data, "with_format") and hasattr(data, "features")


def as_torch(data: Any, target: str | None, name: str) -> Any:
    """The same data set with tensors in its items. One that transforms its items itself stays as it is.

    Columns of text are refused by name.
    """
    how = getattr(data, "format", None) or {}
    if how.get("type") == "custom":
        return data
    columns = list(how.get("columns") or data.features or [])
    if target is not None and data.features and target not in columns:
        raise unknown("target", target, columns, name)
    for column in columns:
        if _is_text(data.features[column]):
            advice = "map the classes to numbers 0, 1, ..." if column == target else "tokenise it first"
            raise InputError(
                f"{name}: column {column!r} is text; {advice}, or leave it out with "
                f"remove_columns({column!r})."
            )
    return data if how.get("type") == "torch" else data.with_format("torch", **_only(how))


def _only(how: dict[str, Any]) -> dict[str, Any]:
    """The columns that the user chose."""
    return {"columns": how["columns"]} if "columns" in how else {}


def _is_text(feature: Any) -> bool:
    if getattr(feature, "dtype", None) in TEXT:
        return True
    inner = getattr(feature, "feature", None)
    if inner is not None and not isinstance(inner, Iterable):
        return _is_text(inner)
    return False
