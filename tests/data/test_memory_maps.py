"""Arrays in files: they are read batch by batch, and never copied as a whole."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.data.array_examples import count_unusable
from steelyard.data.clients import Client, as_clients
from steelyard.data.examples import ArrayExamples, Examples, examples

VALUES = np.random.default_rng(0).standard_normal((40, 3))
LABELS = np.arange(40) % 2
TYPES = ["float64", "float32", "uint8"]


def mapped(folder: Path, values: Any, dtype: str, mode: Any = "r") -> Any:
    file = folder / f"{dtype}-{np.asarray(values).ndim}.bin"
    np.asarray(values).astype(dtype).tofile(file)
    return np.memmap(file, dtype, mode, shape=np.asarray(values).shape)


def address(table: Any) -> int:
    assert isinstance(table, Tensor)
    return table.data_ptr()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_table_in_a_file_stays_there(tmp_path: Path, dtype: str, mode: str) -> None:
    table = mapped(tmp_path, np.abs(VALUES) * 50, dtype, mode)
    std = 1 if dtype == "uint8" else None
    data = examples(table, LABELS, std=std)
    assert isinstance(data, Examples)
    for form in (data, data.to(torch.float32), data.to(torch.float64), data.take(torch.arange(3))):
        assert address(form.inputs) == table.ctypes.data
        assert str(form.inputs.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("view", [lambda table: table[5:], lambda table: np.asarray(table)[:, :2]])
def test_a_view_of_a_table_in_a_file_stays_there_too(tmp_path: Path, view: Any) -> None:
    table = view(mapped(tmp_path, VALUES, "float64"))
    data = examples(table, LABELS[: len(table)])
    assert isinstance(data, Examples)
    assert address(data.to(torch.float32).inputs) == table.ctypes.data


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_are_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    data = examples(mapped(tmp_path, VALUES, "float64"), mapped(tmp_path, LABELS, "int32")).to(dtype)
    expected = torch.from_numpy(VALUES).to(dtype)
    for inputs, targets in (data.batch(torch.tensor([3, 1])), data.span(1, 4)):
        assert inputs.dtype == dtype
        assert targets is not None
        assert targets.dtype == torch.int64
    assert torch.equal(data.batch(torch.tensor([3, 1]))[0], expected[[3, 1]])
    assert torch.equal(data.span(1, 4)[0], expected[1:4])


def test_tables_of_a_structure_stay_in_their_files(tmp_path: Path) -> None:
    table = mapped(tmp_path, VALUES, "float64")
    for given in ((table, VALUES, LABELS), {"a": table, "labels": LABELS}, ({"a": table}, LABELS)):
        data = examples(given).to(torch.float32)
        assert isinstance(data, ArrayExamples)
        assert data.on_disk
        inputs = data.inputs["a"] if isinstance(data.inputs, dict) else data.inputs[0]
        assert address(inputs) == table.ctypes.data


def test_maps_of_classes_in_a_file_stay_there_and_come_as_int64(tmp_path: Path) -> None:
    masks = mapped(tmp_path, np.ones((40, 2, 2)), "uint8")
    data = examples(VALUES, masks)
    assert isinstance(data, Examples)
    assert address(data.to(torch.float32).targets) == masks.ctypes.data
    assert (
        data.span(0, 2)[1].dtype == data.batch(torch.tensor([1]))[1].dtype == data.labels.dtype == torch.int64
    )


@pytest.mark.parametrize("nested", [False, True])
def test_a_model_that_writes_into_its_inputs_does_not_write_into_a_file(tmp_path: Path, nested: bool) -> None:
    table = mapped(tmp_path, VALUES, "float32")
    data = examples((table, table, LABELS) if nested else (table, LABELS)).to(torch.float32)
    for inputs, _ in (data.span(0, 40), data.batch(torch.arange(40))):
        tensors = inputs if isinstance(inputs, tuple) else (inputs,)
        for tensor in tensors:
            tensor.zero_()  # in a read-only file, that would end the process
    assert np.array_equal(table, VALUES.astype(np.float32))


def test_a_federation_trains_on_a_file_as_on_an_array(tmp_path: Path) -> None:
    table = mapped(tmp_path, VALUES, "float64")

    def learn(inputs: Any) -> sy.Federation:
        torch.manual_seed(0)
        return sy.Federation({"a": (inputs, LABELS)}, nn.Linear(3, 2), test=(inputs, LABELS), rounds=2)

    federation = learn(table)
    train = federation.clients["a"].train
    assert isinstance(train, Examples)
    assert address(train.inputs) == table.ctypes.data
    assert torch.equal(federation.run().model.weight, learn(VALUES).run().model.weight)


def test_clients_do_not_copy_a_file(tmp_path: Path) -> None:
    table = mapped(tmp_path, VALUES, "float64")
    client = Client("a", (table, LABELS), (table, LABELS), (table, LABELS))
    [found] = as_clients([client], torch.float64).values()
    for part in (found.train, found.test, found.held_out):
        assert isinstance(part, Examples)
        assert address(part.inputs) == table.ctypes.data


@pytest.mark.parametrize("large", [True, False])
def test_a_large_tensor_is_converted_batch_by_batch_because_it_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr("steelyard.data.array_examples.CONVERTED_BYTES", 40 * (8 * 3 + 8) - large)
    table = mapped(tmp_path, VALUES, "float64", "r+")
    data = examples(torch.from_numpy(table), LABELS).to(torch.float32)
    assert isinstance(data, Examples)
    assert (address(data.inputs) == table.ctypes.data) == large
    assert torch.equal(data.batch(torch.tensor([3, 1]))[0], torch.from_numpy(VALUES).float()[[3, 1]])
    assert torch.equal(data.span(1, 4)[0], torch.from_numpy(VALUES).float()[1:4])


def test_targets_in_a_file_are_copied_only_if_there_is_one_for_each_example(tmp_path: Path) -> None:
    single, several = mapped(tmp_path, LABELS, "int32"), mapped(tmp_path, np.ones((40, 2)), "int32")
    for targets, copied in ((single, True), (several, False)):
        data = examples(VALUES, targets)
        assert isinstance(data, Examples)
        assert (address(data.targets) != targets.ctypes.data) == copied
        assert data.targets.nbytes <= 8 * 40


def test_arrays_that_cannot_be_written_need_no_warning() -> None:
    fixed = VALUES.astype(np.float32)
    fixed.flags.writeable = False
    data = examples((fixed, LABELS))
    assert isinstance(data, Examples)
    assert address(data.inputs) == fixed.ctypes.data
    assert torch.equal(pickle.loads(pickle.dumps(data)).inputs, data.inputs)


# Values that no model can use


def broken(rows: list[int]) -> Any:
    values = VALUES.copy()
    for row, value in zip(rows, (np.nan, np.inf, -np.inf), strict=False):
        values[row, row % 3] = value
    return values


def test_examples_that_are_not_finite_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.data.array_examples.BLOCK_BYTES", 7 * 32)  # seven rows at a time
    values, numbers = broken([3, 20, 39]), VALUES[:, 0].copy()
    numbers[[3, 4]] = np.nan
    assert count_unusable(examples((VALUES, LABELS))) == 0
    assert count_unusable(examples((values, LABELS))) == 3
    assert count_unusable(examples((VALUES, numbers))) == 2
    assert count_unusable(examples((values, numbers))) == 4
    assert count_unusable(examples((VALUES, values, numbers))) == 4
    assert count_unusable(examples({"a": VALUES, "b": values})) == 3
    assert count_unusable(examples((values, LABELS)).take(torch.tensor([39, 3, 5]))) == 2
    assert count_unusable(examples(mapped(tmp_path, values, "float64"), LABELS)) == 3
    assert count_unusable(examples((LABELS[:, None], LABELS))) == 0
    assert count_unusable(examples((values[:0], LABELS[:0]))) == 0


def test_a_number_that_is_too_large_for_the_model_is_counted() -> None:
    data = examples((np.array([[1e300], [1.0]]), [0, 1]))
    assert count_unusable(data.to(torch.float32)) == 1
    assert count_unusable(examples((np.array([[1e300], [1.0]]), [0, 1])).to(torch.float64)) == 0


def test_data_that_code_of_the_users_own_reads_are_not_read_to_count() -> None:
    class Untouched:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, row: int) -> Any:
            assert row == 0
            return torch.tensor([float("nan")]), 0

    assert count_unusable(examples(Untouched())) == 0
    assert count_unusable(examples(lambda: 1 / 0)) == 0
