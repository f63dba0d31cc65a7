"""The demo's screen: one federation under several rules, a column for each, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from steelyard.metrics.detection import detection
from steelyard.report.terminal import sparkline

Summaries = Mapping[str, dict[str, Any]]
"""What each rule's run came to (`summary.py`), by the rule's name."""

HEADINGS = {
    "samples": ("FedAvg", "by samples"),
    "ivar-vb": ("IVAR-VB", "by variance"),
    "majority": ("majority", "by agreement"),
}
DEED = "sends noise"
BAR = 8
COLUMN = BAR + 6  # a weight, a space and its bar
LABELS = (8, 7, len(DEED))  # the client, its samples, what it does
GAP = 2
NEXT = (
    "steelyard show {run}",
    "steelyard list attacks",
    "steelyard run poisoned weighing=ivar-vb adversaries.attack=sign-flip",
    "steelyard grid poisoned weighing=majority --rows adversaries.count=0,2,4",
)


def demo_report(summaries: Summaries) -> RenderableType:
    """Who counted under each rule, how good its model is, and where to look next: at most 80 × 40."""
    runs = list(summaries.values())
    effort = f"{runs[0]['rounds']} rounds each, {sum(run['seconds'] for run in runs):.1f} s"
    commands = [Text(words.format(run=runs[-1]["path"]), "cyan") for words in NEXT]
    return Group(
        Text("Ten clients train one model together. Three of them send nothing but noise.", "bold"),
        Text(f"The same federation under three rules of who counts; {effort}.", "dim"),
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
    """A row for each client: its mean weight under every rule, adversaries in red."""
    runs = list(summaries.values())
    table = _grid(len(runs), LABELS)
    names, reasons = zip(*(HEADINGS.get(rule, (rule, "")) for rule in summaries), strict=True)
    table.add_row(*[""] * len(LABELS), *(Text(name, "bold") for name in names))
    table.add_row(*(Text(each, "dim") for each in ("client", "samples", "", *reasons)))
    heaviest = max((row["weight"] or 0 for run in runs for row in run["clients"]), default=0) or 1
    for rows in zip(*(run["clients"] for run in runs), strict=True):
        hostile = bool(rows[0].get("adversary"))
        ink, deed = ("red", DEED) if hostile else ("", "")
        about = (rows[0]["client"], f"{rows[0]['num_examples'] or 0:{LABELS[1]},}", deed)
        shares = (_share(row["weight"] or 0.0, heaviest, "red" if hostile else "cyan") for row in rows)
        table.add_row(*(Text(each, ink) for each in about), *shares)
    return table


def scores_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """What came of it, in the same columns."""
    table = _grid(len(runs), (sum(LABELS) + GAP * (len(LABELS) - 1),))
    found = [mean_weight_auroc(run["clients"]) for run in runs]

    def add(label: str, cell: Callable[[int], Text]) -> None:
        table.add_row(Text(label, "dim"), *map(cell, range(len(runs))))

    add("test accuracy", lambda n: Text(_score(runs[n]["metrics"].get("accuracy")), "bold"))
    add("worst 10 % of clients", lambda n: Text(_score(runs[n]["metrics"].get("client_accuracy_worst10"))))
    add("accuracy by round", lambda n: Text(sparkline(runs[n]["accuracies"], COLUMN), "cyan"))
    add("names the three", lambda n: Text("yes", "green") if found[n] == 1 else Text("no", "red"))
    add("detection AUROC of the weights", lambda n: Text(_score(found[n])))
    return table


def mean_weight_auroc(clients: Sequence[Mapping[str, Any]]) -> float | None:
    """The AUROC of mean weights as suspicion: 1 if the adversaries have the lowest weights of all."""
    weights = torch.tensor([row["weight"] or 0.0 for row in clients], dtype=torch.float64)
    adversary = torch.tensor([bool(row.get("adversary")) for row in clients])
    return detection(weights, adversary).get("detection_auroc")


def _grid(runs: int, labels: Sequence[int]) -> Table:
    """Columns of fixed width, so that tables below each other line up."""
    table = Table.grid(padding=(0, GAP, 0, 0))
    for width in (*labels, *[COLUMN] * runs):
        table.add_column(min_width=width, no_wrap=True)
    return table


def _share(weight: float, heaviest: float, ink: str) -> Text:
    halves = round(2 * BAR * weight / heaviest)
    return Text.assemble(f"{weight:.3f} ", ("━" * (halves // 2) + "╸" * (halves % 2), ink))


def _lines(label: str, texts: Sequence[Text]) -> list[Text]:
    """A label, and next to it lines that may be long but stay whole."""
    labels = [label, *[""] * (len(texts) - 1)]
    return [
        Text.assemble((f"{name:7}", "dim"), text, no_wrap=True, overflow="ignore")
        for name, text in zip(labels, texts, strict=True)
    ]


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
