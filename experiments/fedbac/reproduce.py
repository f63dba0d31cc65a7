"""`steelyard reproduce fedbac`: the report's experiment, the ones it proposes as future work, and attacks.

Runs are recorded under `out`/runs and reused from there.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import why
from figures import CLAIMED, bars, curves_by_seed

from steelyard.report.charts import markdown_table
from steelyard.runs.reader import Run
from steelyard.specs.schema import Spec
from steelyard.studies.cells import Cell, Results, run_cells
from studies import SEEDS, cells, data_set

COUPLINGS = ("reliability_accuracy_spearman", "weight_accuracy_spearman")
KEPT = ("accuracy", "loss", *COUPLINGS)
FAIRNESS = ("client_accuracy_min", "client_accuracy_max", "client_accuracy_worst10", "client_accuracy_sd")
WORKERS: int | None = None  # all cores
Say = Callable[[str], Any]


def main(out: Path, quick: bool, say: Say = print) -> list[Path]:
    """Run everything; write results.json, tables and figures into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    todo = list(cells(quick))
    results = run_cells(todo, out / "runs", summary, WORKERS, say)
    say("why: angles of honest and reversed updates")
    angles = {title: why.measure(spec) for title, spec in why.specs(quick, SEEDS[0]).items()}
    spec = next(cell.spec for cell in todo if cell.study == "paper")
    written = out / "results.json"
    written.write_text(json.dumps({"quick": quick, "angles": angles, "studies": results}, indent=1))
    return [written, *tables(results, out), *figures(results, angles, spec, out)]


def summary(cell: Cell, run: Run) -> dict[str, Any]:
    """Final and late accuracy, final fairness, and for the report's own experiment every round."""
    rows = run.rounds
    evaluated = [row for row in rows if row.get("accuracy") is not None]
    late = [row["accuracy"] for row in evaluated if row["round"] > cell.spec.rounds * 3 / 4]
    values: dict[str, Any] = {
        "final": evaluated[-1]["accuracy"],
        "late": statistics.fmean(late),
        "late_sd": statistics.stdev(late) if len(late) > 1 else 0.0,
        "fairness": {name: evaluated[-1].get(name) for name in FAIRNESS},
    }
    if auroc := [row["detection_auroc"] for row in rows if row.get("detection_auroc") is not None]:
        values["auroc"] = statistics.fmean(auroc)
    if cell.study in ("paper", "fresh"):
        values["curves"] = {name: {row["round"]: row.get(name) for row in evaluated} for name in KEPT}
        last = [row for row in run.clients if row["round"] == cell.spec.rounds]
        values["clients"] = {row["client"]: row["accuracy"] for row in last}
    return values


def tables(results: Results, out: Path) -> list[Path]:
    """One Markdown file per study."""
    paper = results["paper"]["MNIST, shards"]
    headings = ("", "report", "final, by seed", "final", "last quarter", "sd over its rounds", "worst client")
    headings += ("best − worst client", "Spearman reliability", "Spearman weight")
    texts = {
        "paper": markdown_table({name: paper_row(name, runs) for name, runs in paper.items()}, headings),
        "fresh": markdown_table(
            {name: paper_row(name, runs) for name, runs in results["fresh"]["MNIST, shards"].items()},
            headings,
        ),
        "regimes": by_setting(results["regimes"]),
        "attacks": by_setting(results["attacks"]),
        "ablation": by_setting(results["ablation"], ("late", "late_sd")),
        "sweeps": "\n".join(sweep(name, methods) for name, methods in results.get("sweeps", {}).items()),
    }
    for name, text in texts.items():
        (out / f"{name}.md").write_text(text)
    return [out / f"{name}.md" for name in texts]


def paper_row(name: str, by_seed: dict[str, Any]) -> list[str]:
    runs = list(by_seed.values())
    fairness = [run["fairness"] for run in runs]
    gaps = [scores["client_accuracy_max"] - scores["client_accuracy_min"] for scores in fairness]
    return [
        f"{CLAIMED[name]:.2f}" if name in CLAIMED else "",
        " / ".join(f"{run['final']:.4f}" for run in runs),
        mean([run["final"] for run in runs], 4),
        mean([run["late"] for run in runs], 4),
        mean([run["late_sd"] for run in runs], 4),
        mean([scores["client_accuracy_min"] for scores in fairness], 3),
        mean(gaps, 3),
        *(mean([late_coupling(run, name) for run in runs], 2) for name in COUPLINGS),
    ]


def late_coupling(run: dict[str, Any], name: str) -> float | None:
    """Mean over those rounds of the last quarter in which the correlation is defined."""
    points = {int(number): value for number, value in run["curves"][name].items() if value is not None}
    rounds = max((int(number) for number in run["curves"]["accuracy"]), default=0)
    late = [value for number, value in points.items() if number > rounds * 3 / 4]
    return statistics.fmean(late) if late else None


def by_setting(study: dict[str, dict[str, Any]], scores: Sequence[str] = ("final",)) -> str:
    """Means over the seeds: one row per method, one column per setting."""
    methods = list(dict.fromkeys(method for setting in study.values() for method in setting))
    rows = {
        method: [
            " ± ".join(mean([run[name] for run in setting[method].values()], 4) for name in scores)
            if method in setting
            else ""
            for setting in study.values()
        ]
        for method in methods
    }
    return markdown_table(rows, ("", *study))


def sweep(name: str, methods: dict[str, Any]) -> str:
    cells = [mean([run["late"] for run in runs.values()], 4) for runs in methods.values()]
    return markdown_table({"last quarter": cells}, (name, *methods))


def mean(values: Sequence[float | None], digits: int) -> str:
    defined = [value for value in values if value is not None]
    return f"{statistics.fmean(defined):.{digits}f}" if defined else ""


def figures(results: Results, angles: Any, spec: Spec, out: Path) -> list[Path]:
    """Figures 3 to 6 of the report, and the angles that show why the published gate fails.

    `spec` is one of the report's own experiment: titles say what was run.
    """
    paper = results["paper"]["MNIST, shards"]
    paths = [out / f"figure{number}.png" for number in (3, 4, 5, 6)] + [out / "why.png"]
    data = f"{data_set(spec)} in {spec.data.partition['shards']} shards"
    effort = f"{spec.data.clients} clients, {spec.clients_per_round} a round, {spec.rounds} rounds"
    finals = {name: [run["final"] for run in runs.values()] for name, runs in paper.items()}
    bars(finals, f"{data[0].upper()}{data[1:]}, {effort}", paths[0])
    three = ("FedAvg", "FedBaC, no regulariser", "FedBaC, stabilised")
    two = ("FedBaC, no regulariser", "FedBaC, literal")
    curves_by_seed(paper, three, "accuracy", f"Test accuracy, {data}", paths[1])
    title = "The published rule with and without its regulariser"
    curves_by_seed(paper, two, "accuracy", title, paths[2], dashed=two[1])
    smooth = max(1, spec.rounds // 20)
    title = "Does reliability go with client accuracy? Spearman"
    title += f", mean of {smooth} rounds" if smooth > 1 else ""
    curves_by_seed(paper, two, COUPLINGS[0], title, paths[3], two[1], smooth)
    why.draw(angles, paths[4])
    return paths
