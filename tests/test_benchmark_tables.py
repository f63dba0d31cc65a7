"""The tables of benchmarks/simulation.py, and what benchmarks/quick.py says of a ratio."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ORDER = ("loop", "pool", "pfl", "blazefl")


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("contenders.slices")


@pytest.fixture
def tables(slices: ModuleType, tmp_path: Path) -> str:
    """Two slices of one setting: in the newer one the machine was twice as fast."""

    def one(seconds: float, rounds: int = 3, problem: str | None = None) -> object:
        accuracies = [0.1 * number for number in range(1, rounds + 1)]
        return slices.Pass([seconds] * (rounds - 1), accuracies, 1.0, None, 0.02, problem)

    old = {"loop": [one(1.0), one(2.0)], "pool": [one(0.5), one(0.5)], "pfl": [one(3.0, 0, "over 180 s")]}
    new = {"loop": [one(0.6)], "blazefl": [one(0.4, rounds=2)]}
    for at, results, skipped in (("2026-01-01", old, {}), ("2026-01-02", new, {"fluke": "no such package"})):
        found = slices.Slice("a", "small", "a machine", 1e9, 1e8, {}, results, skipped, at)
        found.write(slices.file_for(tmp_path, "a", list(results), ORDER))
    report = importlib.import_module("contenders.report")
    text: str = report.markdown(slices.read_all(tmp_path), ORDER)
    return text


def rows(text: str, title: str) -> list[str]:
    part = text.split(f"**{title}")[1].split("\n\n")[1]
    return part.splitlines()[2:]


def test_the_newer_slice_counts(tables: str) -> None:
    assert rows(tables, "Milliseconds") == ["| (a) small | 600 | 500 | over 180 s | 400 |"]


def test_a_ratio_is_formed_within_a_pass_of_a_slice(tables: str) -> None:
    assert rows(tables, "Times as fast") == ["| (a) | 3.00 | – | 1.50 |"]


def test_accuracies_are_those_of_a_round_that_all_have_finished(tables: str) -> None:
    assert rows(tables, "Test accuracy") == ["| (a) | 2 | 0.2000 | 0.2000 | – | 0.2000 |"]


def test_the_reason_of_a_missing_figure_is_given(tables: str) -> None:
    assert "* pfl in (a): over 180 s" in tables
    assert "* fluke is left out of (a): no such package" in tables


@pytest.mark.parametrize(("ratio", "falls"), [(5.6, True), (5.5, False), (4.0, False)])
def test_a_ratio_that_fell_by_more_than_a_tenth_is_named(
    slices: ModuleType, ratio: float, falls: bool
) -> None:
    quick = importlib.import_module("quick")
    now = quick.summary("pool", [{"loop": 100.0, "engine": 20.0, "others": 0.0}] * 3)
    said = quick.verdict({"a": now}, {"a": {"ratio": ratio}})
    assert said == ("Fell by more than 10 %: (a)." if falls else "Nothing fell by more than 10 %.")
