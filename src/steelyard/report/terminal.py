"""Terminal output: tables of runs that have finished. `progress` shows a run that goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from steelyard.report.tables import NumberTable
from steelyard.verdicts.sentences import percent

SPARKS = "▁▂▃▄▅▆▇█"
BAR = 16
HEADINGS = {"client_accuracy_worst10": "worst 10 %", "client_accuracy_sd": "client sd"}
MAX_CLIENTS = 40
MIN_ALIKE = 3  # clients that nothing sets apart, to share one line
MAX_OWN = 4  # metrics of the user's own that are shown


def run_report(summary: dict[str, Any]) -> RenderableType:
    """Clients and scores of a recorded run."""
    title = Text.assemble((summary["name"], "bold"), ("  " + summary["about"], "dim"))
    parts: list[RenderableType] = [title, Text(_how_it_ended(summary)), ""]
    if summary["clients"]:
        own = summary.get("own_metrics", ())
        parts += [client_report(summary["clients"], own), "", verdict_report(summary["clients"]), ""]
    if scores := _scores(summary["metrics"], summary.get("own_metrics", ())):
        parts.append(scores)
    if summary["accuracies"]:
        parts.append(
            Text.assemble(("accuracy by round  ", "dim"), (sparkline(summary["accuracies"]), "cyan"))
        )
    if best := summary.get("best"):
        figures = f"round {best['round']} by {best['metric']} {best['score']:.4g}"
        parts.append(Text.assemble(("best:              ", "dim"), figures))
    if summary["path"] is not None:
        place = (("recorded in        ", "dim"), summary["path"])
        parts.append(Text.assemble(*place, no_wrap=True, overflow="ignore"))
    return Group(*parts)


def client_report(clients: Sequence[dict[str, Any]], own_metrics: Sequence[str] = ()) -> Table:
    """One row per client: samples, mean weight over its rounds, accuracy (or error), and own metrics."""
    measures = [
        name for name in ("accuracy", "mse", "test_loss") if any(row.get(name) is not None for row in clients)
    ]
    measure = measures[0] if measures else "accuracy"
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    hostile = any(row.get("adversary") for row in clients)
    table.add_column("client", no_wrap=True)
    if hostile:
        table.add_column("", style="red", no_wrap=True)
    table.add_column("samples", justify="right")
    table.add_column("mean weight", no_wrap=True)
    own = [name for name in own_metrics[:MAX_OWN] if any(name in row for row in clients)]
    for name in (measure, *own):
        table.add_column(name, justify="right")
    heaviest = max((row["weight"] or 0 for row in clients), default=0) or 1
    for row in clients[:MAX_CLIENTS]:
        weight = row["weight"] or 0.0
        share = Text.assemble(f"{weight:6.3f} ", ("━" * round(BAR * weight / heaviest), "cyan"))
        kind = ["adversary" if row.get("adversary") else ""] if hostile else []
        scores = (_score(row.get(name)) for name in (measure, *own))
        numbers: list[RenderableType] = [_number(row["num_examples"]), share, *scores]
        table.add_row(Text(row["client"]), *kind, *numbers)
    if len(clients) > MAX_CLIENTS:
        table.add_row(f"… and {len(clients) - MAX_CLIENTS} more", style="dim")
    return table


def verdict_report(clients: Sequence[dict[str, Any]]) -> RenderableType:
    """Why each client counted as much as it did; those that counted for least, beside equal shares, first.

    Clients that nothing sets apart share one line, unless they were adversaries.
    """
    ordered = sorted(clients, key=lambda row: (row["weight"] or 0.0) / (row["equal_share"] or 1.0))
    others = [row for row in ordered if row["stands_out"] or row.get("adversary")]
    alike = [row for row in ordered if not (row["stands_out"] or row.get("adversary"))]
    if len(alike) < MIN_ALIKE:
        others, alike = ordered, []
    lines = [_verdict(row) for row in others[:MAX_CLIENTS]]
    if len(others) > MAX_CLIENTS:
        lines.append(Text(f"… and {len(others) - MAX_CLIENTS:,} more: `steelyard report` shows all", "dim"))
    lines += [_common_verdict(alike, len(clients))] if alike else []
    return Group(Text("why", "dim"), *(Padding(line, (0, 0, 0, 2)) for line in lines))


def _common_verdict(alike: Sequence[dict[str, Any]], clients: int) -> Text:
    """One sentence for clients that nothing sets apart."""
    who = f"all {clients:,}" if len(alike) == clients else f"the other {len(alike):,}"
    shares = [row["weight"] or 0.0 for row in alike]
    ends = dict.fromkeys((percent(min(shares)), percent(max(shares))))
    is_equal = all(percent(row["equal_share"] or 0.0) in ends for row in alike) and len(ends) == 1
    share = f"{' to '.join(ends)} each{', an equal share' if is_equal else ''}"
    return Text.assemble((f"{who} clients", "bold"), f" counted for {share}: nothing sets them apart.")


def _verdict(row: dict[str, Any]) -> Text:
    """The sentence, with the client's name in bold."""
    return Text.assemble((row["client"], "bold"), row["verdict"].removeprefix(row["client"]))


