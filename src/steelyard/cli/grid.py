"""The command `steelyard grid`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.shared import (
    Json,
    Latex,
    Out,
    Trust,
    check_files,
    guarded,
    one_target,
    permission,
    seed_numbers,
    show_values,
    stderr,
    warn,
)
from steelyard.cli.signals import CONTINUES, explained
from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from steelyard.studies.grid import Cell, Grid
    from steelyard.studies.grid_results import GridResults
    from steelyard.studies.parallel_runs import Outcome

    Runs = Sequence[tuple[Cell, Outcome]]

MAX_WARNINGS = 5
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PRESET | SPEC.toml | GRID.toml] [KEY=VALUE]...", hidden=True),
]
KEY_AND_VALUES = "KEY=VALUE,VALUE..."
Rows = Annotated[
    str | None, typer.Option(metavar=KEY_AND_VALUES, help="The setting that differs between rows.")
]
Columns = Annotated[
    str | None, typer.Option(metavar=KEY_AND_VALUES, help="The setting that differs between columns.")
]
Panels = Annotated[
    str | None, typer.Option(metavar=KEY_AND_VALUES, help="The setting that differs between tables.")
]
Seeds = Annotated[str | None, typer.Option(help="Training seeds, separated by commas.")]
Metric = Annotated[
    str | None, typer.Option(help="Scores of the last round, separated by commas; accuracy if not set.")
]
Figure = Annotated[
    Path | None,
    typer.Option(
        "--figure", "--png", help="Draw heat maps into this file (.png, .pdf or .svg), one a metric."
    ),
]
Csv = Annotated[Path | None, typer.Option(help="Write all cells into this file.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the rows by their worst column, best first.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of runs in parallel; one per core if not set.")
]
Record = Annotated[bool, typer.Option(help="Record every cell as a run under --out.")]


@guarded
def grid(
    words: Words = None,
    rows: Rows = None,
    columns: Columns = None,
    panels: Panels = None,
    seeds: Seeds = None,
    metric: Metric = None,
    figure: Figure = None,
    latex: Latex = False,
    csv: Csv = None,
    sort: Sort = False,
    workers: Workers = None,
    out: Out = Path("runs"),
    record: Record = True,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Run a spec over a grid of settings and show the scores as tables and heat maps.

    Every cell is an ordinary run. Runs already recorded under --out are reused, so the same command continues
    an interrupted grid. Cells show mean ± standard deviation over the seeds; each row also shows its worst
    column.

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

        steelyard grid --rows weighing=samples,krum --columns rounds=5,20
        steelyard grid fedprox --rows objective.mu=0.01,0.1 --figure mu.png
        steelyard grid my-grid.toml rounds=5 --metric accuracy,nll --csv cells.csv
    """
    check_files(figure, csv)
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
    _show(plan, runs, figure, csv, sort, latex, as_json)
    _exit_if_wrong(runs)


def _exit_if_wrong(runs: "Runs") -> None:
    """Say how many runs failed, or have a model that is not what it seems to be, and exit with code 1."""
    failed = sum(bool(outcome.error) for _, outcome in runs)
    warned = [(cell, outcome.warning) for cell, outcome in runs if outcome.warning]
    for cell, text in warned[:MAX_WARNINGS]:
        warn(f"{cell.name}, seed {cell.spec.seed}: {text}")
    if len(warned) > MAX_WARNINGS:
        warn(f"{len(warned)} of {len(runs)} runs of the grid have such warnings; `steelyard show` has them.")
    if failed:
        stderr().print(f"{failed} of {len(runs)} runs of the grid failed.")
    if failed or warned:
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
        raise explained(interrupt, CONTINUES) from None
    if all(outcome.error for _, outcome in runs):
        raise SteelyardError(f"every run of the grid failed, the first with: {runs[0][1].error}")
    return runs


def _show(
    plan: "Grid",
    runs: "Runs",
    figure: Path | None,
    csv: Path | None,
    sort: bool,
    latex: bool,
    as_json: bool,
) -> None:
    """Write the files, then print JSON, LaTeX or tables."""
    from steelyard.report.grid_tables import failures_report, grid_report, write_csv
    from steelyard.studies.grid import grid_results

    by_metric = [grid_results(plan, runs, name) for name in plan.metrics]
    shown = [results.sorted_by_worst() for results in by_metric] if sort else by_metric
    files = [] if figure is None else _draw(plan.name, shown, figure)
    if csv is not None:
        write_csv(by_metric, csv)
        files.append(csv)

    if latex and not as_json:
        from steelyard.report.latex import grid_latex

        print("\n\n".join(map(grid_latex, shown)))
        return

    def view() -> "RenderableType":
        from rich.console import Group

        from steelyard.report.terminal import written

        failed = [(f"{cell.name}, seed {cell.spec.seed}", run.error) for cell, run in runs if run.error]
        parts: list[RenderableType] = [part for results in shown for part in (grid_report(results), "")]
        parts += [failures_report(failed), ""] if failed else []
        return Group(*parts[:-1], *([written(*files)] if files else []))

    show_values({**_values(plan, runs, by_metric), "files": list(map(str, files))}, view, as_json)


def _draw(name: str, by_metric: "Sequence[GridResults]", figure: Path) -> list[Path]:
    """One figure for each metric that at least one run has."""
    from steelyard.report.heatmap import draw_heatmap

    files = []
    for results in by_metric:
        if results.values():
            path = figure if len(by_metric) == 1 else figure.with_stem(f"{figure.stem}-{results.metric}")
            draw_heatmap(results, name, results.caption, path)
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
                "warning": run.warning or None,
            }
            for cell, run in runs
        ],
        "metrics": {results.metric: results.as_values() for results in by_metric},
    }
