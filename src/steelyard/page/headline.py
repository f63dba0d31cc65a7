"""The result of a run in one sentence and a few figures."""

from collections.abc import Mapping
from typing import Any

from steelyard.page.series import RoundSeries
from steelyard.verdicts.sentences import figure, percent

SCORES = (
    ("accuracy", "test accuracy", max),
    ("mse", "test mean squared error", min),
    ("test_loss", "test loss", min),
    ("client_accuracy", "mean accuracy of the clients", max),
    ("client_mse", "mean squared error over the clients", min),
    ("client_test_loss", "mean test loss of the clients", min),
    ("validation_accuracy", "validation accuracy", max),
    ("validation_mse", "mean squared error on validation data", min),
    ("validation_loss", "validation loss", min),
    ("loss", "training loss", min),
)
"""What a run is judged by: the first that it has."""


def main_score(rounds: RoundSeries) -> tuple[str, str, list[float | None], Any] | None:
    """Name, label, values over rounds (or bins of rounds) and the better of two."""
    columns = rounds.columns()
    for name, label, better in SCORES:
        if name in columns:
            return name, label, columns[name], better
    return None


def headline(rounds: RoundSeries, done: int, clients: int, rule: str, status: str) -> str:
    """The result and its context."""
    with_whom = f"with {clients:,} client{'s' if clients != 1 else ''}, weighed by {rule}"
    when = f"{done:,} round{'s' if done != 1 else ''}"
    score = main_score(rounds)
    known = [] if score is None else [value for value in score[2] if value is not None]
    if score is None or not known:
        return f"{'No' if not done else 'No score after'} {when if done else 'round yet'}, {with_whom}."
    so_far = " so far" if status == "running" else ""
    return f"{score[1][0].upper()}{score[1][1:]} {digits(known[-1])} after {when}{so_far}, {with_whom}."


def facts(rounds: RoundSeries, seconds: RoundSeries, clients: int) -> list[dict[str, str]]:
    """Figures for the top of the page: label, value and a note."""
    columns = rounds.columns()
    found = [_score_fact(rounds)] if main_score(rounds) else []
    for name, label, note in (
        ("nll", "NLL", "negative log-likelihood, lower is better"),
        ("ece", "calibration error", "ECE: confidence against accuracy"),
        ("r2", "R²", "share of the variance that is explained"),
        ("client_accuracy_worst10", "worst 10 % of clients", "their mean accuracy"),
        ("detection_auroc", "detection AUROC", "1: all adversaries weigh less than all others"),
    ):
        if (value := _last(columns, name)) is not None:
            found.append({"label": label, "value": digits(value), "note": note})
    if (value := _last(columns, "effective_clients")) is not None:
        note = f"of {clients:,}; 1 if one client has all the weight"
        found.append({"label": "effective clients", "value": figure(value), "note": note})
    found += _totals(rounds, seconds)
    return found


def _score_fact(rounds: RoundSeries) -> dict[str, str]:
    score = main_score(rounds)
    assert score is not None
    _, label, values, better = score
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    best, place = better(known, key=lambda each: each[0])
    width = rounds.binned.width
    where = f"round {place + 1}" if width == 1 else f"rounds {place * width + 1}–{(place + 1) * width}"
    return {"label": label, "value": digits(known[-1][0]), "note": f"best {digits(best)}, {where}"}


def _totals(rounds: RoundSeries, seconds: RoundSeries) -> list[dict[str, str]]:
    """Figures that are sums over the run."""
    rejected, used = (_total(rounds, name) for name in ("rejected", "used"))
    found = []
    if rejected + used:
        note = f"{percent(rejected / (rejected + used))} of all"
        found.append({"label": "rejected replies", "value": f"{rejected:,.0f}", "note": note})
    spent = sum(_total(seconds, name) for name in seconds.names)
    if spent and rounds.binned.counts.size:
        count = max(1.0, float(rounds.binned.counts.max(axis=1).sum()))
        found.append(
            {"label": "time", "value": duration(spent), "note": f"{duration(spent / count)} a round"}
        )
    return found


def _total(series: RoundSeries, name: str) -> float:
    place = series.names.get(name)
    return 0.0 if place is None else float(series.binned.sums[:, place].sum())


def _last(columns: Mapping[str, list[float | None]], name: str) -> float | None:
    return next((value for value in reversed(columns.get(name, [])) if value is not None), None)


def digits(value: float) -> str:
    """A score: three decimals, or four significant digits if it is small or large."""
    return f"{value:.3f}" if 0.001 <= abs(value) < 100 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds in a unit that is easy to read."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
