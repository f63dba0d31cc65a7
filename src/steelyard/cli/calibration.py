"""The command `steelyard calibration`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.shared import Json, Trust, check_files, guarded, permission, show_values, stderr
from steelyard.cli.short_names import short_names
from steelyard.errors import InputError

if TYPE_CHECKING:
    from steelyard.metrics import Bins
    from steelyard.specs.gate import Permission

    Scored = tuple[dict[str, Any], Bins]

SCORES = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier"}


@guarded
def calibration(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of recorded runs.")],
    png: Annotated[
        Path | None,
        typer.Option("--figure", "--png", help="Draw reliability diagrams: .png, .pdf or .svg."),
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Show how well models are calibrated: ECE, NLL and Brier score on the test set.

    If a run fitted a temperature on held-out examples ([cyan]data.holdout[/]), its model is also scored at
    that temperature. The figure has a reliability diagram for each: accuracy by confidence.

    [dim]Example:[/]

        steelyard calibration runs/*-fedavg-s0 runs/*-ba-bfl-s0 --figure sure.png
    """
    if len(set(runs)) < len(runs):
        raise InputError("name each run once.")
    check_files(png)
    with stderr().status("predicting") as status:
        scored = {
            name + (f" at T = {values['temperature']:.2f}" if values["temperature"] else ""): (values, bins)
            for name, path in zip(short_names(runs), runs, strict=True)
            for values, bins in _scores(path, permission(trust, status))
        }
        if png is not None:
            from steelyard.report.reliability import draw_reliability

            draw_reliability(
                {name: bins for name, (_, bins) in scored.items()}, "Accuracy by confidence", png
            )

    def view() -> Any:
        from rich.console import Group

        from steelyard.report.terminal import scores_table, written

        rows = [(name, *(f"{values[key]:.4f}" for key in SCORES)) for name, (values, _) in scored.items()]
        table = scores_table("on the common test set", ("run", *SCORES.values()), rows)
        return table if png is None else Group(table, written(png))

    models = [values for values, _ in scored.values()]
    show_values({"models": models, "png": None if png is None else str(png)}, view, as_json)


def _scores(path: Path, trust: "Permission") -> "list[Scored]":
    """The scores and bins of a run's model, and those at its temperature, if it fitted one."""
    from steelyard.metrics import accuracy, bins, scaled
    from steelyard.metrics.scores import calibration_scores
    from steelyard.runs.reader import Run
    from steelyard.specs.loading import load_predictions

    run = Run(path)
    predicted, labels = load_predictions(run, trust)
    temperatures = [row["temperature"] for row in run.rounds if row.get("temperature")]
    scored = []
    for temperature in (None, *temperatures[-1:]):
        log_probabilities = predicted if temperature is None else scaled(predicted, temperature)
        binned = bins(log_probabilities, labels)
        values = {
            "run": str(path),
            "temperature": temperature,
            "accuracy": accuracy(log_probabilities, labels),
            **calibration_scores(log_probabilities, labels),
            "bins": {name: part.tolist() for name, part in binned._asdict().items()},
        }
        scored.append((values, binned))
    return scored
