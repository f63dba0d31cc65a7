"""Figures 1 to 5 of the paper, σ over the rounds, rotated test images, and reliability diagrams."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from unseen import ANGLES

import steelyard as sy
from steelyard.metrics import Bins
from steelyard.report.charts import Lines, line_charts, tidy
from steelyard.report.reliability import draw_reliability
from steelyard.report.split import draw_spec
from steelyard.report.style import FAINT, INK, save
from steelyard.specs.schema import Spec
from steelyard.studies.cells import Results
from studies import RULES

COLOURS = {
    "FashionMNIST": "#12606c",
    "CIFAR-10": "#b3412f",
    "SVHN, 5,000 images": "#c98b2b",
    "AALV": "#7aa6a1",
    "EAA": "#c98b2b",
    "GAA": "#b3412f",
    "RKLB": "#12606c",
    "WB": "#6a5d9b",
    "α = 1/2": "#4f7f3f",
    "forward KL": "#9fb3bd",
    "FedAvg": "#b3412f",
    "FedAvg at T": "#c98b2b",
}
LAYERS: Mapping[float, str] = {0: "0 FedAvg", 1: "1 RKLB", 2: "2 RKLB", 3: "3 RKLB"}
DETAILED = {  # methods also scored on shifted test images: (row of the table, suffix of its scores)
    "FedAvg": ("0 FedAvg", ""),
    "FedAvg at T": ("0 FedAvg", "_scaled"),
    "RKLB": ("3 RKLB", ""),
    "forward KL": ("3 forward KL", ""),
}
TOY = {"p": (0.0, 1.0), "q": (2.0, 0.25)}


def draw(results: Results, costs: Lines, spec: Spec, out: Path) -> list[Path]:
    table = results["table"]
    paths = [out / f"figure{number}.png" for number in range(1, 6)] + [out / "sigma.png", out / "shift.png"]
    draw_toy(paths[0])
    draw_spec(spec, paths[1])
    measures = {"ece": "ECE", "nll": "negative log-likelihood"}
    line_charts(
        {title: by_layers(table, name) for name, title in measures.items()},
        "More Bayesian layers (RKLB): calibration and uncertainty",
        "Bayesian layers", "", paths[2], COLOURS, log=True,
    )  # fmt: skip
    line_charts(
        {"time of a local step": costs},
        "What Bayesian layers cost", "Bayesian layers", "× of FedAvg's", paths[3], COLOURS,
    )  # fmt: skip
    fair = {"client_accuracy_weighted": "mean, by examples", "client_accuracy_worst10": "worst tenth"}
    line_charts(
        {title: by_layers(table, name) for name, title in fair.items()},
        "Fairness: accuracy on the clients' own test data", "Bayesian layers", "accuracy", paths[4], COLOURS,
    )  # fmt: skip
    draw_sigmas(results, paths[5])
    line_charts(
        {name: by_angle(rows) for name, rows in table.items()},
        "Test images turned (three Bayesian layers): negative log-likelihood", "degrees", "",
        paths[6], COLOURS, log=True,
    )  # fmt: skip
    return [*paths, *(draw_bins(name, rows, out) for name, rows in table.items())]


def draw_bins(name: str, rows: Mapping[str, Mapping[str, Any]], out: Path) -> Path:
    """Reliability diagrams of the first seed's models."""
    path = out / f"reliability-{name.split(',')[0].lower()}.png"
    first = {
        label: next(iter(rows[method].values()))["bins"][suffix]
        for label, (method, suffix) in DETAILED.items()
    }
    panels = {
        label: Bins(**{part: torch.tensor(values) for part, values in parts.items()})
        for label, parts in first.items()
    }
    draw_reliability(panels, f"How sure, how right: {name}, three Bayesian layers", path)
    return path


def by_layers(table: Mapping[str, Mapping[str, Any]], measure: str) -> Lines:
    """FedAvg, and RKLB with 1, 2 and 3 Bayesian layers: means over the seeds that all of them have."""
    lines: dict[str, dict[float, float]] = {}
    for name, rows in table.items():
        runs = {last: rows[method] for last, method in LAYERS.items()}
        seeds = [seed for seed in runs[0] if all(seed in by_seed for by_seed in runs.values())]
        lines[name] = {
            last: statistics.fmean(by_seed[seed][measure] for seed in seeds) for last, by_seed in runs.items()
        }
    return lines


def by_angle(rows: Mapping[str, Mapping[str, Any]]) -> Lines:
    """NLL on rotated test images, by angle: means over the seeds."""
    shifts = {0.0: "none", **{float(angle): f"{angle}°" for angle in ANGLES}}
    return {
        label: {angle: mean_under(shift, rows[method], "nll" + suffix) for angle, shift in shifts.items()}
        for label, (method, suffix) in DETAILED.items()
        if method in rows
    }


def mean_under(shift: str, runs: Mapping[str, Any], score: str) -> float:
    return statistics.fmean(run["shift"][shift][score] for run in runs.values())


def draw_sigmas(results: Results, path: Path) -> None:
    """σ of each Bayesian layer over the rounds, for each rule: the first seed."""
    table = results["table"]["FashionMNIST"]
    runs = {name: table[f"3 {name}"] for name in RULES if f"3 {name}" in table}
    first = {name: next(iter(by_seed.values()))["curves"] for name, by_seed in runs.items()}
    layers = [name for name in first["RKLB"] if name.startswith("sigma.")]
    panels = {
        f"Bayesian layer {number}": {name: curves[layer] for name, curves in first.items()}
        for number, layer in enumerate(layers, start=1)
    }
    title, y_label = "How wide the posterior is", "σ, root mean variance"
    # WB is dashed because it lies on other lines.
    line_charts(panels, title, "round", y_label, path, COLOURS, dashed="WB", log=True)


def draw_toy(path: Path) -> None:
    """Figure 1: N(0, 1) and N(2, 0.25) merged with equal weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.4), facecolor="white")
    ax = figure.subplots()
    x = torch.linspace(-3, 4, 500)
    means, variances = (torch.tensor([[value[part]] for value in TOY.values()]) for part in (0, 1))
    for name, (mean, variance) in TOY.items():
        height = density(x, mean, variance)
        ax.fill_between(x, height, color=FAINT, alpha=0.15, lw=0)
        top = int(height.argmax())
        ax.text(float(x[top]), float(height[top]) + 0.02, name, ha="center", fontsize=9, color=FAINT)
    for name, rule in RULES.items():
        merged = sy.combine(means, rule=rule, variances=variances)
        assert merged.variance is not None
        mean, variance = float(merged.mean), float(merged.variance)
        label = f"{name}: N({mean:.3g}, {variance:.3g})"
        ax.plot(x, density(x, mean, variance), color=COLOURS[name], lw=1.8, label=label)
    ax.set_ylim(0, 0.95)
    ax.set_yticks([])
    tidy(ax)
    ax.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="upper left")
    title = "Two posteriors, p = N(0, 1) and q = N(2, 0.25), merged with equal weights"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    figure.subplots_adjust(left=0.03, right=0.99, top=0.88, bottom=0.1)
    save(figure, path)


def density(x: torch.Tensor, mean: float, variance: float) -> torch.Tensor:
    return torch.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
