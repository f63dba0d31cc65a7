"""Examples and clients: whose rows, in which mix, and scaled as promised."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from steelyard.data.clients import Client, as_clients
from steelyard.data.dataset import Dataset
from steelyard.data.dealing import deal
from steelyard.data.digits import digits
from steelyard.data.examples import DatasetExamples, Examples, examples
from steelyard.errors import InputError

DIGITS = digits()


def parts(clients: int, seed: int = 0) -> list[Tensor]:
    """The digits in uneven mixes: sorted by a noisy label, then cut."""
    noise = torch.rand(len(DIGITS.train), generator=torch.Generator().manual_seed(seed))
    return list(torch.chunk(torch.argsort(DIGITS.train.labels + 3 * noise), clients))


def toy(test_per_class: int) -> Dataset:
    """30 rows of class 0, 10 of class 1 and 5 of class 2 to train on; each test class has as many rows."""
    train = torch.tensor([0] * 30 + [1] * 10 + [2] * 5)
    test = torch.arange(3).repeat(test_per_class)

    def table(labels: Tensor) -> Examples:
        return Examples(torch.arange(len(labels)).view(-1, 1), labels, torch.arange(len(labels)))

    return Dataset("toy", table(train), table(test), ("a", "b", "c"))


def own_test(client: Client) -> Examples:
    assert isinstance(client.test, Examples)
    return client.test


def mix(labels: Tensor, classes: int = 10) -> Tensor:
    return labels.bincount(minlength=classes)


# Dealing


@pytest.mark.parametrize(("count", "first", "last"), [(3, "0", "2"), (10, "0", "9"), (12, "00", "11")])
def test_ids_are_padded_so_that_their_order_is_that_of_the_numbers(count: int, first: str, last: str) -> None:
    ids = [client.id for client in deal(DIGITS, parts(count), 0).values()]
    assert ids[0] == f"client-{first}"
    assert ids[-1] == f"client-{last}"
    assert ids == sorted(ids)
    assert len(set(ids)) == count


def test_clients_hold_the_rows_they_were_dealt_on_the_shared_table() -> None:
    rows = parts(4)
    for client, mine in zip(deal(DIGITS, rows, 0).values(), rows, strict=True):
        assert isinstance(client.train, Examples)
        assert client.train.inputs is DIGITS.train.inputs
        assert torch.equal(client.train.rows, mine)


def test_a_client_is_tested_on_rows_of_the_test_set_in_its_own_label_mix() -> None:
    for client in deal(DIGITS, parts(6), 0).values():
        test = own_test(client)
        assert test.inputs is DIGITS.test.inputs
        assert len(set(test.rows.tolist())) == len(test), "no row twice"
        shares = mix(client.train.labels).double() / len(client.train)
        found = mix(test.labels)
        assert bool(((found - shares * len(test)).abs() <= 1.5).all())
        assert found[shares == 0].sum() == 0
        assert bool((found[shares > 0] > 0).all())


@pytest.mark.parametrize(
    ("rows", "test_per_class", "expected"),
    [
        (range(40), 200, [75, 25, 0]),  # 100 rows in the mix 3 : 1
        (range(40), 50, [50, 17, 0]),  # class 0 runs out: 50 / 0.75 = 66.7 rows
        (range(45), 1000, [67, 22, 11]),  # 100 rows in the mix 6 : 2 : 1
        (range(40, 45), 30, [0, 0, 30]),
        (list(range(30)) * 10 + [30], 1000, [300, 1, 0]),  # 301 rows: as many as the client has
        (list(range(30)) * 30 + [30], 100, [100, 1, 0]),  # a rare class is not rounded away
    ],
)
def test_the_mix_and_the_number_of_test_rows_as_computed_by_hand(
    rows: Any, test_per_class: int, expected: list[int]
) -> None:
    [client] = deal(toy(test_per_class), [torch.tensor(list(rows))], 0).values()
    assert mix(own_test(client).labels, 3).tolist() == expected


def test_dealing_repeats_for_a_seed_and_differs_by_seed_and_client() -> None:
    same = torch.arange(40)
    dealt = [list(deal(toy(200), [same, same], seed).values()) for seed in (0, 0, 1)]
    tests = [[own_test(client).rows.tolist() for client in clients] for clients in dealt]
    assert tests[0] == tests[1]
    assert tests[0] != tests[2]
    assert tests[0][0] != tests[0][1]


def test_a_shift_changes_what_a_client_trains_and_is_tested_on_and_nothing_else() -> None:
    rows = parts(3)
    before = DIGITS.train.inputs.clone(), DIGITS.test.inputs.clone()
    plain = deal(DIGITS, rows, 0).values()

    def invert(images: Tensor, number: int) -> Tensor:
        if number == 0:
            return images
        return images.mul_(0).add_(number)  # in place, as a careless shift might

    for number, (client, was) in enumerate(zip(deal(DIGITS, rows, 0, invert).values(), plain, strict=True)):
        for found, unshifted in ((client.train, was.train), (own_test(client), own_test(was))):
            assert isinstance(found, Examples)
            assert isinstance(unshifted, Examples)
            assert torch.equal(found.labels, unshifted.labels)
            assert (found.mean, found.std) == (unshifted.mean, unshifted.std)
            images = found.inputs[found.rows]
            if number == 0:
                assert torch.equal(images, unshifted.inputs[unshifted.rows])
            else:
                assert images.unique().tolist() == [number]
    assert torch.equal(DIGITS.train.inputs, before[0])
    assert torch.equal(DIGITS.test.inputs, before[1])


# Clients


def test_clients_are_sorted_by_id_and_take_any_data() -> None:
    data = (np.ones((2, 3)), [0, 1])
    ordered = as_clients({"b": data, "a": Client("a", data, test=data), 3: data})  # type: ignore[dict-item]
    assert list(ordered) == [client.id for client in ordered.values()] == ["3", "a", "b"]
    assert len(own_test(ordered["a"])) == 2
    assert ordered["b"].test is None


def test_test_data_given_as_a_function_are_fetched_when_they_are_needed() -> None:
    calls = []

    def fetch() -> tuple[torch.Tensor, list[int]]:
        calls.append(1)
        return torch.zeros(2, 3), [0, 1]

    client = Client("a", (torch.zeros(2, 3), [0, 1]), fetch)
    assert not calls
    assert len(own_test(client)) == len(own_test(client)) == 2
    assert len(calls) == 1


# Examples


def test_bytes_become_floats_scaled_by_channel() -> None:
    images = torch.randint(
        0, 256, (5, 3, 2, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    mean, std = (0.1, 0.4, 0.5), (0.2, 0.3, 1.0)
    data = Examples(images, torch.arange(5), torch.tensor([4, 2, 0]), mean, std)
    inputs, targets = data.batch(torch.tensor([2, 0]))
    assert targets.tolist() == [0, 4]
    assert inputs.dtype == torch.float32
    wide = images[[0, 4]].numpy().astype(np.float64) / 255
    for channel in range(3):
        expected = (wide[:, channel] - mean[channel]) / std[channel]
        np.testing.assert_allclose(inputs[:, channel].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert images.dtype == torch.uint8, "the table stays as it is"


def test_floats_are_handed_on_as_they_are() -> None:
    data = Examples(torch.tensor([[5.0], [7.0]]), torch.tensor([0, 1]), torch.arange(2), (0.5,), (0.5,))
    assert data.batch(torch.tensor([1]))[0].tolist() == [[7.0]]


@pytest.mark.parametrize("lazy", [False, True])
def test_taking_a_part_of_a_part_counts_from_the_part(lazy: bool) -> None:
    table = (torch.arange(10.0).view(-1, 1), torch.arange(10))
    data = examples(Pairs(*table) if lazy else table)
    part = data.take(torch.tensor([8, 1, 5])).take(torch.tensor([2, 0]))
    assert len(part) == 2
    assert part.labels.tolist() == [5, 8]
    inputs, targets = part.batch(torch.tensor([1, 1, 0]))
    assert inputs.tolist() == [[8], [8], [5]]
    assert targets.tolist() == [8, 8, 5]
    assert part.input_shape == (1,)


class Pairs(TorchDataset[tuple[Tensor, int]]):
    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.inputs[row], int(self.targets[row])


INPUTS, TARGETS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0, 1])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(((INPUTS, TARGETS),), id="pair"),
        pytest.param(([INPUTS, TARGETS],), id="list"),
        pytest.param((INPUTS, TARGETS), id="two-arguments"),
        pytest.param((INPUTS.double(), TARGETS.int()), id="double-and-int32"),
        pytest.param((INPUTS.numpy(), TARGETS.numpy()), id="arrays"),
        pytest.param((INPUTS.tolist(), TARGETS.tolist()), id="lists"),
        pytest.param((INPUTS.numpy().astype(np.float64), TARGETS.numpy().astype(np.int16)), id="numpy-types"),
        pytest.param((TensorDataset(INPUTS, TARGETS),), id="tensor-dataset"),
        pytest.param((Pairs(INPUTS, TARGETS),), id="dataset"),
    ],
)
def test_examples_are_made_of_what_a_user_has(given: tuple[Any, ...]) -> None:
    data = examples(*given)
    assert len(data) == 3
    assert data.input_shape == (2,)
    assert data.labels.tolist() == [2, 0, 1]
    inputs, targets = data.batch(torch.tensor([2, 0]))
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == [[5, 6], [1, 2]]
    assert targets.dtype == torch.int64
    assert targets.tolist() == [1, 2]
    assert isinstance(data, DatasetExamples) == isinstance(given[0], Pairs)
    assert examples(data) is data


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((INPUTS, TARGETS[:2]), "rome: 3 inputs but 2 targets"),
        (((INPUTS[:1], TARGETS),), "rome: 1 inputs but 3 targets"),
        ((Pairs(INPUTS[:0], TARGETS[:0]),), "rome: the data set is empty"),
        ((42,), "rome: give .* not int"),
        ((None,), "rome: give .* not NoneType"),
        ((Pairs,), "rome: give .* not Pairs"),
    ],
)
def test_data_that_cannot_be_used_is_refused_by_name(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        examples(*given, name="rome")


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_client_names_itself_and_the_part_that_is_wrong(part: str) -> None:
    good, bad = (INPUTS, TARGETS), (INPUTS, TARGETS[:1])
    with pytest.raises(InputError, match=f"client 'rome', {part}: 3 inputs but 1 targets"):
        Client("rome", **{"train": good, part: bad})


X, Y = torch.randn(6, 4), torch.arange(6) % 3


@pytest.mark.parametrize(
    "bad",
    [
        (X, Y, Y[:3]),
        "ab",
        (["a", "b"], [0, 1]),
        (torch.tensor(1.0), torch.tensor(1)),
        [([1, 2], 0)] * 3,
    ],
    ids=["triple", "text", "strings", "numbers", "lists"],
)
def test_what_cannot_be_examples_is_named(bad: object) -> None:
    with pytest.raises(InputError, match="rome"):
        examples(bad, name="rome")


def test_a_list_of_two_items_is_a_data_set() -> None:
    assert len(examples([(X[0], 0), (X[1], 1)])) == 2
