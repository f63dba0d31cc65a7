"""Data frames of pandas and polars: one matrix, targets by name, and the same columns at all clients."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.data.clients import Client, Population, as_clients, in_form_of
from steelyard.data.examples import Examples, examples
from steelyard.errors import InputError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

Make = Callable[[dict[str, Any]], Any]
TABLE = {"age": [30, 40, 50], "smokes": [True, False, True], "dose": [0.5, 1.5, 2.5], "ill": [0, 1, 1]}
MATRIX = torch.tensor([[30, 1, 0.5], [40, 0, 1.5], [50, 1, 2.5]])
both = pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])


def made(data: Any) -> Examples:
    assert isinstance(data, Examples)
    return data


@both
def test_numbers_and_truth_values_become_one_matrix_in_the_order_of_the_columns(make: Make) -> None:
    frame = make(TABLE)
    for given in (
        examples(frame, target="ill"),
        examples((frame, "ill")),
        examples(frame, "ill"),
        Client("rome", frame, target="ill").train,
        Client("rome", (frame, "ill")).train,
    ):
        data = made(given)
        assert data.columns == ("age", "smokes", "dose")
        assert data.inputs.dtype == torch.float32
        assert torch.equal(data.inputs, MATRIX)
        assert data.labels.dtype == torch.int64
        assert data.labels.tolist() == [0, 1, 1]
        assert data.input_shape == (3,)
    assert made(examples((np.ones((2, 2)), [0, 1]))).columns is None


@both
def test_targets_may_be_a_series_a_frame_or_an_array(make: Make) -> None:
    frame = make({name: TABLE[name] for name in ("age", "smokes", "dose")})
    target = make({"ill": TABLE["ill"]})
    for targets in (target["ill"], target, [0, 1, 1], np.array([0, 1, 1]), torch.tensor([0, 1, 1])):
        data = made(examples((frame, targets)))
        assert data.columns == ("age", "smokes", "dose")
        assert data.labels.tolist() == [0, 1, 1]
    assert made(examples(MATRIX, target["ill"])).labels.tolist() == [0, 1, 1]


@both
def test_several_targets_are_numbers_in_columns(make: Make) -> None:
    for given in (
        examples((make(TABLE), ["dose", "ill"])),
        examples(make(TABLE), target=["dose", "ill"]),
    ):
        data = made(given)
        assert data.columns == ("age", "smokes")
        assert data.labels.dtype == torch.float32
        assert data.labels.tolist() == [[0.5, 0], [1.5, 1], [2.5, 1]]


@both
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, 0, 1], torch.tensor([2, 0, 1])),
        ([True, False, True], torch.tensor([1, 0, 1])),
        ([1.0, 0.0, 1.0], torch.tensor([1, 0, 1])),
        ([0.5, 0.0, 1.0], torch.tensor([0.5, 0.0, 1.0])),
        ([1.0, 2.0, 3.0], torch.tensor([1.0, 2.0, 3.0])),
    ],
)
def test_whole_targets_and_0_and_1_are_classes_and_others_numbers(
    make: Make, values: list[Any], expected: torch.Tensor
) -> None:
    data = examples(make({"x": [1.0, 2.0, 3.0], "y": values}), target="y").to(torch.float32)
    assert data.labels.dtype == expected.dtype
    assert torch.equal(data.labels, expected)


def test_nullable_arrow_and_decimal_columns_are_numbers_too() -> None:
    frame = pd.DataFrame(
        {
            "a": pd.array([1, 2], dtype="Int64"),
            "b": pd.array([0.5, 1.5], dtype="Float64"),
            "c": pd.array([True, False], dtype="boolean"),
            "d": pd.array([3, 4], dtype="int64[pyarrow]"),
            "y": pd.array([1, 0], dtype="Int64"),
        }
    )
    assert made(examples(frame, target="y")).inputs.tolist() == [[1, 0.5, 1, 3], [2, 1.5, 0, 4]]
    frame = pl.DataFrame(
        {"a": [Decimal("1.5"), Decimal("2.5")], "b": pl.Series([1, 2], dtype=pl.UInt8), "y": [0, 1]}
    )
    assert made(examples(frame, target="y")).inputs.tolist() == [[1.5, 1], [2.5, 2]]


DATES = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[ns]")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Series(["a", "b", "c"]), r"rome: column 'job' is not numeric but text .*pandas.get_dummies"),
        (pd.Series(["a", "b", None]), r"rome: column 'job' is not numeric but text"),
        (pd.Series(["a", "b", "c"], dtype="category"), r"rome: column 'job' is not numeric but categories"),
        (pd.Series(DATES), r"rome: column 'job' is not numeric but dates"),
        (pd.Series([1.0, None, 2.0]), r"rome: column 'job' has 1 missing values of 3; fill them in"),
        (pd.Series([None, None, None]), r"rome: column 'job' has 3 missing values of 3"),
        (pd.array([1, None, None], dtype="Int64"), r"rome: column 'job' has 2 missing values of 3"),
    ],
)
def test_columns_of_pandas_that_are_no_numbers_are_refused_by_name(column: Any, message: str) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "job": column, "ill": [0, 1, 1]})
    with pytest.raises(InputError, match=message):
        examples(frame, target="ill", name="rome")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.Series(["a", "b", "c"]), r"rome: column 'job' is not numeric but text .*to_dummies"),
        (
            pl.Series(["a", "b", "c"], dtype=pl.Categorical),
            r"rome: column 'job' is not numeric but categories",
        ),
        (pl.Series(["a", "b", "c"], dtype=pl.Enum(["a", "b", "c"])), r"rome: column 'job' .* categories"),
        (pl.Series(DATES), r"rome: column 'job' is not numeric but dates"),
        (pl.Series([1.0, None, float("nan")]), r"rome: column 'job' has 2 missing values of 3"),
        (pl.Series([None, None, None]), r"rome: column 'job' has 3 missing values of 3"),
        (pl.Series([[1], [2], [3]]), r"rome: column 'job' is not numeric"),
    ],
)
def test_columns_of_polars_that_are_no_numbers_are_refused_by_name(column: Any, message: str) -> None:
    frame = pl.DataFrame({"x": [1, 2, 3], "job": column, "ill": [0, 1, 1]})
    with pytest.raises(InputError, match=message):
        examples(frame, target="ill", name="rome")


@both
def test_targets_that_cannot_be_used_are_refused_by_name(make: Make) -> None:
    words = make({"x": [1, 2], "kind": ["cat", "dog"]})
    with pytest.raises(InputError, match=r"rome: target column 'kind' .*map the classes to numbers 0, 1"):
        examples(words, target="kind", name="rome")
    with pytest.raises(InputError, match=r"rome: target column 'kind' .*map the classes to numbers 0, 1"):
        examples(MATRIX[:2], words["kind"], name="rome")
    gaps = make({"x": [1, 2], "y": [1.5, None]})
    with pytest.raises(InputError, match=r"rome: target column 'y' has 1 missing values of 2"):
        examples(gaps, target="y", name="rome")
    with pytest.raises(InputError, match=r"unknown column 'il' of rome: did you mean 'ill'"):
        examples(make(TABLE), target="il", name="rome")
    with pytest.raises(InputError, match=r"unknown column 'il' of rome: did you mean 'ill'"):
        examples((make(TABLE), ["dose", "il"]), name="rome")
    with pytest.raises(InputError, match=r"rome: say which column is the target"):
        examples(make(TABLE), name="rome")
    with pytest.raises(InputError, match=r"rome: 3 inputs but 2 targets"):
        examples((make(TABLE), [0, 1]), name="rome")
    with pytest.raises(InputError, match=r"rome: .* leave no inputs"):
        examples(make({"y": [0, 1]}), target="y", name="rome")
    with pytest.raises(InputError, match=r"rome: target='ill' names a column, but targets are given"):
        examples((make(TABLE), [0, 1, 1]), target="ill", name="rome")


def test_a_lazy_frame_and_columns_with_one_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"rome: the frame is lazy; give frame.collect\(\)"):
        examples(pl.LazyFrame(TABLE), target="ill", name="rome")
    twice = pd.DataFrame([[1, 2, 0]], columns=["a", "a", "y"])
    with pytest.raises(InputError, match=r"rome: two columns are called 'a'"):
        examples(twice, target="y", name="rome")


def test_the_index_of_pandas_does_not_matter() -> None:
    frame = pd.DataFrame(TABLE, index=[7, 3, 5])
    assert torch.equal(made(examples(frame, target="ill")).inputs, MATRIX)
    assert made(examples((MATRIX, frame["ill"]))).labels.tolist() == [0, 1, 1]


# The same columns at all clients

OTHER = {name: TABLE[name] for name in ("dose", "ill", "age", "smokes")}


@both
def test_columns_in_another_order_are_put_in_the_order_of_the_first_client(make: Make) -> None:
    clients = as_clients(
        [
            Client("oslo", (make(TABLE), "ill"), (make(OTHER), "ill"), (make(OTHER), "ill")),
            Client("rome", (make(OTHER), "ill"), lambda: (make(TABLE), "ill")),
        ]
    )
    parts = [part for client in clients.values() for part in (client.train, client.test, client.held_out)]
    for part in parts[:-1]:
        assert torch.equal(made(part).inputs, MATRIX)
        assert made(part).columns == ("age", "smokes", "dose")
    test = in_form_of(clients, examples(make(OTHER), target="ill"))
    assert torch.equal(made(test).inputs, MATRIX)


def test_clients_of_a_population_have_the_order_of_the_first_that_was_created() -> None:
    tables = {"oslo": pd.DataFrame(OTHER), "rome": pd.DataFrame(TABLE)}
    clients = as_clients(Population(tables, lambda id: (tables[id], "ill")), torch.float64)
    test = in_form_of(clients, examples(pd.DataFrame(TABLE), target="ill"))
    for part in (clients["rome"].train, clients["oslo"].train, test):
        assert made(part).columns == ("dose", "age", "smokes")
        assert torch.equal(made(part).batch(torch.arange(3))[0].float(), MATRIX[:, [2, 0, 1]])


@both
@pytest.mark.parametrize("lazy", [False, True], ids=["clients", "population"])
def test_columns_have_the_order_that_the_user_names(make: Make, lazy: bool) -> None:
    tables = {"oslo": (make(OTHER), "ill"), "rome": (make(TABLE), "ill")}
    given: Any = Population(tables, tables.__getitem__) if lazy else tables
    clients = as_clients(given, columns=("age", "smokes", "dose"))
    test = in_form_of(clients, examples(make(OTHER), target="ill"))
    for part in (clients["oslo"].train, clients["rome"].train, test):
        assert torch.equal(made(part).inputs, MATRIX)
    with pytest.raises(InputError, match=r"'oslo', train has a column 'smokes', which task\.columns has not"):
        as_clients(given, columns=["age", "dose"])["oslo"]
    task = sy.Task(columns=["age", "smokes", "dose"])
    for own in (given, {"oslo": (MATRIX, [0, 1, 1])}):
        federation = sy.Federation(own, nn.Linear(3, 2), test=tables["oslo"], task=task)
        assert torch.equal(made(federation.test).inputs, MATRIX)


@pytest.mark.parametrize("columns", ["age", [], ["age", 3], ["age", "dose", "age"]])
def test_columns_that_are_no_list_of_names_are_refused(columns: Any) -> None:
    with pytest.raises(InputError, match=r"task: columns .*name"):
        sy.Task(columns=columns)


@both
def test_other_columns_are_refused_by_client_and_name(make: Make) -> None:
    fewer = {name: TABLE[name] for name in ("age", "dose", "ill")}
    with pytest.raises(
        InputError, match="client 'rome', train has no column 'smokes', which client 'oslo' has"
    ):
        as_clients({"oslo": (make(TABLE), "ill"), "rome": (make(fewer), "ill")})
    with pytest.raises(InputError, match="'rome', train has a column 'smokes', which client 'oslo' has not"):
        as_clients({"oslo": (make(fewer), "ill"), "rome": (make(TABLE), "ill")})
    with pytest.raises(
        InputError, match="client 'oslo', test has no column 'smokes', which client 'oslo', train"
    ):
        Client("oslo", make(TABLE), make(fewer), target="ill")
    with pytest.raises(InputError, match="the test set has no column 'smokes', which client 'oslo' has"):
        in_form_of(as_clients({"oslo": (make(TABLE), "ill")}), examples(make(fewer), target="ill"))


def test_test_and_validation_sets_of_a_federation_have_the_order_of_its_clients() -> None:
    clients, other = {"oslo": (pd.DataFrame(TABLE), "ill")}, (pd.DataFrame(OTHER), "ill")
    federation = sy.Federation(clients, nn.Linear(3, 2), test=other, validation=other)
    for part in (federation.test, federation.validation):
        assert torch.equal(made(part).inputs, MATRIX)
    odd = (pd.DataFrame({"age": [1, 2], "ill": [0, 1]}), "ill")
    with pytest.raises(
        InputError, match="the validation set has no column 'smokes', which client 'oslo' has"
    ):
        sy.Federation(clients, nn.Linear(3, 2), validation=odd)


def test_clients_with_models_of_their_own_may_have_columns_of_their_own() -> None:
    oslo = Client("oslo", pd.DataFrame(TABLE), model=nn.Linear(3, 2), target="ill")
    rome = Client("rome", pd.DataFrame({"x": [1, 2], "ill": [0, 1]}), model=nn.Linear(1, 2), target="ill")
    assert made(as_clients([oslo, rome])["rome"].train).columns == ("x",)


def test_0_and_1_are_numbers_where_other_clients_have_numbers() -> None:
    clients = as_clients(
        {
            "oslo": (pd.DataFrame({"x": [1.0, 2.0], "y": [0.0, 1.0]}), "y"),
            "rome": (pd.DataFrame({"x": [1.0, 2.0], "y": [0.5, 1.0]}), "y"),
        }
    )
    for client in clients.values():
        assert client.train.to(torch.float32).batch(torch.arange(2))[1].dtype == torch.float32  # type: ignore[union-attr]


def test_a_federation_learns_the_same_from_frames_in_any_order_and_from_arrays() -> None:
    rng = np.random.default_rng(0)
    tables = {name: dict(zip("abcd", rng.standard_normal((4, 20)), strict=True)) for name in ("oslo", "rome")}
    for table in tables.values():
        table["ill"] = (table["a"] - table["c"] > 0).astype(int)

    def learn(clients: dict[str, Any], test: Any) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        return sy.Federation(clients, model, test=test, rounds=2).run().model

    def as_arrays(table: dict[str, Any]) -> tuple[Any, Any]:
        return np.stack([table[name] for name in "abcd"], 1).astype(np.float32), table["ill"]

    arrays = {name: as_arrays(table) for name, table in tables.items()}
    shuffled = {name: tables["rome"][name] for name in ("c", "ill", "a", "d", "b")}
    frames = {
        "oslo": (pd.DataFrame(tables["oslo"]), "ill"),
        "rome": (pl.DataFrame(shuffled), "ill"),
    }
    wanted, found = learn(arrays, arrays["rome"]), learn(frames, (pd.DataFrame(shuffled), "ill"))
    for mine, other in zip(wanted.parameters(), found.parameters(), strict=True):
        assert torch.equal(mine, other)
