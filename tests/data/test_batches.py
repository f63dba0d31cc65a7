"""Batches: inputs and targets in any form that data sets and loaders return."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from steelyard.data.batches import cast_all, map_tensors, size_of, split
from steelyard.errors import InputError

A, B, C, Y = torch.ones(2, 3), torch.zeros(2), torch.full((2, 1), 7.0), torch.tensor([1, 0])


@pytest.mark.parametrize(
    ("collated", "inputs", "targets"),
    [
        ((A, Y), A, Y),
        ([A, Y], A, Y),
        (({"a": A}, Y), {"a": A}, Y),
        (((A, B), Y), (A, B), Y),
        ([[A, B], Y], (A, B), Y),
        ((A, B, Y), (A, B), Y),
        ([A, B, C, Y], (A, B, C), Y),
        ({"a": A, "labels": Y}, {"a": A}, Y),
        ({"a": A, "label": Y}, {"a": A}, Y),
        ({"a": A, "targets": Y}, {"a": A}, Y),
        ({"a": A, "target": Y}, {"a": A}, Y),
        ({"a": A, "y": Y}, {"a": A}, Y),
        ({"a": A, "y": B, "label": Y}, {"a": A, "y": B}, Y),
        ({"a": A, "b": B}, {"a": A, "b": B}, None),
        (A, A, None),
        ([A], A, None),
        ((A.numpy(), Y.numpy()), A, Y),
        ((A, None), A, None),
    ],
)
def test_a_batch_is_split_into_inputs_and_targets(collated: Any, inputs: Any, targets: Any) -> None:
    found, labels = split(collated)
    torch.testing.assert_close(found, inputs, rtol=0, atol=0)
    assert type(found) is type(inputs)
    assert labels is None if targets is None else torch.equal(labels, targets)  # type: ignore[arg-type]


def test_a_dict_that_is_split_stays_as_it_was() -> None:
    given = {"a": A, "label": Y}
    split(given)
    assert list(given) == ["a", "label"]


def test_the_target_of_a_dict_can_be_named() -> None:
    inputs, targets = split({"a": A, "label": B, "goal": Y}, target="goal")
    assert list(inputs) == ["a", "label"]
    assert targets is Y
    with pytest.raises(InputError, match=r"unknown target 'gaol'.*did you mean 'goal'"):
        split({"a": A, "goal": Y}, target="gaol")
    with pytest.raises(InputError, match="no names"):
        split((A, Y), target="goal")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.uint8, torch.int64),
        (torch.int8, torch.int64),
        (torch.int32, torch.int64),
        (torch.int64, torch.int64),
        (torch.bool, torch.bool),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_whole_targets_are_int64_and_others_stay(given: torch.dtype, expected: torch.dtype) -> None:
    _, targets = split((A, Y.to(given)))
    assert targets is not None
    assert targets.dtype == expected
    assert torch.equal(targets, Y.to(expected))


@pytest.mark.parametrize(
    ("collated", "message"),
    [
        (({"words": ["good", "bad"]}, Y), r"inputs\['words'\]\[0\] of a batch is text.*tokenise"),
        ((A, ["yes", "no"]), r"targets\[0\] of a batch is text"),
        ((A, object(), Y), r"inputs\[1\] of a batch is object"),
    ],
)
def test_what_is_no_tensor_is_refused_by_its_place(collated: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split(collated)


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def test_a_function_is_mapped_over_the_tensors_of_any_structure() -> None:
    found = map_tensors({"a": (A, [B]), "b": Point(A, C), "c": None, "d": np.zeros(2)}, lambda t: t + 1)
    assert torch.equal(found["a"][0], A + 1)
    assert torch.equal(found["a"][1][0], B + 1)
    assert isinstance(found["b"], Point)
    assert torch.equal(found["b"].y, C + 1)
    assert found["c"] is None
    assert found["d"].tolist() == [1, 1]


def test_packed_sequences_stay_packed() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    inputs, _ = split((packed, Y))
    wide = cast_all(inputs, True)
    assert type(wide) is type(packed)
    assert wide.data.dtype == torch.float64
    assert torch.equal(wide.batch_sizes, packed.batch_sizes)


@pytest.mark.parametrize("inputs", [A, (A, B), {"a": A, "b": B}, {"a": (A, B)}, {"none": None, "a": A}])
def test_the_size_of_a_batch_is_the_first_dimension_of_its_first_tensor(inputs: Any) -> None:
    assert size_of(inputs) == 2


def test_a_batch_without_a_tensor_has_no_size() -> None:
    with pytest.raises(InputError, match="a row for each example"):
        size_of({})


@pytest.mark.parametrize(
    ("double", "half", "single", "wide"),
    [
        (True, torch.float64, torch.float64, torch.float64),
        (False, torch.float16, torch.float32, torch.float32),
        (None, torch.float16, torch.float32, torch.float64),
    ],
)
def test_fractional_values_of_a_structure_are_cast_and_others_are_not(
    double: bool | None, half: torch.dtype, single: torch.dtype, wide: torch.dtype
) -> None:
    given = {"h": A.half(), "s": (A, Y), "w": A.double(), "mask": A.bool()}
    found = cast_all(given, double)
    kinds = [found["h"].dtype, found["s"][0].dtype, found["w"].dtype]
    assert kinds == [half, single, wide]
    assert found["s"][1] is Y
    assert found["mask"].dtype == torch.bool
