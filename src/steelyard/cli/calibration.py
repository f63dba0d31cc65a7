"""steelyard calibration"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.shared import Json, guarded, show_values, stderr
from steelyard.errors import InputError

if TYPE_CHECKING:
    from steelyard.metrics import Bins

    Judged = tuple[dict[str, Any], Bins]

SCORES = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier"}


@guarded
def calibration(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of recorded runs.")],
    png: Annotated[Path | None, typer.Option(help="A reliability diagram to draw.")] = None,
    as_json: Json = False,
) -> None:
    """Show whether models are as often right as they claim: ECE, NLL and Brier score on the test set.

    Where a run found a temperature on what its clients held out ([cyan]data.holdout[/]), its model is shown
    at it, too. The diagram has a panel for each: how often a model is right, by how sure it is.

    [dim]Example:[/]

        steelyard calibration runs/*-fedavg-s0 runs/*-ba-bfl-s0 --png sure.png
    """
    if len(set(runs)) < len(runs):
        raise InputError("name each run once.")
    with stderr().status("looking at what they predict"):
        judged = {
            name + (f" at T = {values['temperature']:.2f}" if values["temperature"] else ""): (values, bins)
            for name, path in zip(_names(runs), runs, strict=True)
            for values, bins in _judge(path)
        }
        if png is not None:
            from steelyard.report.reliability import draw_reliability

            png.parent.mkdir(parents=True, exist_ok=True)
            draw_reliability({name: bins for name, (_, bins) in judged.items()}, "How sure, how right", png)

    def view() -> Any:
        from rich.console import Group

        from steelyard.report.terminal import catalogue

        rows = [(name, *(f"{values[key]:.4f}" for key in SCORES)) for name, (values, _) in judged.items()]
        table = catalogue("on the common test set", rows, ("run", *SCORES.values()))
        return table if png is None else Group(table, "", f"written: {png}")

    models = [values for values, _ in judged.values()]
    show_values({"models": models, "png": None if png is None else str(png)}, view, as_json)


def _names(runs: Sequence[Path]) -> list[str]:
    """What folders are called without the time, unless that is the same for two of them."""
    short = [re.sub(r"^\d{8}-\d{6}-", "", path.resolve().name) for path in runs]
    return short if len(set(short)) == len(runs) else [str(path) for path in runs]


def _judge(path: Path) -> "list[Judged]":
    """The scores of a run's model, and of the same at its temperature, if it found one."""
    from steelyard.metrics import accuracy, bins, scaled
    from steelyard.metrics.calibration import calibration_scores
    from steelyard.runs.reader import Run
    from steelyard.specs.loading import load_predictions

    run = Run(path)
    predicted, labels = load_predictions(run)
    found = [row["temperature"] for row in run.rounds if row.get("temperature")]
    judged = []
    for temperature in (None, *found[-1:]):
        seen = predicted if temperature is None else scaled(predicted, temperature)
        counted = bins(seen, labels)
        values = {
            "run": str(path),
            "temperature": temperature,
            "accuracy": accuracy(seen, labels),
            **calibration_scores(seen, labels),
            "bins": {name: each.tolist() for name, each in counted._asdict().items()},
        }
        judged.append((values, counted))
    return judged
