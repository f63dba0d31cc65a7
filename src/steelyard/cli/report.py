"""`steelyard report`: the page of recorded runs, as one file."""

from pathlib import Path
from typing import Annotated

import typer

from steelyard.cli.shared import Json, check_files, guarded, show_values, stderr
from steelyard.errors import InputError


@guarded
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of recorded runs.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The HTML file (default: report.html in the run's folder, or here)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page that shows who counted, how much, and why.

    It is one file that needs no network: send it, print it, open it in any
    browser. It has a sentence for each client, the weights of all clients in all
    rounds, the evidence for them, the model's scores, and the spec and command
    that repeat the run. Several runs are shown side by side.

    [dim]Examples:[/]

        steelyard report runs/20261115-220936-fedavg-s0
        steelyard report runs/*-s0 --out comparison.html
    """
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a report is a file that ends with .html, not {str(target)!r}.")
    with stderr().status("writing the report"):
        from steelyard.page.report import write_report
        from steelyard.runs.reader import Run

        paths = [Run(path).path for path in runs]
        check_files(None, target)
        write_report(paths, target)
    size = target.stat().st_size
    values = {"report": str(target), "bytes": size, "runs": [str(path) for path in paths]}
    show_values(values, lambda: f"wrote {target} ({size / 1e6:.1f} MB)", as_json)
