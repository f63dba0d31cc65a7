import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.runs.reader import Run
from steelyard.server.observing import Observer
from steelyard.specs.schema import Spec
from steelyard.studies import comparison
from steelyard.studies.comparison import compare
from steelyard.types import Round

Rows = list[dict[str, Any]]

QUICK: dict[str, Any] = {"rounds": 1, "data.clients": 3, "training.steps": 2}


class Watcher:
    """Remembers which runs were started, and may stop one."""

    def __init__(self, stop_at: tuple[str, int] | None = None) -> None:
        self.started: list[tuple[str, int]] = []
        self.rounds = 0
        self.stop_at = stop_at

    @contextmanager
    def __call__(self, spec: Spec) -> Iterator[Observer]:
        self.started.append((spec.name.partition("+")[0], spec.seed))
        yield self._observe

    def _observe(self, round: Round) -> None:
        self.rounds += 1
        if self.started[-1] == self.stop_at:
            raise KeyboardInterrupt


def versus(out: Path, watch: Watcher, seeds: tuple[int, ...] = (0, 1), **changes: Any) -> Rows:
    return compare(["fedavg", "fedprox"], seeds, {**QUICK, **changes}, out, watch)


def test_means_and_deviations_are_those_of_the_final_rounds(tmp_path: Path) -> None:
    rows = versus(tmp_path, Watcher(), seeds=(0, 1, 2))
    assert [row["name"] for row in rows] == ["fedavg", "fedprox"]
    for row in rows:
        assert len(row["runs"]) == 3
        finals = [Run(path).rounds[-1] for path in row["runs"]]
        for metric in ("accuracy", "nll", "client_accuracy_worst10", "client_accuracy_sd"):
            values = [final[metric] for final in finals]
            mean = sum(values) / 3
            sd = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
            assert row["metrics"][metric]["mean"] == pytest.approx(mean)
            assert row["metrics"][metric]["sd"] == pytest.approx(sd)


def test_every_contender_runs_with_the_same_seeds_and_changes(tmp_path: Path) -> None:
    watch = Watcher()
    rows = versus(tmp_path, watch, seeds=(4, 2))
    assert watch.started == [("fedavg", 4), ("fedavg", 2), ("fedprox", 4), ("fedprox", 2)]
    for row in rows:
        specs = [Run(path).spec for path in row["runs"]]
        assert [(spec["seed"], spec["rounds"], spec["data"]["clients"]) for spec in specs] == [
            (4, 1, 3),
            (2, 1, 3),
        ]


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    (row, _) = versus(tmp_path, Watcher(), seeds=(0,))
    assert row["metrics"]["accuracy"]["sd"] is None
    assert row["metrics"]["accuracy"]["mean"] == Run(row["runs"][0]).rounds[-1]["accuracy"]


def test_what_is_recorded_is_not_run_again(tmp_path: Path) -> None:
    first = versus(tmp_path, Watcher())
    watch = Watcher()
    assert versus(tmp_path, watch) == first
    assert (watch.started, watch.rounds) == ([], 0)
    assert len(list(tmp_path.iterdir())) == 4


def test_only_the_missing_seed_is_run(tmp_path: Path) -> None:
    versus(tmp_path, Watcher(), seeds=(0, 1))
    watch = Watcher()
    versus(tmp_path, watch, seeds=(0, 1, 2))
    assert watch.started == [("fedavg", 2), ("fedprox", 2)]


def test_a_run_started_on_its_own_counts_too(tmp_path: Path) -> None:
    mine = sy.run({"name": "whatever"}, out=tmp_path, **QUICK)
    watch = Watcher()
    (row, _) = versus(tmp_path, watch, seeds=(0,))
    assert row["runs"] == [str(mine.path)]
    assert watch.started == [("fedprox", 0)]


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        versus(tmp_path, Watcher(stop_at=("fedavg", 1)))
    watch = Watcher()
    rows = versus(tmp_path, watch)
    assert watch.started == [("fedavg", 1), ("fedprox", 0), ("fedprox", 1)]
    assert {Run(path).meta["status"] for row in rows for path in row["runs"]} == {"finished"}


def test_a_run_of_another_version_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versus(tmp_path, Watcher(), seeds=(0,))
    monkeypatch.setattr("steelyard.__version__", "99.0")
    watch = Watcher()
    versus(tmp_path, watch, seeds=(0,))
    assert len(watch.started) == 2


def test_a_run_with_another_setting_is_not_reused(tmp_path: Path) -> None:
    versus(tmp_path, Watcher(), seeds=(0,))
    watch = Watcher()
    versus(tmp_path, watch, seeds=(0,), **{"training.lr": 0.2})
    assert len(watch.started) == 2


def test_folders_that_cannot_be_read_are_ignored(tmp_path: Path) -> None:
    for name, content in (("broken", b"nonsense" * 200), ("empty", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.sqlite").write_bytes(content)
    (tmp_path / "other").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    watch = Watcher()
    versus(tmp_path, watch, seeds=(0,))
    assert len(watch.started) == 2


def test_a_wrong_spec_is_found_before_anything_runs(tmp_path: Path) -> None:
    watch = Watcher()
    with pytest.raises(sy.InputError, match="fedproxx"):
        compare(["fedavg", "fedproxx"], [0], QUICK, tmp_path, watch)
    assert watch.started == []


def test_a_table_is_called_by_its_own_name(tmp_path: Path) -> None:
    rows = compare([{"name": "mine", "rounds": 1}], [0], {"data.clients": 2}, tmp_path)
    assert [row["name"] for row in rows] == ["mine"]


def test_a_score_that_some_run_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = versus(tmp_path, Watcher(), seeds=(0, 1))[0]["runs"]
    scores = {runs[0]: {"accuracy": 0.5, "nll": 1.0}, runs[1]: {"accuracy": 0.75}}
    by_rows = {Run(path).rounds[-1]["nll"]: values for path, values in scores.items()}
    monkeypatch.setattr(
        comparison, "final_scores", lambda rows: {"metrics": by_rows.get(rows[-1]["nll"], {})}
    )
    (row, _) = versus(tmp_path, Watcher(), seeds=(0, 1))
    assert row["metrics"] == {"accuracy": {"mean": 0.625, "sd": statistics.stdev([0.5, 0.75])}}
