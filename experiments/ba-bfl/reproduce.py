"""`steelyard reproduce ba-bfl`: the paper's table and figures, baselines without posteriors, and attacks.

Runs are recorded under `out`/runs and reused from there.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
from cost import step_costs
from unseen import SHIFTS, foreign_auroc, shifted_scores

from steelyard.metrics import bins, scaled
from steelyard.report.charts import markdown_table
from steelyard.runs.reader import Run
from steelyard.specs.loading import load_predictions
from steelyard.specs.schema import Spec
from steelyard.studies.cells import Cell, Results, run_cells
from studies import cells

WORKERS: int | None = None  # all cores
SCORES = ("accuracy", "ece", "nll", "brier")
SCALED = ("temperature", "ece_scaled", "nll_scaled", "brier_scaled")
FAIR = ("client_accuracy_weighted", "client_accuracy_worst10")
COLUMNS = {  # {heading: (score, factor, decimals)}
    "accuracy %": ("accuracy", 100, 2),
    "ECE %": ("ece", 100, 2),
    "NLL": ("nll", 1, 3),
    "Brier": ("brier", 1, 3),
    "ECE % at T": ("ece_scaled", 100, 2),
    "NLL at T": ("nll_scaled", 1, 3),
    "OOD AUROC": ("ood", 1, 3),
    "OOD at T": ("ood_scaled", 1, 3),
    "σ": ("sigma", 1, 3),
}
Say = Callable[[str], Any]


def main(out: Path, quick: bool, say: Say = print) -> list[Path]:
    """Run everything; write results.json, tables and figures into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    todo = list(cells(quick))
    results = run_cells(todo, out / "runs", summary, WORKERS, say)
    costs = {dataset: step_costs(specs) for dataset, specs in by_layers(todo).items()}
    written = out / "results.json"
    written.write_text(json.dumps({"quick": quick, "studies": results, "cost": costs}, indent=1))
    return [written, *tables(results, out), *figures.draw(results, costs, todo[0].spec, out)]


def by_layers(todo: Sequence[Cell]) -> dict[str, dict[float, Spec]]:
    """{data set: {number of Bayesian layers: spec}}."""
    first = {cell[1:3]: cell.spec for cell in reversed(todo) if cell.study == "table"}
    return {
        dataset: {last: first[dataset, method] for last, method in figures.LAYERS.items()}
        for dataset in dict.fromkeys(cell.setting for cell in todo if cell.study == "table")
    }


def summary(cell: Cell, run: Run) -> dict[str, Any]:
    """Scores of the last round, curves over the rounds, and scores on shifted and foreign images."""
    rows = [row for row in run.rounds if row.get("accuracy") is not None]
    last = rows[-1]
    values: dict[str, Any] = {name: last.get(name) for name in (*SCORES, *SCALED, *FAIR)}
    sigmas = [name for name in last if name.startswith("sigma.")]
    values["sigma"] = statistics.fmean(last[name] for name in sigmas) if sigmas else None
    values["curves"] = {name: {row["round"]: row[name] for row in rows} for name in ("accuracy", *sigmas)}
    if cell.spec.data.dataset["name"] == "fashion-mnist" and cell.study == "table":
        values |= foreign_auroc(run, values["temperature"])
    if cell.study == "table" and any(cell.method == method for method, _ in figures.DETAILED.values()):
        values["shift"] = shifted_scores(run, values["temperature"])
        values["bins"] = reliability(run, values["temperature"])
    return values


def reliability(run: Run, temperature: float) -> dict[str, dict[str, list[float]]]:
    """The bins of a reliability diagram, without and with the temperature."""
    predicted, labels = load_predictions(run)
    binned = {"": bins(predicted, labels), "_scaled": bins(scaled(predicted, temperature), labels)}
    return {
        suffix: {name: values.tolist() for name, values in parts._asdict().items()}
        for suffix, parts in binned.items()
    }


def tables(results: Results, out: Path) -> list[Path]:
    """Table 1 for each data set, shifted test images, priors, baselines, and accuracy under attack."""
    headings = ("", "seeds", *COLUMNS)
    texts = {
        f"table-{name.split(',')[0].lower()}": markdown_table(
            {method: table_row(list(runs.values())) for method, runs in methods.items()}, headings
        )
        for name, methods in results["table"].items()
    }
    texts["priors"] = markdown_table(
        {
            method: table_row(list(runs.values()))
            for method, runs in results["priors"]["FashionMNIST"].items()
        },
        headings,
    )
    texts["shift"], texts["rivals"] = shift_table(results["table"]), rivals_table(results["table"])
    attacks = results["attacks"]
    defences = list(next(iter(attacks.values())))
    texts["attacks"] = markdown_table(
        {
            name: [
                spread([run["accuracy"] for run in setting.get(name, {}).values()], 100, 1)
                for setting in attacks.values()
            ]
            for name in defences
        },
        ("", *attacks),
    )
    for name, text in texts.items():
        (out / f"{name}.md").write_text(text)
    return [out / f"{name}.md" for name in texts]


def shift_table(table: Mapping[str, Mapping[str, Any]]) -> str:
    """The detailed methods on the original, rotated and noisy test images."""
    rows = {
        f"{dataset.split(',')[0]}, {label}": [
            under(shift, methods[method], suffix, digits=1) for shift in SHIFTS
        ]
        for dataset, methods in table.items()
        for label, (method, suffix) in figures.DETAILED.items()
        if method in methods
    }
    return markdown_table(rows, ("", *SHIFTS))


def rivals_table(table: Mapping[str, Mapping[str, Any]]) -> str:
    """The posterior beside FedAvg, and FedAvg with a temperature."""
    rivals = {"FedAvg": "FedAvg", "FedAvg at T": "FedAvg at T", "RKLB": "three Bayesian layers"}
    picked = [figures.DETAILED[label] for label in rivals]
    rows: dict[str, list[str]] = {}
    for dataset, methods in table.items():
        for shift, text in (("none", ""), ("15°", ", turned by 15°"), ("noise 30 %", ", 30 % noise")):
            rows[dataset + text] = [under(shift, methods[method], suffix) for method, suffix in picked]
        aurocs = [[run.get("ood" + suffix) for run in methods[method].values()] for method, suffix in picked]
        if all(None not in values for values in aurocs):
            rows[f"{dataset}, told from MNIST (AUROC)"] = [spread(values, 1, 3) for values in aurocs]
    return markdown_table(rows, ("accuracy % / ECE % / NLL", *rivals.values()))


def under(shift: str, runs: Mapping[str, Any], suffix: str, digits: int = 2) -> str:
    """Accuracy / ECE / NLL on shifted test images: means over the seeds."""
    names = ("accuracy", "ece" + suffix, "nll" + suffix)
    accuracy, ece, nll = (figures.mean_under(shift, runs, name) for name in names)
    return f"{100 * accuracy:.{digits}f} / {100 * ece:.{digits}f} / {nll:.{digits + 1}f}"


def table_row(runs: Sequence[dict[str, Any]]) -> list[str]:
    columns = (
        spread([run[name] for run in runs if run.get(name) is not None], factor, digits)
        for name, factor, digits in COLUMNS.values()
    )
    return [str(len(runs)), *columns]


def spread(values: Sequence[float], factor: float, digits: int) -> str:
    """Mean ± standard deviation over the seeds."""
    if not values:
        return ""
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {factor * statistics.stdev(values):.{digits}f}"
