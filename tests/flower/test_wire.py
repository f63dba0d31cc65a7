"""Parcels keep their bits on the way, and what is no parcel is refused in words."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_link import reply
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from steelyard.flower.runtime import unfold
from steelyard.flower.wire import (
    DTYPES,
    MAX_ARRAYS,
    MAX_HEADER,
    MAX_NAME,
    RAW,
    Parcel,
    WireError,
    from_bytes,
    from_records,
    to_bytes,
    to_records,
)

HEADER = {"a": 1, "b": [None, True, 1.5, "ü\ud800"], "c": {"d": {}}}
SHAPES = [(), (0,), (3,), (2, 3), (2, 0, 3), (1, 2, 3, 4)]


def any_array(dtype: str, shape: tuple[int, ...]) -> Any:
    """Any bits, also those of numbers that are not finite."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(1).bytes(size), dtype).reshape(shape)


def through_flower(parcel: Parcel) -> Parcel:
    """As records, as the pieces that travel, and back."""
    sent = reply(to_records(parcel), "question")
    return from_records(unfold(sent.message_id, sent.contents, 1e6).content, 1e6)


def through_pipe(parcel: Parcel) -> Parcel:
    return from_bytes([bytes(piece) for piece in to_bytes(parcel)])


def same(one: Any, other: Any) -> bool:
    return (one.shape, one.dtype.name, one.astype("<" + one.dtype.str[1:]).tobytes()) == (
        other.shape,
        other.dtype.name,
        other.astype("<" + other.dtype.str[1:]).tobytes(),
    )


@pytest.mark.parametrize("way", [through_flower, through_pipe])
def test_a_parcel_arrives_with_the_same_bits(way: Callable[[Parcel], Parcel]) -> None:
    arrays = {f"{dtype} {shape}\0": any_array(dtype, shape) for dtype in DTYPES for shape in SHAPES}
    found = way(Parcel(HEADER, arrays))
    assert found.header == HEADER
    assert list(found.arrays) == list(arrays)
    assert all(same(found.arrays[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("way", [through_flower, through_pipe])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_of_bytes_and_of_memory_does_not_matter(
    way: Callable[[Parcel], Parcel], dtype: str
) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    big = values.astype(values.dtype.newbyteorder(">"))
    found = way(Parcel({}, {"big": big, "turned": np.asfortranarray(values), "part": values[:, ::2]})).arrays
    assert found["big"].tolist() == found["turned"].tolist() == values.tolist()
    assert found["part"].tolist() == values[:, ::2].tolist()
    assert {each.dtype.name for each in found.values()} == {dtype}


def test_a_record_of_arrays_can_be_made_once_for_many_headers() -> None:
    arrays = {"x": np.ones(3)}
    made = to_records(Parcel({}, arrays))["arrays"]
    records = to_records(Parcel({"n": 2}), made)  # type: ignore[arg-type]
    assert from_records(records).arrays["x"].tolist() == [1, 1, 1]


def test_numbers_that_json_does_not_have_are_not_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_records(Parcel({"loss": float("nan")}))


def records(header: Any = "{}", arrays: Any = None, **more: Any) -> RecordDict:
    config = header if not isinstance(header, str) else ConfigRecord({"json": header})
    return RecordDict({"header": config, "arrays": ArrayRecord() if arrays is None else arrays, **more})


def one(
    dtype: str = "float32", shape: tuple[Any, ...] = (2,), stype: str = RAW, data: bytes = bytes(8)
) -> Any:
    return ArrayRecord({"x": Array(dtype, shape, stype, data)})


REFUSED: dict[str, tuple[RecordDict, str]] = {
    "empty": (RecordDict(), "must have the records"),
    "one missing": (RecordDict({"header": ConfigRecord({"json": "{}"})}), "must have the records"),
    "one more": (records(more=ConfigRecord()), "must have the records"),
    "metrics": (records(MetricRecord({"json": 1.0})), "wrong kinds"),
    "another key": (records(ConfigRecord({"text": "{}"})), "wrong kinds"),
    "two keys": (records(ConfigRecord({"json": "{}", "x": 1})), "wrong kinds"),
    "arrays of another kind": (records(arrays=ConfigRecord()), "wrong kinds"),
    "bytes": (records(ConfigRecord({"json": b"{}"})), "must be a text"),
    "long": (records("{}" + " " * MAX_HEADER), f"at most {MAX_HEADER} characters"),
    "not JSON": (records("{"), "is not JSON"),
    "nested": (records("[" * 10_000), "is not JSON"),
    "digits": (records('{"a": 1' + "0" * 5000 + "}"), "is not JSON"),
    "NaN": (records('{"a": NaN}'), "is not JSON"),
    "infinity": (records('{"a": -Infinity}'), "is not JSON"),
    "a list": (records("[]"), "is not a table"),
    "nothing": (records("null"), "is not a table"),
    "many arrays": (
        records(arrays=ArrayRecord({str(n): Array("int64", (0,), RAW, b"") for n in range(MAX_ARRAYS + 1)})),
        f"more than {MAX_ARRAYS}",
    ),
    "long name": (
        records(arrays=ArrayRecord({"x" * (MAX_NAME + 1): Array("int64", (0,), RAW, b"")})),
        "name of an array is too long",
    ),
    "form of Flower": (records(arrays=one(stype="numpy.ndarray")), "unknown type or form"),
    "objects": (records(arrays=one("object")), "unknown type or form"),
    "half": (records(arrays=one("float16", (4,))), "unknown type or form"),
    "order in the name": (records(arrays=one(">f4")), "unknown type or form"),
    "negative": (records(arrays=one(shape=(-2,))), "impossible shape"),
    "bool": (records(arrays=one(shape=(True, 2))), "impossible shape"),
    "five dimensions": (records(arrays=one(shape=(1, 1, 1, 1, 2))), "impossible shape"),
    "huge": (records(arrays=one(shape=(1 << 40,))), "impossible shape"),
    "fewer bytes": (records(arrays=one(data=bytes(7))), "more or fewer bytes"),
    "more bytes": (records(arrays=one(data=bytes(9))), "more or fewer bytes"),
    "lying shape": (records(arrays=one(shape=(1 << 39, 1 << 39))), "more or fewer bytes"),
    "no bytes": (records(arrays=one(data=b"")), "more or fewer bytes"),
    "bytes for nothing": (records(arrays=one(shape=(0,))), "more or fewer bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_parcel_is_refused(name: str) -> None:
    found, words = REFUSED[name]
    with pytest.raises(WireError, match=words) as error:
        from_records(found)
    assert len(str(error.value)) < 200


def test_what_is_no_record_at_all_is_refused_too() -> None:
    for each in (None, 7, {"header": 1, "arrays": 2}):
        with pytest.raises(WireError):
            from_records(each)  # type: ignore[arg-type]


def test_the_limit_holds_for_all_arrays_together() -> None:
    parcel = to_records(Parcel({}, {"a": np.zeros(8), "b": np.zeros(8)}))
    assert len(from_records(parcel, 128).arrays) == 2
    with pytest.raises(WireError, match="larger than 127 bytes"):
        from_records(parcel, 127)


def test_the_header_is_text_and_the_arrays_are_their_bytes() -> None:
    """Nothing of Python's own is in a message."""
    sent = reply(to_records(Parcel({"a": 1}, {"x": np.array([1.0, 2.0], "<f4")})), "question")
    every = b"".join(sent.contents.values())
    assert json.dumps({"a": 1}).encode() in every
    assert np.array([1.0, 2.0], "<f4").tobytes() in every
    assert b"numpy" not in every
