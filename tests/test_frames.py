"""Rows become a data frame of the library that is installed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest

import steelyard as sy
from steelyard import frames
from steelyard.frames import columns, frame

ROWS = [{"round": 1, "loss": 2}, {"round": 2, "loss": 0.5, "status": "=1+1"}, {"round": 3, "status": 7}]
COLUMNS = {"round": [1, 2, 3], "loss": [2.0, 0.5, None], "status": [None, "=1+1", "7"]}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that only these libraries are installed."""

    def install(*names: str) -> None:
        found = importlib.util.find_spec("json")
        monkeypatch.setattr(frames, "find_spec", lambda name: found if name in names else None)

    return install


def test_a_column_has_one_type_and_none_where_a_row_has_no_value() -> None:
    found = columns(ROWS)
    assert found == COLUMNS
    assert [type(value) for value in found["loss"]] == [float, float, type(None)]
    assert list(found) == ["round", "loss", "status"]
    assert columns([]) == {}


def test_with_pandas_it_is_a_pandas_frame() -> None:
    found = frame(ROWS)
    assert isinstance(found, pandas.DataFrame)
    assert list(found["round"]) == [1, 2, 3]
    assert found["loss"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("installed", "wanted"), [(("polars", "pyarrow"), "polars"), (("pyarrow",), "pyarrow")]
)
def test_without_pandas_it_is_a_frame_of_the_library_that_narwhals_finds(
    only: Callable[..., None], monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], wanted: str
) -> None:
    import narwhals

    def from_dict(data: Any, *, backend: str) -> SimpleNamespace:
        return SimpleNamespace(to_native=lambda: (backend, data))

    only("narwhals", *installed)
    monkeypatch.setattr(narwhals, "from_dict", from_dict)
    assert frame(ROWS) == (wanted, COLUMNS)


@pytest.mark.parametrize("installed", [(), ("narwhals",), ("polars",)])
def test_without_any_of_them_it_is_plain_columns(
    only: Callable[..., None], installed: tuple[str, ...]
) -> None:
    only(*installed)
    assert frame(ROWS) == COLUMNS


def test_results_and_recorded_runs_give_the_same_frames(tmp_path: Path) -> None:
    small = {"data.clients": 3, "training.steps": 1}
    result = sy.run("fedavg", rounds=2, out=tmp_path, **small)
    assert result.path is not None
    run = sy.Run(result.path)
    rounds, clients = result.to_frame(), result.clients_frame()
    assert list(rounds["accuracy"]) == [row["accuracy"] for row in result.history]
    assert len(clients) == 6
    assert set(clients["client"]) == {row["client"] for row in result.clients}
    pandas.testing.assert_frame_equal(rounds, run.rounds_frame())
    pandas.testing.assert_frame_equal(clients, run.clients_frame())


def test_to_pandas_is_a_pandas_frame_of_the_rounds_or_says_what_is_missing(
    only: Callable[..., None],
) -> None:
    result = sy.run("fedavg", out=None, rounds=2, **{"data.clients": 2})
    found = result.to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert list(found["round"]) == [1, 2]
    assert found["accuracy"].iloc[-1] == result.accuracy
    only("polars")
    with pytest.raises(ImportError, match="to_pandas needs pandas"):
        result.to_pandas()
