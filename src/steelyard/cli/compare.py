"""The command `steelyard compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from steelyard.cli.shared import (
    Json,
    Latex,
    Out,
    Trust,
    check_files,
    guarded,
    permission,
    seed_numbers,
    show_values,
    split_words,
    stderr,
    warn,
)
from steelyard.cli.short_names import short_names, without_seed
from steelyard.cli.signals import CONTINUES, explained
from steelyard.errors import InputError

Rows = list[dict[str, Any]]
Words = Annotated[list[str], typer.Argument(metavar="A B... [KEY=VALUE]...", hidden=True)]
Seeds = Annotated[str, typer.Option(help="Training seeds, separated by commas.")]
Metric = Annotated[
    str | None, typer.Option(help="Scores of the last round, separated by commas; the usual if not set.")
]
Figure = Annotated[
    Path | None,
    typer.Option("--figure", "--png", help="Draw the scores over the rounds: .png, .pdf or .svg."),
]


@guarded
def compare(
    words: Words,
    seeds: Seeds = "0,1,2",
    metric: Metric = None,
    figure: Figure = None,
    latex: Latex = False,
    out: Out = Path("runs"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Run several specs on the same seeds and show mean ± standard deviation of their scores.

    Runs already recorded under --out are reused, so the same command continues an interrupted comparison.
    Folders of recorded runs can be compared as well: those with equal settings, but for the seeds, are one
    row. The figure has a line for each row, and a band of one standard deviation around it.

    [dim]Examples:[/]

        steelyard compare fedavg fedprox --seeds 0,1,2 data.partition.alpha=0.1
        steelyard compare fedavg poisoned --metric nll --figure curves.pdf
        steelyard compare runs/* --latex
    """
    check_files(figure)
    targets, overrides = split_words(words)
    names = None if metric is None else [name.strip() for name in metric.split(",")]
    if folders := _folders(targets, overrides):
        rows, numbers = _recorded(folders, names)
    else:
        numbers = seed_numbers(seeds)
        rows = _run(targets, numbers, overrides, out, trust, names)
    if figure is not None:
        _draw(rows, names, figure)
    _show(rows, numbers, figure, latex, as_json)
    for row in rows:
        for path, text in row["warnings"].items():
            warn(f"{path}: {text}")
    if any(row["warnings"] for row in rows):
        raise typer.Exit(1)


def _folders(targets: Sequence[str], overrides: dict[str, Any]) -> list[Path]:
    """The folders of recorded runs, if these are to be compared; none if specs are to be run."""
    if not targets:
        raise InputError("name at least one preset or spec file to compare.")
    folders = [Path(target) for target in targets if Path(target).is_dir()]
    if folders and (len(folders) < len(targets) or overrides):
        raise InputError("compare either recorded runs, without settings, or specs to run, not both.")
    return folders


def _run(
    targets: list[str],
    seeds: list[int],
    overrides: dict[str, Any],
    out: Path,
    trust: bool,
    metrics: list[str] | None,
) -> Rows:
    from steelyard.report.progress import progress
    from steelyard.studies.comparison import compare as compare_specs

    try:
        return compare_specs(
            targets,
            seeds,
            overrides,
            out,
            lambda spec: progress(stderr(), f"seed {spec.seed}, {spec.name}", spec.rounds),
            permission(trust),
            metrics,
        )
    except KeyboardInterrupt as interrupt:
        raise explained(interrupt, CONTINUES) from None


def _recorded(folders: Sequence[Path], metrics: list[str] | None) -> tuple[Rows, list[int]]:
    """A row for each group of recorded runs with equal settings, and the seeds of all."""
    from steelyard.runs.reader import Run
    from steelyard.studies.comparison import row_of
    from steelyard.studies.curves import groups_of

    groups = groups_of(list(dict.fromkeys(folders)))
    names = short_names([group[0] for group in groups])
    rows = [
        row_of(without_seed(name), [Run(path) for path in group], metrics)
        for name, group in zip(names, groups, strict=True)
    ]
    specs = [Run(path).spec for path in folders]
    return rows, sorted({int(spec["seed"]) for spec in specs if "seed" in spec})


def _draw(rows: Rows, metrics: list[str] | None, figure: Path) -> None:
    from steelyard.report.curves import draw_curves
    from steelyard.report.terminal import metric_names
    from steelyard.studies.curves import curve_of

    drawn = metrics or metric_names(rows)[:1]
    if not drawn:
        raise InputError("the runs have no score in common to draw; name one with --metric.")
    panels = {metric: {row["name"]: curve_of(row["runs"], metric) for row in rows} for metric in drawn}
    draw_curves(panels, "Scores over the rounds", figure)


def _show(rows: Rows, seeds: Sequence[int], figure: Path | None, latex: bool, as_json: bool) -> None:
    from steelyard.report.terminal import comparison_report, metric_names, written

    if latex and not as_json:
        from steelyard.report.latex import comparison_latex

        print(comparison_latex(rows, metric_names(rows)))
        return

    def view() -> Any:
        from rich.console import Group

        table = comparison_report(rows, seeds)
        return table if figure is None else Group(table, written(figure))

    file = None if figure is None else str(figure)
    show_values({"seeds": list(seeds), "rows": rows, "figure": file}, view, as_json)
