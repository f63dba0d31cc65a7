"""steelyard reproduce"""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from steelyard.cli.shared import Json, guarded, show_values, stderr
from steelyard.errors import InputError, unknown

ROOT = Path(__file__).parents[3]


@guarded
def reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help="One of experiments/: ba-bfl, chfl, fedbac, untrusted.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, to see that it works.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where results go; the paper's folder, under results or results-quick."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a paper's experiments again and write its tables and figures beside ours.

    The experiments are in a clone of steelyard, in [cyan]experiments/PAPER[/], with a README that says what
    was claimed and what we measured. What is recorded already is not run again.

    [dim]Example:[/]

        steelyard reproduce fedbac --quick
    """
    folder = _folder(paper)
    place = out or folder / ("results-quick" if quick else "results")
    with stderr().status("loading") as status:
        sys.path.insert(0, str(folder))  # where the program finds its neighbours
        files = importlib.import_module("reproduce").main(
            place, quick, lambda text: status.update(f"{paper}: {text.strip()}")
        )
    show_values(
        {"files": [str(file) for file in files]}, lambda: "\n".join(f"written: {f}" for f in files), as_json
    )


def _folder(paper: str) -> Path:
    """The paper's folder: where the user stands, or in the clone that this is installed from."""
    places = [base / "experiments" for base in (Path.cwd(), ROOT) if (base / "experiments").is_dir()]
    if not places:
        raise InputError("there is no folder experiments/ here: run this in a clone of steelyard.")
    known = sorted(path.parent.name for path in places[0].glob("*/reproduce.py"))
    if paper not in known:
        raise unknown("paper", paper, known)
    return places[0] / paper
