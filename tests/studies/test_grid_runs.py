"""Grids as they run: every cell once, in one or more processes, and the results over the seeds."""

import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from quick_grids import QUICK, small

import steelyard as sy
from steelyard.runs.reader import Run, runs_in
from steelyard.specs.schema import load_spec
from steelyard.studies import parallel_runs
from steelyard.studies.grid import Cell, grid_results, run_grid
from steelyard.studies.parallel_runs import Outcome, recorded_runs, run_all
from steelyard.threads import CORES_VARIABLE, cores


def deadly() -> None:
    """A model that kills its process."""
    os._exit(1)


def test_every_cell_is_recorded_and_nothing_runs_twice(tmp_path: Path) -> None:
    watched: list[tuple[int, int]] = []
    grid = small(rows="weighing=samples,uniform", columns="training.lr=0.1,0.2", seeds=[0])
    first = run_grid(grid, tmp_path, watch=lambda *counts: watched.append(counts))
    assert watched == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    for cell, outcome in first:
        assert outcome.path is not None
        recorded = Run(outcome.path)
        assert recorded.spec["weighing"]["name"] == cell.row
        assert recorded.spec["training"]["lr"] == float(cell.column)
        assert outcome.metrics["accuracy"] == recorded.rounds[-1]["accuracy"]
    watched.clear()
    assert run_grid(grid, tmp_path, watch=lambda *counts: watched.append(counts)) == first
    assert watched == [(0, 0)]
    assert len(runs_in(tmp_path)) == 4


def test_only_what_is_missing_is_run_and_equal_cells_are_one_run(tmp_path: Path) -> None:
    sy.run("fedavg", out=tmp_path, **QUICK)
    grid = small(rows={"a": {}, "b": {"about": "the same"}, "c": {"weighing": "uniform"}})
    results = run_grid(grid, tmp_path)
    assert len(runs_in(tmp_path)) == 2
    assert results[0][1] == results[1][1] != results[2][1]


def test_without_recording_the_numbers_are_the_same_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = small(rows="weighing=samples,uniform")
    unrecorded = run_grid(grid, None)
    assert list(tmp_path.iterdir()) == []
    recorded = run_grid(grid, tmp_path / "out")
    assert [each.metrics for _, each in unrecorded] == [each.metrics for _, each in recorded]
    assert {each.path for _, each in unrecorded} == {None}


def test_two_workers_give_the_numbers_of_one_and_a_dead_one_loses_only_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    good = small(rows="weighing=samples,uniform", seeds=[0, 1])
    alone = run_grid(good, None, workers=1)
    specs = [cell.spec for cell in good.cells()]
    bad = load_spec(None, {**QUICK, "model": f"{Path(__file__).stem}:deadly", "engine": "serial"})
    *others, died = run_all([*specs, bad], tmp_path, workers=2)
    assert died == Outcome(error="its process died")
    assert [each.metrics for each in others] == [each.metrics for _, each in alone]
    assert len(recorded_runs(tmp_path)[0]) == 4


def test_a_failing_cell_has_no_mean_but_the_reason(tmp_path: Path) -> None:
    grid = small(columns="data.clients=3,100000", rows="weighing=samples,uniform", seeds=[0])
    results = run_grid(grid, tmp_path)
    assert [bool(outcome.error) for _, outcome in results] == [False, True, False, True]
    means = grid_results(grid, results, "accuracy")
    failed = means.entry("", "samples", "100000")
    assert failed.mean is None
    assert "100000" in failed.error
    assert means.entry("", "samples", "3").mean is not None


def test_an_interruption_is_not_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    grid = small(rows="weighing=samples,uniform")
    with monkeypatch.context() as patch:
        patch.setattr("steelyard.studies.parallel_runs.run_or_resume", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_grid(grid, tmp_path)
    assert all(outcome.metrics for _, outcome in run_grid(grid, tmp_path))


def test_grid_results_have_means_and_deviations_over_the_seeds() -> None:
    grid = small(rows="weighing=samples,uniform", panels="training.lr=0.1", seeds=[0, 1])
    scores = {("samples", 0): 0.5, ("samples", 1): 0.75, ("uniform", 0): 0.25}

    def outcome(cell: Cell) -> Outcome:
        value = scores.get((cell.row, cell.spec.seed))
        return Outcome({} if value is None else {"accuracy": value})

    means = grid_results(grid, [(cell, outcome(cell)) for cell in grid.cells()], "accuracy")
    entry = means.entry("0.1", "samples", "")
    assert (entry.mean, entry.sd) == (0.625, statistics.stdev([0.5, 0.75]))
    assert means.entry("0.1", "uniform", "").mean is None, "one seed of two is not the mean of both"
    assert means.entry("0.1", "uniform", "").values == (0.25,)
    assert means.title("0.1") == "training.lr = 0.1"


@pytest.mark.parametrize(("workers", "each"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_runs_side_by_side_share_the_cores(
    workers: int, each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker process is limited to its share of the cores."""
    monkeypatch.setattr(parallel_runs, "cores", lambda: 4)
    with parallel_runs.processes(workers) as pool:
        assert pool.submit(os.getenv, CORES_VARIABLE).result() == str(each)


def test_a_process_does_not_use_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    available = cores()
    monkeypatch.setenv(CORES_VARIABLE, "1")
    assert cores() == 1
    monkeypatch.setenv(CORES_VARIABLE, "1000")
    assert cores() == available
