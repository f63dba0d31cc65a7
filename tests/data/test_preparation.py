"""Numbers and categories become inputs; nothing is fitted on test rows."""

import pytest
import torch
from torch import Tensor
from toy_tables import NAN, codes, data, numbers, toy

from steelyard.data.preparation import Preparation
from steelyard.data.tables import Column, Table
from steelyard.data.tabular import deal_table
from steelyard.errors import InputError
from steelyard.seeds import generator

# Preparation


def test_numbers_are_filled_with_the_median_and_standardised() -> None:
    column = numbers(0, 2, NAN, 10, 1000, NAN)
    ready = Preparation.fit([column], torch.arange(4))
    filled = torch.tensor([0.0, 2, 2, 10])
    wanted = (filled - 3.5) / filled.std(correction=0)
    found = ready.apply(torch.arange(4))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[:, 0], wanted)
    assert found[:, 1].tolist() == [0, 0, 1, 0]
    test = ready.apply(torch.tensor([4, 5]))
    torch.testing.assert_close(test[:, 0], (torch.tensor([1000.0, 2]) - 3.5) / filled.std(correction=0))
    assert test[:, 1].tolist() == [0, 1]


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    ready = Preparation.fit([numbers(1, 2, 4, 9, NAN, 3)], torch.arange(5))
    _, _, _, _, filled, three = ready.apply(torch.arange(6))[:, 0].tolist()
    assert filled == three


def test_gaps_that_training_did_not_have_get_no_feature() -> None:
    ready = Preparation.fit([numbers(1, 3, NAN)], torch.arange(2))
    assert ready.apply(torch.arange(3)).tolist() == [[-1], [1], [0]]


@pytest.mark.parametrize(
    ("column", "marks"), [(numbers(0.1, 0.1, 0.1, 7), 0), (numbers(NAN, NAN, NAN, 7), 1)]
)
def test_what_is_constant_in_training_is_zero_everywhere(column: Column, marks: int) -> None:
    found = Preparation.fit([column], torch.arange(3)).apply(torch.arange(4))
    assert found.shape == (4, 1 + marks)
    assert found[:, 0].tolist() == [0, 0, 0, 0]


def test_categories_that_training_did_not_have_are_zero_in_all_features() -> None:
    ready = Preparation.fit([codes(2, 0, -1, 2, 1)], torch.arange(4))
    assert ready.apply(torch.arange(5)).tolist() == [[0, 1], [1, 0], [0, 0], [0, 1], [0, 0]]


def test_features_are_in_the_order_of_the_columns() -> None:
    columns = [codes(1, 0), numbers(5, 7), codes(2, 2, name="other")]
    assert Preparation.fit(columns, torch.arange(2)).apply(torch.arange(2)).tolist() == [
        [0, 1, -1, 1],
        [1, 0, 1, 1],
    ]


def test_a_preparation_needs_rows() -> None:
    with pytest.raises(InputError, match="at least one training row"):
        Preparation.fit([numbers(1, 2)], torch.tensor([], dtype=torch.int64))


# Nothing is fitted on test rows


CHANGES: dict[str, tuple[int, float]] = {"outlier": (0, 1e6), "gap": (0, NAN), "category": (1, 3)}


@pytest.mark.parametrize("change", CHANGES)
def test_training_inputs_depend_on_training_rows_alone(change: str) -> None:
    """Change one row at a time: a changed test row changes no training input and no other test row."""
    draw = generator(0, "values")
    size = torch.randn(12, dtype=torch.float64, generator=draw)
    hue = torch.arange(12) % 3
    labels = torch.arange(12) % 2

    def dealt(size: Tensor, hue: Tensor) -> list[Tensor]:
        columns = (Column("size", size), Column("hue", hue, tuple("rgbx")))
        table = Table("toy", columns, labels, ("a", "b"))
        (client,) = deal_table(table, [torch.arange(9)], torch.arange(9, 12), 0, share=1.0)
        return data(client)

    before = dealt(size, hue)
    place, value = CHANGES[change]
    silent = []
    for row in range(12):
        values = [size.clone(), hue.clone()]
        values[place][row] = value
        train, _, test, _ = dealt(values[0], values[1])
        if torch.equal(train, before[0]):
            silent.append(row)
            assert test.shape == before[2].shape
            assert int((test != before[2]).any(dim=1).sum()) == 1
    assert silent == [9, 10, 11]


def test_scales_are_those_of_the_training_rows() -> None:
    table = toy()
    rows = [torch.arange(0, 50, 2), torch.arange(1, 50, 2)]
    for client in deal_table(table, rows, torch.arange(50, 60), 1, share=1.0):
        train, _, test, _ = data(client)
        sizes = [0, 2, 3, 4]  # the second feature tells the gaps of the first column
        torch.testing.assert_close(train[:, sizes].mean(0), torch.zeros(4), atol=1e-6, rtol=0)
        torch.testing.assert_close(train[:, sizes].std(0, correction=0), torch.ones(4))
        assert (test[:, sizes].mean(0).abs() > 1e-3).all()
