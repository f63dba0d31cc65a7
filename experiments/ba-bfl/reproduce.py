"""`steelyard reproduce ba-bfl`: the paper's table and figures, the rival without Bayes, and adversaries.

Runs are recorded under `out`/runs, and what is recorded is not run again.
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
COLUMNS = {  # of a table: the score, and how it is shown
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
    """Run all, write results.json, the tables and the figures into `out`; returns what was written."""
    out.mkdir(parents=True, exist_ok=True)
    todo = list(cells(quick))
    results = run_cells(todo, out / "runs", summary, WORKERS, say)
    costs = {dataset: step_costs(specs) for dataset, specs in by_layers(todo).items()}
    written = out / "results.json"
    written.write_text(json.dumps({"quick": quick, "studies": results, "cost": costs}, indent=1))
    return [written, *tables(results, out), *figures.draw(results, costs, todo[0].spec, out)]


def by_layers(todo: Sequence[Cell]) -> dict[str, dict[float, Spec]]:
    """By data set, what is run with no, one, two and three Bayesian layers."""
    first = {cell[1:3]: cell.spec for cell in reversed(todo) if cell.study == "table"}
    return {
        dataset: {last: first[dataset, method] for last, method in figures.LAYERS.items()}
        for dataset in dict.fromkeys(cell.setting for cell in todo if cell.study == "table")
    }


def summary(cell: Cell, run: Run) -> dict[str, Any]:
    """The scores of the last round, the curves, and what it makes of what it never saw."""
    rows = [row for row in run.rounds if row.get("accuracy") is not None]
    last = rows[-1]
    found: dict[str, Any] = {name: last.get(name) for name in (*SCORES, *SCALED, *FAIR)}
    sigmas = [name for name in last if name.startswith("sigma.")]
    found["sigma"] = statistics.fmean(last[name] for name in sigmas) if sigmas else None
    found["curves"] = {name: {row["round"]: row[name] for row in rows} for name in ("accuracy", *sigmas)}
    if cell.spec.data.dataset["name"] == "fashion-mnist" and cell.study == "table":
        found |= foreign_auroc(run, found["temperature"])
    if cell.study == "table" and any(cell.method == method for method, _ in figures.LOOKED_AT.values()):
        found["shift"] = shifted_scores(run, found["temperature"])
        found["bins"] = reliability(run, found["temperature"])
    return found


def reliability(run: Run, temperature: float) -> dict[str, dict[str, list[float]]]:
    """What a reliability diagram shows of a model, and of the same at its temperature."""
    predicted, labels = load_predictions(run)
    seen = {"": bins(predicted, labels), "_scaled": bins(scaled(predicted, temperature), labels)}
    return {
        suffix: {name: values.tolist() for name, values in each._asdict().items()}
        for suffix, each in seen.items()
    }


def tables(results: Results, out: Path) -> list[Path]:
    """Table 1 for each data set, shifted test data, the priors, and the accuracy under attack."""
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
    """Everybody who is looked at more closely, on the test images as they are, turned and noisy."""
    rows = {
        f"{dataset.split(',')[0]}, {label}": [
            under(shift, methods[method], suffix, digits=1) for shift in SHIFTS
        ]
        for dataset, methods in table.items()
        for label, (method, suffix) in figures.LOOKED_AT.items()
        if method in methods
    }
    return markdown_table(rows, ("", *SHIFTS))


def rivals_table(table: Mapping[str, Mapping[str, Any]]) -> str:
    """Does it pay? The posterior beside FedAvg and FedAvg at a temperature, in short."""
    rivals = {"FedAvg": "FedAvg", "FedAvg at T": "FedAvg at T", "RKLB": "three Bayesian layers"}
    picked = [figures.LOOKED_AT[label] for label in rivals]
    rows: dict[str, list[str]] = {}
    for dataset, methods in table.items():
        for shift, said in (("none", ""), ("15°", ", turned by 15°"), ("noise 30 %", ", 30 % noise")):
            rows[dataset + said] = [under(shift, methods[method], suffix) for method, suffix in picked]
        found = [[run.get("ood" + suffix) for run in methods[method].values()] for method, suffix in picked]
        if all(None not in values for values in found):
            rows[f"{dataset}, told from MNIST (AUROC)"] = [spread(values, 1, 3) for values in found]
    return markdown_table(rows, ("accuracy % / ECE % / NLL", *rivals.values()))


def under(shift: str, runs: Mapping[str, Any], suffix: str, digits: int = 2) -> str:
    """Accuracy / ECE / NLL, means over the seeds, where the test images are not like those trained on."""
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
