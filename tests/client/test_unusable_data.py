"""Data with values that are not finite are named before the first round, and looked at in little time."""

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.client import unusable_data
from steelyard.data.array_examples import Examples, is_finite
from steelyard.errors import SteelyardWarning

INPUTS, LABELS = torch.rand(6, 4), torch.arange(6) % 3


def spoilt(*rows: int, value: float = math.nan) -> tuple[Tensor, Tensor]:
    inputs = INPUTS.clone()
    inputs[list(rows), 1] = value
    return inputs, LABELS


def said(clients: Any, **settings: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        sy.Federation(clients, nn.Linear(4, 3), **settings)
    assert all(issubclass(each.category, SteelyardWarning) for each in found)
    assert all(each.filename == __file__ for each in found)
    return [str(each.message) for each in found]


def test_training_data_are_named_with_what_comes_of_them() -> None:
    [text] = said({"oslo": spoilt(2, 5), "turin": (INPUTS, LABELS), "lima": spoilt(0, value=math.inf)})
    assert text == (
        "1 of 6 examples of the training data of client 'lima', 2 of 6 examples of the training data of "
        "client 'oslo' have values that are not finite; leave them out, or its updates are rejected."
    )


def test_test_data_are_named_apart() -> None:
    clients = [sy.Client("oslo", spoilt(1), test=spoilt(2)), sy.Client("turin", (INPUTS, LABELS))]
    scored, trained = said(clients, test=spoilt(3), validation=spoilt(4))
    for name in ("the test set", "the validation set", "the test data of client 'oslo'"):
        assert f"1 of 6 examples of {name}" in scored
    assert scored.endswith("or there are no scores.")
    assert re.match("1 of 6 examples of the training data of client 'oslo' have", trained)


def test_a_dict_of_arrays_is_looked_at_too() -> None:
    class Names(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    with pytest.warns(SteelyardWarning, match="1 of 6 examples of the training data of client 'oslo'"):
        sy.Federation({"oslo": dict(zip(("x", "label"), spoilt(2), strict=True))}, Names(4, 3))


def test_a_table_that_clients_share_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Tensor] = []

    def count(table: Tensor, double: bool | None) -> bool:
        looked.append(table)
        return is_finite(table, double)

    monkeypatch.setattr(unusable_data, "is_finite", count)
    inputs, labels = spoilt(5)

    def shared(*rows: int) -> Examples:
        return Examples(inputs, labels, torch.tensor(rows), double=False)

    [text] = said({"oslo": shared(0, 1), "turin": shared(2, 5), "lima": shared(3)}, test=shared(0, 4))
    assert text.startswith("1 of 2 examples of the training data of client 'turin' have")
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("values", "double", "wanted"),
    [
        ([1e300], False, False),
        ([1e300], True, True),
        ([], False, True),
        ([math.nan, 1.0], False, False),
        ([math.inf, -math.inf], True, False),
        ([1.0, 2.0], None, True),
    ],
)
def test_a_table_is_finite_as_the_model_sees_it(
    values: list[float], double: bool | None, wanted: bool
) -> None:
    assert is_finite(torch.from_numpy(np.array(values)), double) is wanted


def test_large_numbers_are_no_reason_to_warn() -> None:
    assert not is_finite(torch.full((9,), 3e38))  # their sum says nothing
    assert said({"oslo": (torch.full((6, 4), 3e38), LABELS)}) == []
