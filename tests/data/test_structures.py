"""Data with several inputs, with dicts, and without targets: in arrays and in data sets."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Subset, TensorDataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.data.examples import ArrayExamples, DatasetExamples, Examples, examples
from steelyard.errors import InputError

X1, X2 = torch.arange(12.0).view(6, 2), torch.arange(6.0)
Y = torch.tensor([0, 1, 2, 0, 1, 2])
INPUTS_ALONE = torch.rand(4, 3)


class Items(Dataset[Any]):
    """A data set of items that counts what is read."""

    def __init__(self, make: Callable[[int], Any], size: int = 6) -> None:
        self.make, self.size, self.read = make, size, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> Any:
        self.read += 1
        return self.make(row)


TUPLES = [
    pytest.param((X1, X2, Y), id="triple"),
    pytest.param(((X1, X2), Y), id="nested"),
    pytest.param((X1.numpy(), X2.double().numpy(), Y.numpy()), id="arrays"),
    pytest.param(TensorDataset(X1, X2, Y), id="tensor data set"),
    pytest.param(Items(lambda row: (X1[row], X2[row], int(Y[row]))), id="items"),
    pytest.param(Items(lambda row: ((X1[row], X2[row]), Y[row].int())), id="nested items"),
]
DICTS = [
    pytest.param({"a": X1, "b": X2, "labels": Y}, id="dict"),
    pytest.param(({"a": X1, "b": X2}, Y), id="dict and targets"),
    pytest.param(Items(lambda row: {"a": X1[row], "b": X2[row], "y": int(Y[row])}), id="items"),
    pytest.param(Items(lambda row: ({"a": X1[row], "b": X2[row]}, int(Y[row]))), id="pairs"),
]
ROWS, POSITIONS = torch.tensor([5, 1, 3, 0]), torch.tensor([2, 0])


@pytest.mark.parametrize("given", TUPLES)
def test_several_inputs_come_as_a_tuple(given: Any) -> None:
    part = examples(given).to(torch.float32).take(ROWS)
    inputs, targets = part.batch(POSITIONS)
    assert isinstance(inputs, tuple)
    assert [tensor.dtype for tensor in inputs] == [torch.float32] * 2
    assert torch.equal(inputs[0], X1[[3, 5]])
    assert torch.equal(inputs[1], X2[[3, 5]])
    assert targets is not None
    assert targets.dtype == torch.int64
    assert targets.tolist() == [0, 2]
    assert part.labels.tolist() == [2, 1, 0, 0]
    assert part.input_shape is None
    assert len(part) == 4


@pytest.mark.parametrize("given", DICTS)
def test_named_inputs_come_as_a_dict(given: Any) -> None:
    part = examples(given).take(ROWS)
    inputs, targets = part.batch(POSITIONS)
    assert isinstance(inputs, dict)
    assert list(inputs) == ["a", "b"]
    assert torch.equal(inputs["a"], X1[[3, 5]])
    assert torch.equal(inputs["b"], X2[[3, 5]])
    assert targets is not None
    assert targets.tolist() == [0, 2]


@pytest.mark.parametrize("given", [*TUPLES, *DICTS])
@pytest.mark.parametrize("rows", [torch.arange(6), torch.arange(1, 5), ROWS])
def test_a_span_is_the_batch_of_its_positions(given: Any, rows: Tensor) -> None:
    part = examples(given).take(rows)
    torch.testing.assert_close(part.span(1, 3), part.batch(torch.tensor([1, 2])), rtol=0, atol=0)


@pytest.mark.parametrize("given", [*TUPLES, *DICTS])
def test_structures_come_in_double_precision_for_a_model_of_it(given: Any) -> None:
    data = examples(given)
    inputs, targets = data.to(torch.float64).batch(POSITIONS)
    tensors = inputs.values() if isinstance(inputs, dict) else inputs
    assert {tensor.dtype for tensor in tensors} == {torch.float64}
    assert targets is not None
    assert targets.dtype == torch.int64
    assert data.to(torch.float64).to(torch.float64).double


def test_whole_inputs_and_masks_stay_as_they_are() -> None:
    data = examples({"input_ids": Y, "mask": Y > 0, "labels": Y})
    inputs, _ = data.to(torch.float64).batch(POSITIONS)
    assert isinstance(inputs, dict)
    assert (inputs["input_ids"].dtype, inputs["mask"].dtype) == (torch.int64, torch.bool)


def test_one_array_of_inputs_with_targets_is_the_fast_class_and_nothing_else() -> None:
    assert isinstance(examples((X1, Y)), Examples)
    assert isinstance(examples((X1, X2, Y)), ArrayExamples)
    assert isinstance(examples(TensorDataset(X1)), ArrayExamples)


def test_examples_without_targets_have_none_in_a_batch_and_no_labels() -> None:
    for given in (
        {"a": X1, "b": X2},
        TensorDataset(X1),
        Items(lambda row: X1[row]),
        Items(lambda row: {"a": X1[row]}),
    ):
        data = examples(given, name="rome")
        assert data.batch(POSITIONS)[1] is None
        assert data.span(0, 2)[1] is None
        with pytest.raises(InputError, match="no targets"):
            _ = data.labels


def test_the_target_of_a_dict_can_be_named() -> None:
    data = examples({"a": X1, "labels": X2, "goal": Y}, target="goal")
    assert data.labels.tolist() == Y.tolist()
    lazy = examples(Items(lambda row: {"a": X1[row], "labels": X2[row], "goal": Y[row]}), target="goal")
    inputs, targets = lazy.batch(POSITIONS)
    assert list(inputs) == ["a", "labels"]
    assert targets is not None
    assert targets.tolist() == [2, 0]


def test_several_labels_at_once_stay_bool_and_one_bool_is_a_class_number() -> None:
    many = torch.rand(6, 3) > 0.5
    assert examples((X1, many)).labels.dtype == torch.bool
    assert examples((X1, Y > 0)).labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X1, X2[:4], Y), r"rome: 4 inputs in \[1\] but 6 targets"),
        ({"a": X1, "b": X2[:4], "labels": Y}, r"rome: 4 inputs in \['b'\] but 6 targets"),
        ({"a": X1, "b": X2[:4]}, r"rome: 4 inputs in \['b'\] but 6 in \['a'\]"),
        ({"a": X1, "words": ["a"] * 6, "labels": Y}, "rome: 'words': .*arrays of numbers"),
        ({"labels": Y}, "rome: there are no inputs"),
        (Items(lambda row: {"words": "good", "label": 0}), r"rome: inputs\['words'\]\[0\] .*text.*tokenise"),
        (Items(lambda row: (X1[row], None)), "rome: items must be"),
    ],
)
def test_structures_that_cannot_be_used_are_refused_by_name(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        examples(given, name="rome")


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="unknown target 'gaol' of rome: did you mean 'goal'"):
        examples({"a": X1, "goal": Y}, target="gaol", name="rome")
    with pytest.raises(InputError, match="rome: unknown target 'gaol': did you mean 'goal'"):
        examples(Items(lambda row: {"a": X1[row], "goal": Y[row]}), target="gaol", name="rome")


# Data sets with a collate_fn


def pad(items: list[tuple[Tensor, int]]) -> tuple[dict[str, Tensor], Tensor]:
    texts, labels = zip(*items, strict=True)
    lengths = torch.tensor([len(text) for text in texts])
    return {"tokens": pad_sequence(list(texts), batch_first=True), "lengths": lengths}, torch.tensor(labels)


def sentence(row: int) -> tuple[Tensor, int]:
    return torch.arange(row + 1), row % 3


def test_items_of_different_shapes_need_a_collate_fn() -> None:
    lazy = examples(Items(sentence), name="rome")
    assert lazy.batch(torch.tensor([2, 2]))[1] is not None
    with pytest.raises(InputError, match=r"rome: items differ in shape; give a collate_fn"):
        lazy.batch(torch.tensor([2, 4]))
    named = examples(Items(lambda row: {"x": sentence(row)[0], "y": 0}), name="rome")
    with pytest.raises(InputError, match=r"rome: items differ in shape; give a collate_fn"):
        named.span(0, 2)


def test_a_collate_fn_makes_batches() -> None:
    data = examples(Items(sentence), collate_fn=pad)
    inputs, targets = data.batch(torch.tensor([2, 0]))
    assert isinstance(inputs, dict)
    assert inputs["tokens"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert inputs["lengths"].tolist() == [3, 1]
    assert targets is not None
    assert targets.tolist() == [2, 0]
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.input_shape is None


def test_a_shape_that_a_collate_fn_may_change_is_not_known() -> None:
    assert examples(Items(lambda row: (X1[row], 0))).input_shape == (2,)
    assert (
        examples(Items(lambda row: (X1[row], 0)), collate_fn=torch.utils.data.default_collate).input_shape
        is None
    )


def test_only_the_first_item_is_read_before_a_batch_is_needed() -> None:
    items = Items(lambda row: (X1[row], 0) if row == 0 else 1 / 0)
    data = examples(items).to(torch.float64).take(ROWS)
    assert len(data) == 4
    assert items.read <= 2


def test_items_are_read_at_once_by_data_sets_that_can() -> None:
    calls = []

    class Many(Items):
        def __getitems__(self, rows: list[int]) -> list[Any]:
            calls.append(rows)
            return [self.make(row) for row in rows]

    data = examples(Many(lambda row: (X1[row], Y[row])))
    inputs, _ = data.batch(torch.tensor([4, 1]))
    assert calls == [[4, 1]]
    assert isinstance(inputs, Tensor)
    assert torch.equal(inputs, X1[[4, 1]])


def test_a_subset_of_a_data_set_is_a_data_set() -> None:
    data = examples(Subset(Items(lambda row: (X1[row], Y[row])), [5, 4]))
    assert data.labels.tolist() == [2, 1]


def test_a_client_hands_its_target_and_collate_fn_to_all_its_parts() -> None:
    items = Items(sentence)
    client = Client("rome", items, lambda: items, items, collate_fn=pad)
    for part in (client.train, client.test, client.held_out):
        assert isinstance(part, DatasetExamples)
        assert part.collate_fn is pad
    named = {"a": X1, "labels": X2, "goal": Y}
    client = Client("rome", named, lambda: named, named, target="goal")
    for part in (client.train, client.test, client.held_out):
        assert part is not None
        assert part.labels.tolist() == Y.tolist()


def test_data_that_code_of_the_users_own_reads_count_as_own_code() -> None:
    assert not Client("rome", (X1, Y)).own_code
    assert not Client("rome", (X1, X2, Y), ({"a": X1}, Y)).own_code
    assert Client("rome", Items(lambda row: (X1[row], Y[row]))).own_code
    assert Client("rome", (X1, Y), held_out=Items(lambda row: (X1[row], Y[row]))).own_code


@pytest.mark.parametrize(
    "given", [INPUTS_ALONE, INPUTS_ALONE.numpy(), (INPUTS_ALONE, None), (INPUTS_ALONE.tolist(), None)]
)
def test_inputs_alone_have_no_targets(given: Any) -> None:
    data = examples(given)
    assert isinstance(data, ArrayExamples)
    assert data.targets is None
    inputs, targets = data.span(0, 4)
    assert torch.equal(inputs, INPUTS_ALONE)  # type: ignore[arg-type]
    assert targets is None


def test_a_model_that_returns_its_loss_trains_on_inputs_alone() -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(x) - x).square().mean()  # type: ignore[no-any-return]

    clients = {"a": INPUTS_ALONE, "b": INPUTS_ALONE.numpy()}
    last = sy.Federation(clients, Autoencoder(), test=INPUTS_ALONE, rounds=1).run().history[-1]
    assert last["used"] == 2
    assert last["test_loss"] > 0
    with pytest.raises(InputError, match="no targets, and the model returns no loss; give"):
        sy.Federation(clients, nn.Linear(3, 3))
