"""`steelyard reproduce untrusted`: every experiment of the paper, its Table 1 beside ours, figures 1 to 3.

Federated runs are recorded under `out`/runs and reused from there.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from figures import draw
from linear import one_round, over_rounds
from unequal import unequal

from steelyard.report.charts import Lines, markdown_table
from steelyard.runs.reader import Run
from steelyard.studies.grid import Cell, read_grid, run_grid
from steelyard.studies.parallel_runs import Outcome

HERE = Path(__file__).parent
PAPER = {  # Table 1: synthetic error, MNIST and Shakespeare accuracy
    "uniform": ("10.17", "0.493", "0.16"),
    "geometric median": ("8.13", "0.523", "0.41"),
    "coordinate median": ("6.13", "0.799", "0.29"),
    "IVAR-VB": ("4.62", "0.894", "0.56"),
    "IVAR-MLE": ("4.66", "0.904", "0.50"),
    "ICOV-VB": ("2.89", "0.893", "0.52"),
    "ICOV-MLE": ("8.75", "0.525", "–"),
    "ICOV-EM": ("", "", ""),
    "majority": ("", "", ""),
    "oracle": ("", "", ""),
}
Results = list[tuple[Cell, Outcome]]
Say = Callable[[str], Any]


def main(out: Path, quick: bool, say: Say = print) -> list[Path]:
    """Run everything; write results.json, table1.md and the figures into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # J × J matrices are too small for more
    start = time.time()
    results: dict[str, Any] = {"quick": quick}
    draws = range(100, 104 if quick else 120)
    say("(a) linear regression: one round")
    results["linear"] = one_round(draws)
    say("(a) linear regression: participation and batch size")
    some = draws[: 2 if quick else 5]
    results["participation"] = {share: over_rounds(some, share, 200) for share in (0.4, 0.6, 0.8, 1.0)}
    results["batch"] = {rows: over_rounds(some, 1.0, rows) for rows in (125, 150, 200, 400)}
    torch.set_num_threads(threads)
    for name in ("logistic", "sgd", "shakespeare"):
        say({"logistic": "(b)", "sgd": "(c)", "shakespeare": "(d)"}[name] + f" {name}")
        results[name] = curves(run(name, out, quick, say))
        save(results, out)
    say("unequal honest clients")
    for rounds, epochs in ((1, 5), (10, 1)):
        results[f"unequal, {rounds} rounds of {epochs}"] = unequal(
            (100,) if quick else (100, 101, 102), rounds, epochs
        )
    results["seconds"] = round(time.time() - start)
    return [save(results, out), *write(results, out)]


def run(name: str, out: Path, quick: bool, say: Say) -> Results:
    changes = {"logistic": {}, "sgd": {"rounds": 20}, "shakespeare": {"rounds": 2, "evaluate_every": 1}}[name]
    shorter: dict[str, Any] = {}
    if quick:
        shorter = {"columns": {"adversaries.count": [0, 5, 10]}} if name == "logistic" else {}
    grid = read_grid(HERE / f"{name}.toml", changes if quick else None, **shorter)
    return run_grid(grid, out / "runs", None, lambda done, total: say(f"  {done} of {total} runs"))


def curves(results: Results) -> dict[str, dict[str, dict[int, float]]]:
    """{column: {rule: {round: accuracy}}}."""
    by_column: dict[str, dict[str, dict[int, float]]] = {}
    for cell, outcome in results:
        if outcome.path is None:
            raise RuntimeError(f"{cell.name}: {outcome.error}")
        points = {row["round"]: row["accuracy"] for row in Run(outcome.path).rounds if row.get("accuracy")}
        by_column.setdefault(cell.column, {})[cell.row] = points
    return by_column


def final(results: dict[str, Any], name: str, column: str, rule: str) -> str:
    points = results[name].get(column, {}).get(rule)
    return f"{list(points.values())[-1]:.3f}" if points else ""


def save(results: dict[str, Any], out: Path) -> Path:
    path = out / "results.json"
    path.write_text(json.dumps(results, indent=1))
    return path


def write(results: dict[str, Any], out: Path) -> list[Path]:
    """Table 1 and the figures."""
    settings = list(results["linear"])
    rows = {
        rule: (
            *paper,
            *(f"{results['linear'][setting][rule]:.2f}" for setting in settings),
            final(results, "logistic", "5", rule),
            final(results, "shakespeare", "none", rule),
            final(results, "shakespeare", "random vectors", rule),
            final(results, "shakespeare", "random labels", rule),
        )
        for rule, paper in PAPER.items()
    }
    headings = ("", "paper: synthetic", "paper: MNIST", "paper: Shakespeare")
    ours = (*(f"synthetic, {setting}" for setting in settings), "MNIST, R = 5", "Shakespeare, none")
    text = markdown_table(
        rows, (*headings, *ours, "Shakespeare, random vectors", "Shakespeare, random labels")
    )
    (out / "table1.md").write_text(text)
    files = [out / "table1.md"]
    by_rule = {
        "by the share of clients in a round": by_rule_and_x(results["participation"]),
        "by the rows of a client in a round": by_rule_and_x(results["batch"]),
    }
    draw(
        by_rule,
        "Linear regression, a clique of three",
        "",
        "error × 100",
        out / "figure1.png",
        log=True,
    )
    names = {column: f"{column} adversaries beside 5" for column in results["sgd"]}
    draw(
        {names[c]: lines for c, lines in results["sgd"].items()},
        "MNIST, distributed SGD",
        "round",
        "test accuracy",
        out / "figure2.png",
    )
    draw(
        results["shakespeare"],
        "Shakespeare, next character: 5 roles and 5 adversaries",
        "round",
        "test accuracy",
        out / "figure3.png",
    )
    over = {
        rule: {int(c): list(results["logistic"][c][rule].values())[-1] for c in results["logistic"]}
        for rule in PAPER
        if rule in results["logistic"]["0"]
    }
    draw(
        {"5 honest clients": over},
        "MNIST, one round",
        "clients that send noise",
        "test accuracy",
        out / "figure-logistic.png",
    )
    return files + [out / f"figure{which}.png" for which in ("1", "2", "3", "-logistic")]


def by_rule_and_x(by_x: dict[float, dict[str, float]]) -> Lines:
    """{x: {rule: value}} → {rule: {x: value}}."""
    rules = next(iter(by_x.values()))
    return {rule: {float(x): values[rule] for x, values in by_x.items()} for rule in PAPER if rule in rules}
