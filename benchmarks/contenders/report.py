"""The slices of benchmarks/simulation.py as Markdown tables."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from contenders.slices import Pass, Results, Slice, median_of, middle, times_faster, together

ENGINES = ("serial", "pool", "vectorized", "ray")
Rows = dict[str, dict[str, str]]
Found = Mapping[str, Results]


def markdown(slices: Sequence[Slice], order: Sequence[str]) -> str:
    """All tables; contenders are columns in this order."""
    plain = [one for one in slices if one.key not in EXTRAS]
    titles = {one.key: f"({one.key}) {one.title}" for one in plain}
    found, short = together(plain, order), {key: f"({key})" for key in titles}
    peak = max((one.peak for one in plain), default=0.0)
    work = {one.key: one.work for one in plain}
    last = {key: common_round(results) for key, results in found.items()}

    def useful(key: str, passes: list[Pass]) -> str | None:
        seconds = middle(passes)
        return f"{work[key] / seconds / peak:.2%}" if seconds and work[key] else None

    def accuracy(key: str, passes: list[Pass]) -> str | None:
        known = [one.accuracies[last[key] - 1] for one in passes if not one.problem]
        return show(known[0] if known else None, "{:.4f}")

    accuracies = by_setting(found, short, accuracy)
    numbered = {
        short[key]: {"rounds": str(last[key]), **accuracies[short[key]]}
        for key in found
        if short[key] in accuracies
    }

    def medians(form: str, values: Callable[[Pass], float | None]) -> Rows:
        return by_setting(
            found, short, lambda _, passes: show(median_of(passes, lambda one: [values(one)]), form)
        )

    parts = [
        table(
            "Milliseconds a round (median)",
            by_setting(found, titles, lambda _, passes: milliseconds(passes)),
        ),
        table("Times as fast as the loop (median of the ratios within a pass)", ratios(plain, found, short)),
        table(
            "Seconds to start: until the first round is done, less a median round",
            medians("{:.1f}", lambda one: one.start_up),
        ),
        table(
            "Peak memory of all processes, MB (proportional set size)",
            medians("{:,.0f}", lambda one: one.megabytes),
        ),
        table(
            f"Useful arithmetic, as a share of the {peak / 1e9:.0f} GFLOP/s of a large matrix product",
            by_setting(found, short, useful),
        ),
        table("Test accuracy after the same rounds", numbered),
        table(
            "Share of a round outside training and predicting",
            only_engines(medians("{:.1%}", lambda one: one.outside)),
        ),
        table(
            "Disturbance: share of the machine that was busy with something else (median of the passes)",
            medians("{:.0%}", lambda one: one.others),
        ),
        *(EXTRAS[one.key](one.results) for one in slices if one.key in EXTRAS),
        problems(slices),
        sources(slices),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def ratios(slices: Sequence[Slice], found: Found, titles: Mapping[str, str]) -> Rows:
    """Ratios are formed within a slice, whose contenders ran in turns."""
    faster: dict[tuple[str, str], str | None] = {}
    for one in slices:
        for name in one.results:
            faster[one.key, name] = show(times_faster(one.results, name, "loop"), "{:.2f}")
    columns = {name for results in found.values() for name in results} - {"loop"}
    rows = {
        titles[key]: {name: faster[key, name] or "–" for name in results if name in columns}
        for key, results in found.items()
    }
    return {title: cells for title, cells in rows.items() if any(cell != "–" for cell in cells.values())}


def doubling(results: Results) -> str:
    """The pool in (a) with 4, 8 and 16 of the 20 clients in a round, without the evaluation."""
    cells = {count: milliseconds(passes) for count, passes in results.items()}
    for count, twice in (("4", "8"), ("8", "16")):
        before, after = middle(results.get(count, [])), middle(results.get(twice, []))
        if before and after:
            cells[f"{count} → {twice}"] = f"{after / before:.2f} ×"
    title = "More clients a round: the pool in (a) without evaluation, milliseconds a round"
    return table(title, {"clients a round": cells})


def workers(results: Results) -> str:
    """The pool with one worker and with two; a contender is named by its setting and its workers."""
    rows = {}
    for key in dict.fromkeys(name.partition(" ")[0] for name in results):
        one, two = (results.get(f"{key} {count}", []) for count in (1, 2))
        first, second = middle(one), middle(two)
        faster = f"{first / second:.2f} ×" if first and second else "–"
        rows[f"({key})"] = {
            "1 worker": milliseconds(one),
            "2 workers": milliseconds(two),
            "faster by": faster,
        }
    return table("Workers of the pool, milliseconds a round", rows)


EXTRAS: Mapping[str, Callable[[Results], str]] = {"doubling": doubling, "workers": workers}


def common_round(results: Results) -> int:
    """The last round that every contender without a problem has finished."""
    counts = [len(one.accuracies) for passes in results.values() for one in passes if not one.problem]
    return min(counts, default=1)


def table(title: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    """{row: {column: cell}} as Markdown; empty without rows."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    if not columns:
        return ""
    lines = [f"**{title}**", "", f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [
        f"| {label} | {' | '.join(cells.get(column, 'not run') for column in columns)} |"
        for label, cells in rows.items()
    ]
    return "\n".join(lines)


def by_setting(
    found: Found, titles: Mapping[str, str], measure: Callable[[str, list[Pass]], str | None]
) -> Rows:
    """One row per setting, one cell per contender; rows without any value are left out."""
    rows = {}
    for key, results in found.items():
        cells = {name: measure(key, passes) for name, passes in results.items()}
        if any(cells.values()):
            rows[titles[key]] = {name: cell or "–" for name, cell in cells.items()}
    return rows


def show(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def milliseconds(passes: Sequence[Pass]) -> str:
    seconds = middle(passes)
    if seconds is None:
        problem = passes[-1].problem or "" if passes else ""
        return problem if problem.startswith("over ") else "failed"
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def only_engines(rows: Rows) -> Rows:
    return {
        label: {name: cell for name, cell in cells.items() if name in ENGINES}
        for label, cells in rows.items()
    }


def problems(slices: Sequence[Slice]) -> str:
    """The reason why a contender has no figure."""
    lines = []
    for one in slices:
        lines += [f"* {name} is left out of ({one.key}): {reason}" for name, reason in one.skipped.items()]
        lines += [
            f"* {name} in ({one.key}): {passes[-1].problem}"
            for name, passes in one.results.items()
            if passes[-1].problem
        ]
    return "\n".join(lines)


def sources(slices: Sequence[Slice]) -> str:
    """When and where each slice was measured."""
    return "\n".join(
        f"* ({one.key}) {', '.join(one.results)}: {one.at[:10]}, "
        f"{', '.join([one.machine, *(' '.join(pair) for pair in one.versions.items())])}"
        for one in slices
    )


def machine() -> str:
    """The processor, and the versions of Python and torch."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), cpu)
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
