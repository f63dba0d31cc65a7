"""The command `steelyard reproduce`."""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.shared import Json, guarded, show_values, stderr
from steelyard.cli.signals import CONTINUES, explained
from steelyard.errors import InputError, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType

QUICK = "QUICK CHECK: small data, few rounds, not the experiment of the paper"
ROOT = Path(__file__).parents[3]


@guarded
def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER", help="One of experiments/: adapters, ba-bfl, chfl, fedbac, untrusted."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version, to check that it works.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the results; experiments/PAPER/results[-quick] if not set."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the experiments of a paper, and write tables and figures that compare its claims with our results.

    The experiments are in a clone of steelyard, in [cyan]experiments/PAPER[/]. The README there says what the
    paper claims and what we measured. Runs that are already recorded are reused.

    [dim]Example:[/]

        steelyard reproduce fedbac --quick
    """
    folder = _folder(paper)
    results = out or folder / ("results-quick" if quick else "results")
    with stderr().status("loading") as status, _program(folder) as program:
        from steelyard.report.style import noted

        try:
            with noted(QUICK if quick else ""):
                files = program.main(results, quick, lambda text: status.update(f"{paper}: {text.strip()}"))
        except KeyboardInterrupt as interrupt:
            raise explained(interrupt, CONTINUES) from None

    show_values(
        {"files": [str(file) for file in files], "quick": quick}, lambda: _view(files, quick), as_json
    )


def _view(files: Sequence[Path], quick: bool) -> "RenderableType":
    """The tables, with what a quick run is said once, and the names of all files."""
    from rich.console import Group
    from rich.text import Text

    from steelyard.report.charts import read_tables
    from steelyard.report.tables import NumberTable
    from steelyard.report.terminal import written

    parts: list[RenderableType] = [Text(QUICK, "bold red"), ""] if quick else []
    for file in files:
        tables = read_tables(file.read_text("utf-8")) if file.suffix == ".md" else []
        parts += [Text(file.stem, "bold")] if tables else []
        parts += [part for headings, rows in tables for part in (NumberTable(headings, rows, ""), "")]
    return Group(*parts[:-1], written(*files))


def _folder(paper: str) -> Path:
    """The paper's folder, in the current folder or in the clone that steelyard is installed from."""
    roots = [base / "experiments" for base in (Path.cwd(), ROOT) if (base / "experiments").is_dir()]
    if not roots:
        raise InputError("there is no folder experiments/ here: run this in a clone of steelyard.")
    papers = sorted(path.parent.name for path in roots[0].glob("*/reproduce.py"))
    if paper not in papers:
        raise unknown("paper", paper, papers)
    return roots[0] / paper


@contextmanager
def _program(folder: Path) -> Iterator[ModuleType]:
    """The module `reproduce.py` of a folder.

    Every paper has its own `studies.py`, `figures.py` and so on, imported by these plain names. They are
    importable within the context only, so that two papers in one process do not get each other's.
    """
    names = {path.stem for path in folder.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    spec = importlib.util.spec_from_file_location(f"{folder.name} reproduce", folder / "reproduce.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))  # also inherited by worker processes
    sys.modules[spec.name] = program
    try:
        spec.loader.exec_module(program)
        yield program
    finally:
        sys.path.remove(str(folder))
        for name in (spec.name, *names):
            sys.modules.pop(name, None)
        sys.modules.update(others)
