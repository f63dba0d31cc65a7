"""The results of benchmarks/simulation.py as Markdown tables."""

import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from contenders.plans import PLANS, flops
from contenders.process import Outcome
from contenders.setting import Setting

ENGINES = ("serial", "pool", "vectorized", "ray")
Results = dict[str, list[Outcome]]
"""{contender: outcomes of its passes}."""
Rows = dict[str, dict[str, str]]


def middle(outcomes: Iterable[Outcome]) -> float | None:
    """Median seconds of a round over all passes."""
    seconds = [time for outcome in outcomes for time in outcome.seconds if not outcome.problem]
    return statistics.median(seconds) if seconds else None


def start_up(outcomes: Iterable[Outcome]) -> float | None:
    """Seconds until the first round is done, minus a median round."""
    times = [
        one.first_done - one.rounds[0].get("exchanges", 1) * statistics.median(one.seconds)
        for one in outcomes
        if not one.problem
    ]
    return statistics.median(times) if times else None


def outside(outcomes: Iterable[Outcome]) -> float | None:
    """Share of a round outside training and predicting."""
    shares = [round["outside"] for one in outcomes for round in one.rounds[1:] if "outside" in round]
    return statistics.median(shares) if shares else None


def accuracy(outcomes: Iterable[Outcome], number: int) -> float | None:
    """Test accuracy after a round."""
    values = [outcome.rounds[number - 1]["accuracy"] for outcome in outcomes if not outcome.problem]
    return values[0] if values else None


def common_round(results: Results) -> int:
    """The last round that every contender without a problem has finished."""
    counts = [len(one.rounds) for passes in results.values() for one in passes if not one.problem]
    return min(counts, default=1)


def table(title: str, rows: Mapping[str, Mapping[str, str]]) -> None:
    """Print {row: {column: cell}} as Markdown."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    if not columns:
        return
    print(f"\n### {title}\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for label, cells in rows.items():
        print(f"| {label} | {' | '.join(cells.get(column, '') for column in columns)} |", flush=True)


def by_setting(found: Mapping[str, Results], measure: Callable[[str, list[Outcome]], str | None]) -> Rows:
    """One row per setting, one cell per contender; rows without any value are left out."""
    rows = {}
    for key, results in found.items():
        cells = {name: measure(key, outcomes) for name, outcomes in results.items()}
        if any(cells.values()):
            rows[f"({key}) {PLANS[key].title}"] = {name: cell or "–" for name, cell in cells.items()}
    return rows


def show(value: float | None, form: str, scale: float = 1.0) -> str | None:
    return None if value is None else form.format(value * scale)


def milliseconds(_: str, outcomes: list[Outcome]) -> str:
    seconds = middle(outcomes)
    if seconds is None:
        problem = outcomes[-1].problem or ""
        return problem if problem.startswith("over ") else "failed"
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def report(found: Mapping[str, Results], settings: Mapping[str, Setting], speed: float) -> None:
    """Print the tables with one row per setting."""
    table("Milliseconds a round (median)", by_setting(found, milliseconds))
    table(
        "Seconds to start: until the first round is done, less a median round",
        by_setting(found, lambda _, outcomes: show(start_up(outcomes), "{:.1f}")),
    )
    table(
        "Peak memory of all processes, MB (proportional set size)",
        by_setting(found, lambda _, outcomes: show(outcomes[0].megabytes, "{:,.0f}")),
    )
    work = {key: flops(setting) for key, setting in settings.items()}

    def useful(key: str, outcomes: list[Outcome]) -> str | None:
        seconds = middle(outcomes)
        return None if seconds is None else f"{work[key] / seconds / speed:.2%}"

    title = f"Useful arithmetic, as a share of the {speed / 1e9:.0f} GFLOP/s of a large matrix product"
    table(title, by_setting(found, useful))
    last = {key: common_round(results) for key, results in found.items()}
    rows = by_setting(found, lambda key, outcomes: show(accuracy(outcomes, last[key]), "{:.4f}"))
    after = {label: {"rounds": str(last[label[1]]), **cells} for label, cells in rows.items()}
    table("Test accuracy after the same rounds", after)
    rows = by_setting(found, lambda _, outcomes: show(outside(outcomes), "{:.1%}"))
    table("Share of a round outside training and predicting", only_engines(rows))
    table(
        "Disturbance: share of the machine that was busy with something else (mean of the passes)",
        by_setting(found, lambda _, passes: f"{statistics.fmean(one.others for one in passes):.0%}"),
    )
    for key, results in found.items():
        for name, outcomes in results.items():
            if outcomes[-1].problem:
                print(f"\n* {name} in ({key}): {outcomes[-1].problem}")


def only_engines(rows: Rows) -> Rows:
    return {
        label: {name: cell for name, cell in cells.items() if name in ENGINES}
        for label, cells in rows.items()
    }


def header(found: Mapping[str, Results]) -> str:
    """The machine and the versions."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), cpu)
    versions = {"torch": torch.__version__}
    for results in found.values():
        for outcomes in results.values():
            versions |= outcomes[0].versions
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{cpu}, {os.cpu_count()} cores; Python {platform.python_version()}, {named}"
