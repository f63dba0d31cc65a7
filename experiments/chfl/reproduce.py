"""`steelyard reproduce chfl`: the paper's table with control experiments, and one poisoned head.

Runs are recorded under `out`/runs and reused from there.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
from scipy import stats

from steelyard.report.charts import markdown_table
from steelyard.runs.reader import Run
from steelyard.studies.cells import Cell, Results, run_cells
from studies import cells

WORKERS: int | None = None  # all cores
SCORES = ("client_accuracy", "client_accuracy_balanced", "client_accuracy_own_mix", "shared_accuracy")
CLAIMED = {
    "DIGIT, iid": (85.77, 78.16, 75.45, 86.46), "DIGIT, Dirichlet 0.5": (79.04, 64.48, 63.55, 82.87),
    "ADULT, iid": (72.83, 68.68, 64.55, 73.69), "ADULT, Dirichlet 0.5": (65.05, 61.54, 56.96, 65.65),
    "HCC, iid": (66.85, 66.82, 68.79, 73.83), "HCC, Dirichlet 0.5": (59.23, 59.56, 58.30, 61.39),
    "BCD, iid": (81.85, 82.65, 87.67, 89.88), "BCD, Dirichlet 0.5": (71.40, 78.56, 83.31, 90.66),
    "ILPD, iid": (61.87, 59.07, 62.99, 63.79), "ILPD, Dirichlet 0.5": (53.32, 54.42, 58.02, 55.18),
}  # fmt: skip
"""Table 1 of the paper: best mean accuracy in % of SOLO, AVG, AVGKD and KD."""
Say = Callable[[str], Any]
Runs = Mapping[str, Mapping[str, Any]]


def main(out: Path, quick: bool, say: Say = print) -> list[Path]:
    """Run everything; write results.json, tables and figures into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    results = run_cells(cells(quick), out / "runs", summary, WORKERS, say)
    written = out / "results.json"
    written.write_text(json.dumps({"quick": quick, "studies": results}))
    return [written, *tables(results, out), *figures.draw(results["table"], out)]


def summary(cell: Cell, run: Run) -> dict[str, Any]:
    """Scores of the last round, best mean accuracy of all rounds, and the shared head's accuracy by round."""
    rows = [row for row in run.rounds if row.get("client_accuracy") is not None]
    values: dict[str, Any] = {name: rows[-1].get(name) for name in SCORES}
    values["best"] = max(row["client_accuracy"] for row in rows)
    values["bytes"] = {name: rows[-1].get(name) for name in ("bytes", "bytes_of_whole_models")}
    values["shared"] = {row["round"]: round(row["shared_accuracy"], 4) for row in rows}
    return values


def tables(results: Results, out: Path) -> list[Path]:
    texts = {"claimed": claimed(results["table"])}
    for name in ("best", *SCORES):
        texts[f"table-{name.removeprefix('client_').replace('_', '-')}"] = by_method(results["table"], name)
    for study in ("small", "teaching", "clients", "poison"):
        texts[study] = by_method(results[study], "client_accuracy")
    texts["gaps"] = gaps(results["table"])
    texts["chfl"] = recipe(results["table"])
    texts["bytes"] = traffic(results["table"])
    for name, text in texts.items():
        (out / f"{name}.md").write_text(text)
    return [out / f"{name}.md" for name in texts]


def gaps(table: Mapping[str, Runs]) -> str:
    """Final accuracy minus that of SOLO, in percentage points; * and ** for p < 0.05 and 0.01."""
    methods = [name for name in next(iter(table.values())) if name != "SOLO"]
    rows = {
        setting: [
            against(runs["SOLO"], runs["SOLO"], "client_accuracy"),
            *(points(runs["SOLO"], runs.get(name, {}), "client_accuracy") for name in methods),
        ]
        for setting, runs in table.items()
    }
    return markdown_table(rows, ("", "SOLO, %", *methods))


def recipe(table: Mapping[str, Runs]) -> str:
    """Gain of `chfl` over SOLO in each score, and over SOLO with the same objective."""
    rows = {
        setting: [
            *(
                points(runs["SOLO"], runs["chfl"], score)
                for score in ("client_accuracy", "best", *SCORES[1:3])
            ),
            points(runs["SOLO, balanced"], runs["chfl"], "client_accuracy"),
        ]
        for setting, runs in table.items()
    }
    return markdown_table(
        rows, ("chfl − SOLO", "final", "best", "balanced", "own mix", "final, above SOLO balanced")
    )


def points(base: Runs, runs: Runs, score: str) -> str:
    """Mean difference over the seeds in percentage points, with stars for a paired t-test."""
    gaps = [100 * (runs[seed][score] - base[seed][score]) for seed in runs if seed in base]
    if not gaps:
        return ""
    p = stats.ttest_1samp(gaps, 0.0).pvalue if len(gaps) > 2 and any(gaps) else 1.0
    return f"{statistics.fmean(gaps):+.1f}{'**' if p < 0.01 else '*' if p < 0.05 else ''}"


def traffic(table: Mapping[str, Runs]) -> str:
    """Traffic of a round, up and down, in kB: the heads that are sent, and whole models for comparison."""
    rows = {}
    for setting, methods in table.items():
        spent = [run["bytes"] for run in methods["SOLO"].values()]
        rows[setting] = [
            f"{statistics.fmean(run[name] for run in spent) / 1000:.1f}"
            for name in ("bytes", "bytes_of_whole_models")
        ]
    return markdown_table(rows, ("kB a round", "heads", "whole models"))


def claimed(table: Mapping[str, Runs]) -> str:
    """The paper's numbers beside ours, in its measure: the best mean accuracy of all rounds."""
    names = ("SOLO", "AVG", "AVGKD", "KD")
    rows = {
        setting: [
            f"{paper:.1f} / {100 * statistics.fmean(run['best'] for run in methods[name].values()):.1f}"
            for name, paper in zip(names, CLAIMED[setting], strict=True)
        ]
        for setting, methods in table.items()
        if setting in CLAIMED
    }
    return markdown_table(rows, ("paper / ours", *names))


def by_method(study: Mapping[str, Runs], score: str) -> str:
    """Mean ± sd over the seeds; from the second method on, the difference from the first and its p-value."""
    methods = list(dict.fromkeys(method for setting in study.values() for method in setting))
    rows = {
        setting: [against(runs.get(methods[0], {}), runs.get(method, {}), score) for method in methods]
        for setting, runs in study.items()
    }
    return markdown_table(rows, ("", *methods))


def against(base: Runs, runs: Runs, score: str) -> str:
    """Mean ± sd in %, and the mean difference from `base` with the p-value of a paired t-test."""
    values = [100 * run[score] for run in runs.values()]
    if not values:
        return ""
    text = f"{statistics.fmean(values):.1f}" + (
        f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    )
    shared = [seed for seed in runs if seed in base]
    gaps = [100 * (runs[seed][score] - base[seed][score]) for seed in shared]
    if not any(gaps) or runs is base:
        return text
    return f"{text} ({statistics.fmean(gaps):+.1f}{p_value(gaps)})"


def p_value(gaps: Sequence[float]) -> str:
    if len(gaps) < 3:
        return ""
    return f", p {stats.ttest_1samp(gaps, 0.0).pvalue:.2g}"