def comparison_report(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> RenderableType:
    """One row per spec: mean ± standard deviation of each score, and the number of runs if it varies."""
    names = metric_names(rows)
    headings = [HEADINGS.get(name, name.replace("_", " ")) for name in names]
    cells = [[row["name"], *(_spread(row["metrics"].get(name)) for name in names)] for row in rows]
    title = f"mean ± sd over seeds {', '.join(map(str, seeds))}"
    if any(list(row["seeds"]) != list(seeds) for row in rows):
        title, headings = "mean ± sd over the runs of each row", ["runs", *headings]
        cells = [[name, str(len(row["runs"])), *rest] for row, (name, *rest) in zip(rows, cells, strict=True)]
    return Group(Text(title, "dim"), NumberTable(["", *headings], cells))


def metric_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row["metrics"]))


def _spread(value: dict[str, float | None] | None) -> str:
    if value is None:
        return "–"
    return f"{value['mean']:.4f}" + ("" if value["sd"] is None else f" ± {value['sd']:.4f}")


def catalogue(title: str, rows: Sequence[tuple[str, ...]], columns: Sequence[str]) -> Table:
    """A table with a title; the first column is the name."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0), title=title)
    table.title_justify, table.title_style = "left", "bold"
    for position, name in enumerate(columns):
        table.add_column(name, style="cyan" if position == 0 else "", no_wrap=position == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def scores_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A title, and a table of names and numbers."""
    return Group(Text(title, "bold"), NumberTable(headings, rows, name_style="cyan"))


def written(*files: object) -> RenderableType:
    """The names of files that were written; long ones are not wrapped."""
    return Group("", *(Text(f"written: {file}", no_wrap=True, overflow="ignore") for file in files))


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values in [0, 1] as a line of bars, thinned out to at most `width` of them."""
    picked = (
        [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
        if len(values) > width
        else values
    )
    return "".join(SPARKS[min(int(value * len(SPARKS)), len(SPARKS) - 1)] for value in picked)


def _how_it_ended(summary: dict[str, Any]) -> str:
    took = "" if summary["seconds"] is None else f" in {summary['seconds']:.1f} s"
    rounds = f"{summary['rounds']} rounds{took}"
    if summary["status"] == "finished":
        return rounds + (f" ({summary['engine']})" if summary.get("engine") else "")
    reason = f": {summary['error']}" if summary["error"] else ""
    return f"{summary['status']} after {rounds}{reason}"


SCORES = {
    "accuracy": {
        "test accuracy": "accuracy",
        "nll": "nll",
        "worst 10 % of clients": "client_accuracy_worst10",
    },
    "mse": {"test mse": "mse", "mean mse of the clients": "client_mse"},
    "client_accuracy": {
        "mean accuracy of the clients": "client_accuracy",
        "worst 10 % of clients": "client_accuracy_worst10",
    },
    "client_mse": {"mean mse of the clients": "client_mse"},
    "test_loss": {"test loss": "test_loss", "mean test loss of the clients": "client_test_loss"},
    "client_test_loss": {"mean test loss of the clients": "client_test_loss"},
}
"""What is shown of a run: the entry of the first metric that it has."""


def _scores(metrics: dict[str, float], own_metrics: Sequence[str]) -> Text:
    """The scores of the task, and on a line below them the user's own."""
    usual = next((labels for name, labels in SCORES.items() if name in metrics), {})
    names = [name if name in metrics else f"client_{name}" for name in own_metrics[:MAX_OWN]]
    own = {name.replace("_", " "): name for name in names}
    return Text("\n").join(line for labels in (usual, own) if (line := _values(labels, metrics)))


def _values(labels: Mapping[str, str], metrics: Mapping[str, float]) -> Text:
    pairs = [
        Text.assemble((f"{label}  ", "dim"), (f"{metrics[key]:.4f}", "bold"))
        for label, key in labels.items()
        if key in metrics
    ]
    return Text("    ").join(pairs)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
