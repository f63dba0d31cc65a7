"""What goes over the wire: a header of plain values and named flat arrays, in Flower's records.

Nothing is unpickled, and what a record says of its size is checked against its bytes before an array is made.
This module needs no torch: the process that speaks with Flower only passes parcels on.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from steelyard.errors import SteelyardError

DTYPES = ("float32", "float64", "int64")
RAW = "steelyard.raw"
"""The name of our form of an array's bytes: little-endian, in C order."""
HEADER, ARRAYS = "header", "arrays"
MAX_HEADER = 1 << 16  # bytes
MAX_ARRAYS = 64
MAX_NAME = 200  # characters of an array's name
MAX_DIMENSIONS = 4


class WireError(SteelyardError):
    """What came is no parcel, or too large."""


@dataclass(frozen=True, eq=False)
class Parcel:
    """One message, down or up."""

    header: Mapping[str, Any]
    """Values that JSON can hold."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def to_records(parcel: Parcel, arrays: ArrayRecord | None = None) -> RecordDict:
    """Flower's form of a parcel. `arrays` is the record of the same arrays, if it was made before."""
    header = json.dumps(parcel.header, allow_nan=False)
    record = array_record(parcel.arrays) if arrays is None else arrays
    return RecordDict({HEADER: ConfigRecord({"json": header}), ARRAYS: record})


def array_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: _packed(array) for name, array in arrays.items()})


def _packed(array: NDArray[Any]) -> Array:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Array(array.dtype.name, tuple(map(int, array.shape)), RAW, little.tobytes())


def from_records(records: RecordDict, max_bytes: float = math.inf) -> Parcel:
    """The parcel in Flower's records; a WireError says what is wrong with them.

    Records come from the other side: only their exact types are read.
    """
    try:
        return _parcel(records, max_bytes)
    except WireError:
        raise
    except Exception as error:  # whatever the other side put there
        raise WireError(f"the message cannot be read ({type(error).__name__})") from None


def _parcel(records: RecordDict, max_bytes: float) -> Parcel:
    if {*records} != {HEADER, ARRAYS}:
        raise WireError(f"the message must have the records {HEADER!r} and {ARRAYS!r} and no others")
    config, arrays = records[HEADER], records[ARRAYS]
    if type(config) is not ConfigRecord or {*config} != {"json"} or type(arrays) is not ArrayRecord:
        raise WireError("the records of the message have the wrong kinds")
    return Parcel(_header(config["json"]), _arrays(arrays, max_bytes))


def _header(text: object) -> dict[str, Any]:
    if type(text) is not str or len(text) > MAX_HEADER:
        raise WireError(f"the header must be a text of at most {MAX_HEADER} characters")
    try:
        header = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise WireError("the header is not JSON") from None
    if type(header) is not dict:
        raise WireError("the header is not a table")
    return header


def _no_constant(name: str) -> None:
    raise ValueError(name)  # NaN and infinities are no JSON


def _arrays(record: ArrayRecord, max_bytes: float) -> dict[str, NDArray[Any]]:
    if len(record) > MAX_ARRAYS:
        raise WireError(f"the message has {len(record)} arrays, more than {MAX_ARRAYS}")
    arrays: dict[str, NDArray[Any]] = {}
    left = max_bytes
    for name, packed in record.items():
        if len(name) > MAX_NAME:
            raise WireError("the name of an array is too long")
        left -= len(packed.data)
        if left < 0:
            raise WireError(f"the message is larger than {max_bytes:.0f} bytes")
        arrays[name] = _unpacked(packed)
    return arrays


def _unpacked(packed: Array) -> NDArray[Any]:
    shape = packed.shape
    if packed.stype != RAW or packed.dtype not in DTYPES:
        raise WireError("an array has an unknown type or form")
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
        raise WireError("an array has an impossible shape")
    dtype = np.dtype(packed.dtype).newbyteorder("<")
    if math.prod(shape) * dtype.itemsize != len(packed.data):
        raise WireError("an array has more or fewer bytes than its shape and type say")
    return np.frombuffer(packed.data, dtype).reshape(shape)


def to_bytes(parcel: Parcel) -> list[bytes | memoryview]:
    """The parcel in pieces for a pipe between two processes of one site."""
    described = [(name, array.dtype.name, array.shape) for name, array in parcel.arrays.items()]
    head = json.dumps([parcel.header, described]).encode()
    arrays = [np.ascontiguousarray(each, each.dtype.newbyteorder("=")) for each in parcel.arrays.values()]
    return [
        struct.pack("<Q", len(arrays)),
        head,
        *(array.reshape(-1).view(np.uint8).data for array in arrays),
    ]


def from_bytes(pieces: list[bytes]) -> Parcel:
    header, described = json.loads(pieces[1])
    arrays = {
        name: np.frombuffer(data, dtype).reshape(shape)
        for (name, dtype, shape), data in zip(described, pieces[2:], strict=True)
    }
    return Parcel(header, arrays)
