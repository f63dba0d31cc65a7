"""The screen of `steelyard run` without arguments: one federation under several weighing rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from steelyard.metrics.detection import detection
from steelyard.report.terminal import sparkline

Summaries = Mapping[str, dict[str, Any]]
"""{weighing rule: summary of its run}; see `runs/summary.py`."""

HEADINGS = {
    "samples": ("FedAvg", "by samples"),
    "ivar-vb": ("IVAR-VB", "by variance"),
    "majority": ("majority", "by agreement"),
}
ATTACK = "sends noise"
BAR = 8
COLUMN = BAR + 6  # a weight, a space and its bar
LABELS = (8, 7, len(ATTACK))  # widths: client id, number of samples, attack
GAP = 2
NEXT = (
    "steelyard show {run}",
    "steelyard report {run}",
    "steelyard run poisoned weighing=ivar-vb adversaries.attack=sign-flip",
    "steelyard grid poisoned weighing=majority --rows adversaries.count=0,2,4",
)


def demo_report(summaries: Summaries) -> RenderableType:
    """Client weights and scores under each rule, and commands to try next; fits 80 columns × 40 lines."""
    runs = list(summaries.values())
    effort = f"{runs[0]['rounds']} rounds each, {sum(run['seconds'] for run in runs):.1f} s"
    commands = [Text(words.format(run=runs[-1]["path"]), "cyan") for words in NEXT]
    return Group(
        Text("Ten clients train one model together. Three of them send only noise.", "bold"),
        Text(f"The same federation under three weighing rules; {effort}.", "dim"),
        "",
        weights_table(summaries),
        "",
        scores_table(runs),
        "",
        *_lines("saved", [Text(run["path"]) for run in runs]),
        "",
        *_lines("next", commands),
    )


def weights_table(summaries: Summaries) -> Table:
    """One row per client: its mean weight under each rule, adversaries in red."""
    runs = list(summaries.values())
    table = _grid(len(runs), LABELS)
    names, reasons = zip(*(HEADINGS.get(rule, (rule, "")) for rule in summaries), strict=True)
    table.add_row(*[""] * len(LABELS), *(Text(name, "bold") for name in names))
    table.add_row(*(Text(heading, "dim") for heading in ("client", "samples", "", *reasons)))
    heaviest = max((row["weight"] or 0 for run in runs for row in run["clients"]), default=0) or 1
    for rows in zip(*(run["clients"] for run in runs), strict=True):
        hostile = bool(rows[0].get("adversary"))
        style, attack = ("red", ATTACK) if hostile else ("", "")
        labels = (rows[0]["client"], f"{rows[0]['num_examples'] or 0:{LABELS[1]},}", attack)
        shares = (_share(row["weight"] or 0.0, heaviest, "red" if hostile else "cyan") for row in rows)
        table.add_row(*(Text(label, style) for label in labels), *shares)
    return table


def scores_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Scores of each run's model, in the same columns as the weights."""
    table = _grid(len(runs), (sum(LABELS) + GAP * (len(LABELS) - 1),))
    aurocs = [mean_weight_auroc(run["clients"]) for run in runs]

    def add(label: str, cell: Callable[[int], Text]) -> None:
        table.add_row(Text(label, "dim"), *map(cell, range(len(runs))))

    add("test accuracy", lambda n: Text(_score(runs[n]["metrics"].get("accuracy")), "bold"))
    add("worst 10 % of clients", lambda n: Text(_score(runs[n]["metrics"].get("client_accuracy_worst10"))))
    add("accuracy by round", lambda n: Text(sparkline(runs[n]["accuracies"], COLUMN), "cyan"))
    add("adversaries weigh least", lambda n: Text("yes", "green") if aurocs[n] == 1 else Text("no", "red"))
    add("detection AUROC of the weights", lambda n: Text(_score(aurocs[n])))
    return table


def mean_weight_auroc(clients: Sequence[Mapping[str, Any]]) -> float | None:
    """Detection AUROC of the mean weights: 1 if every adversary weighs less than every honest client."""
    weights = torch.tensor([row["weight"] or 0.0 for row in clients], dtype=torch.float64)
    adversary = torch.tensor([bool(row.get("adversary")) for row in clients])
    return detection(weights, adversary).get("detection_auroc")


def _grid(runs: int, labels: Sequence[int]) -> Table:
    """Columns of fixed width, so that the tables line up."""
    table = Table.grid(padding=(0, GAP, 0, 0))
    for width in (*labels, *[COLUMN] * runs):
        table.add_column(min_width=width, no_wrap=True)
    return table


def _share(weight: float, heaviest: float, style: str) -> Text:
    halves = round(2 * BAR * weight / heaviest)
    return Text.assemble(f"{weight:.3f} ", ("━" * (halves // 2) + "╸" * (halves % 2), style))


def _lines(label: str, texts: Sequence[Text]) -> list[Text]:
    """A label and the lines beside it, which are never wrapped."""
    labels = [label, *[""] * (len(texts) - 1)]
    return [
        Text.assemble((f"{name:7}", "dim"), text, no_wrap=True, overflow="ignore")
        for name, text in zip(labels, texts, strict=True)
    ]


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
