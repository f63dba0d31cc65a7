"""The command `steelyard grid`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.shared import (
    Json,
    Out,
    Trust,
    check_files,
    guarded,
    one_target,
    permission,
    seed_numbers,
    show_values,
    stderr,
)
from steelyard.cli.signals import explained
from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from steelyard.studies.grid import Cell, Grid
    from steelyard.studies.grid_results import GridResults
    from steelyard.studies.parallel_runs import Outcome

    Runs = Sequence[tuple[Cell, Outcome]]

Varies = Annotated[str | None, typer.Option(metavar="KEY=VALUE,VALUE...", help="A setting and its values.")]


@guarded
def grid(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET | SPEC.toml | GRID.toml] [KEY=VALUE]...", hidden=True),
    ] = None,
    rows: Varies = None,
    columns: Varies = None,
    panels: Varies = None,
    seeds: Annotated[str | None, typer.Option(help="Training seeds, separated by commas.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Scores of the last round, separated by commas; accuracy if not set.")
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(help="Draw heat maps into this file (.png, .pdf or .svg), one for each metric."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all cells into this file.")] = None,
    sort: Annotated[
        bool, typer.Option("--sort", help="Sort the rows by their worst column, best first.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of runs in parallel; one per core if not set.")
    ] = None,
    out: Out = Path("runs"),
    record: Annotated[bool, typer.Option(help="Record every cell as a run under --out.")] = True,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Run a spec over a grid of settings and show the scores as tables and heat maps.

    Every cell is an ordinary run. Runs already recorded under --out are reused, so the same command continues
    an interrupted grid. Cells show the mean over the seeds; each row also shows its worst column.

    A grid can be a file: a spec with an extra table. An axis is a setting and its values, or labels and
    the settings that each of them changes:

        preset = "fedavg"
        rounds = 10
        \\[grid]
        seeds = \\[0, 1]
        columns = { "data.partition" = \\["iid", "shards"] }
        \\[grid.rows]
        plain = { weighing = "samples" }
        careful = { weighing = "uniform", "server.clip" = 1.0 }

    [dim]Examples:[/]

        steelyard grid --rows weighing=samples,uniform --columns data.partition=iid,shards
        steelyard grid fedprox --rows objective.mu=0.01,0.1 --seeds 0,1 --png mu.png
        steelyard grid my-grid.toml rounds=5 --metric accuracy,nll --csv cells.csv
    """
    check_files(png, csv)
    with stderr().status("loading") as status:
        from steelyard.studies.grid import read_grid

        target, overrides = one_target(words)
        plan = read_grid(
            target,
            overrides,
            rows=rows,
            columns=columns,
            panels=panels,
            seeds=None if seeds is None else seed_numbers(seeds),
            metrics=None if metric is None else [name.strip() for name in metric.split(",")],
            trust=permission(trust, status),
        )
    runs = _run(plan, target or "grid", out if record else None, workers)
    _show(plan, runs, png, csv, sort, as_json)
    if failed := sum(bool(outcome.error) for _, outcome in runs):
        stderr().print(f"{failed} of {len(runs)} runs of the grid failed.")
        raise typer.Exit(1)


def _run(plan: "Grid", title: str, out: Path | None, workers: int | None) -> "Runs":
    from steelyard.report.grid_tables import cells_progress
    from steelyard.studies.grid import run_grid

    try:
        with cells_progress(stderr(), title) as watch:
            runs = run_grid(plan, out, workers, watch)
    except KeyboardInterrupt as interrupt:
        if out is None:
            raise
        raise explained(interrupt, "finished runs are recorded, and the same command continues.") from None
    if all(outcome.error for _, outcome in runs):
        raise SteelyardError(f"every run of the grid failed, the first with: {runs[0][1].error}")
    return runs


def _show(plan: "Grid", runs: "Runs", png: Path | None, csv: Path | None, sort: bool, as_json: bool) -> None:
    """Write the files, then print JSON or tables."""
    from steelyard.report.grid_tables import failures_report, grid_report, write_csv
    from steelyard.studies.grid import grid_results

    by_metric = [grid_results(plan, runs, name) for name in plan.metrics]
    shown = [results.sorted_by_worst() for results in by_metric] if sort else by_metric
    files = [] if png is None else _draw(runs, shown, png)
    if csv is not None:
        write_csv(by_metric, csv)
        files.append(csv)

    def view() -> "RenderableType":
        from rich.console import Group

        failed = [(f"{cell.name}, seed {cell.spec.seed}", run.error) for cell, run in runs if run.error]
        parts: list[RenderableType] = [part for results in shown for part in (grid_report(results), "")]
        parts += [failures_report(failed), ""] if failed else []
        return Group(*parts[:-1], *([""] if files else []), *(f"written: {file}" for file in files))

    show_values({**_values(plan, runs, by_metric), "files": list(map(str, files))}, view, as_json)


def _draw(runs: "Runs", by_metric: "Sequence[GridResults]", png: Path) -> list[Path]:
    """One figure for each metric that at least one run has."""
    from steelyard.report.heatmap import draw_heatmap

    spec = runs[0][0].spec
    seeds = list(dict.fromkeys(cell.spec.seed for cell, _ in runs))
    over = f"mean over seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
    files = []
    for results in by_metric:
        if results.values():
            path = png if len(by_metric) == 1 else png.with_stem(f"{png.stem}-{results.metric}")
            draw_heatmap(results, f"{spec.name}: {results.metric.replace('_', ' ')}", over, path)
            files.append(path)
    return files


def _values(plan: "Grid", runs: "Runs", by_metric: "Sequence[GridResults]") -> dict[str, Any]:
    """For JSON: each run, means and standard deviations, and the worst of each row."""
    return {
        "rows": list(plan.rows.labels),
        "columns": list(plan.columns.labels),
        "panels": list(plan.panels.labels),
        "runs": [
            {
                "panel": cell.panel,
                "row": cell.row,
                "column": cell.column,
                "seed": cell.spec.seed,
                "metrics": dict(run.metrics),
                "path": run.path,
                "error": run.error or None,
            }
            for cell, run in runs
        ],
        "metrics": {results.metric: results.as_values() for results in by_metric},
    }
