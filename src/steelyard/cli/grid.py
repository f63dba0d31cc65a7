"""steelyard grid"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.shared import Json, Out, guarded, one_target, seed_numbers, show_values, stderr
from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from steelyard.studies.grid import Cell, Grid
    from steelyard.studies.grid_results import Sheet
    from steelyard.studies.parallel_runs import Outcome

    Results = Sequence[tuple[Cell, Outcome]]

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
        Path | None, typer.Option(help="Heat maps to draw; of several metrics, each in a file of its own.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="A table of all cells to write.")] = None,
    sort: Annotated[
        bool, typer.Option("--sort", help="Put the rows with the best worst case first.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time; as many as there are cores if not set.")
    ] = None,
    out: Out = Path("runs"),
    record: Annotated[bool, typer.Option(help="Record every cell as a run under --out.")] = True,
    as_json: Json = False,
) -> None:
    """Run a spec over a grid of choices and show it as heat maps.

    Every cell is an ordinary run: what is already recorded under --out is not run again, so an interrupted
    grid goes on where it was. Cells show the mean over the seeds, and each row also its worst column.

    A grid can be a file: a spec with one more table. An axis gives labels and what each changes, or a
    setting and its values:

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
    with stderr().status("loading"):
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
        )
    results = _run(plan, target or "grid", out if record else None, workers)
    _show(plan, results, png, csv, sort, as_json)


def _run(plan: "Grid", title: str, out: Path | None, workers: int | None) -> "Results":
    from steelyard.report.grid_tables import cells_progress
    from steelyard.studies.grid import run_grid

    try:
        with cells_progress(stderr(), title) as watch:
            results = run_grid(plan, out, workers, watch)
    except KeyboardInterrupt:
        hint = "; what is finished is recorded, and the same command goes on." if out else "."
        raise SteelyardError(f"interrupted{hint}") from None
    if all(outcome.error for _, outcome in results):
        raise SteelyardError(f"every run of the grid failed, the first with: {results[0][1].error}")
    return results


def _show(
    plan: "Grid", results: "Results", png: Path | None, csv: Path | None, sort: bool, as_json: bool
) -> None:
    """Files, then JSON or tables."""
    from steelyard.report.grid_tables import failures_report, sheet_report, write_csv
    from steelyard.studies.grid import sheet_of

    sheets = [sheet_of(plan, results, name) for name in plan.metrics]
    shown = [sheet.sorted_by_worst() for sheet in sheets] if sort else sheets
    files = [] if png is None else _draw(plan, results, shown, png)
    if csv is not None:
        write_csv(sheets, csv)
        files.append(csv)

    def view() -> "RenderableType":
        from rich.console import Group

        failed = [(f"{cell.name}, seed {cell.spec.seed}", each.error) for cell, each in results if each.error]
        parts: list[RenderableType] = [part for sheet in shown for part in (sheet_report(sheet), "")]
        parts += [failures_report(failed), ""] if failed else []
        return Group(*parts[:-1], *([""] if files else []), *(f"written: {file}" for file in files))

    show_values({**_values(plan, results, sheets), "files": list(map(str, files))}, view, as_json)


def _draw(plan: "Grid", results: "Results", sheets: "Sequence[Sheet]", png: Path) -> list[Path]:
    """One picture for each metric that some run has."""
    from steelyard.report.heatmap import draw_heatmap

    spec = results[0][0].spec
    seeds = list(dict.fromkeys(cell.spec.seed for cell, _ in results))
    over = f"mean over seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
    files = []
    for sheet in sheets:
        if sheet.values():
            path = png if len(sheets) == 1 else png.with_stem(f"{png.stem}-{sheet.metric}")
            draw_heatmap(sheet, f"{spec.name}: {sheet.metric.replace('_', ' ')}", over, path)
            files.append(path)
    return files


def _values(plan: "Grid", results: "Results", sheets: "Sequence[Sheet]") -> dict[str, Any]:
    """Everything as plain values: each run, means and deviations, and the worst of each row."""
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
                "metrics": dict(each.metrics),
                "path": each.path,
                "error": each.error or None,
            }
            for cell, each in results
        ],
        "metrics": {sheet.metric: sheet.as_values() for sheet in sheets},
    }
