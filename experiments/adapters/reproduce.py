"""`steelyard reproduce adapters`: LoRA adapters by speaking role, merged in three ways, and under attack."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from scipy import stats
from text import Size, loss_of

from steelyard.report.charts import markdown_table
from steelyard.studies.parallel_runs import processes, submitted
from steelyard.threads import cores
from studies import ATTACKS, SMALL, Cell, Data, cells, prepared, run

WORKERS: int | None = None  # all cores
Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{setting: {method: {seed: what came of the run}}}."""


def main(out: Path, quick: bool, say: Callable[[str], Any] = print) -> list[Path]:
    """Run everything; write results.json and tables into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = prepared(SMALL if quick else Size())
    todo, results = list(cells(quick)), {"base": loss_of(data.model, data.test)}
    say(f"before adapting: {results['base']:.3f} bits per character")
    for number, (cell, found) in enumerate(zip(todo, run_all(data, todo), strict=True), 1):
        setting = results.setdefault(cell.study, {}).setdefault(cell.setting, {})
        setting.setdefault(cell.method, {})[str(cell.seed)] = found
        say(f"{number} of {len(todo)} runs: {cell.setting}, {cell.method}: {found['bits'][-1]:.3f} bits")
    texts_of = {
        "merging": by_method(results["merging"]),
        "attacks": by_method(results["attacks"]),
        "hostile-weight": hostile_weights(results["attacks"]),
        "costs": costs(results["merging"]),
    }
    (out / "results.json").write_text(json.dumps({"quick": quick, **results}))
    for name, text in texts_of.items():
        (out / f"{name}.md").write_text(text)
    return [out / "results.json", *(out / f"{name}.md" for name in texts_of)]


def run_all(data: Data, todo: list[Cell]) -> Iterator[dict[str, Any]]:
    if WORKERS == 1:
        yield from (run(data, cell) for cell in todo)
        return
    with processes(WORKERS or cores()) as pool:
        found = [submitted(pool, run, data, cell) for cell in todo]
        try:
            yield from (each.result() for each in found)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def by_method(study: Cells) -> str:
    """Bits per character in the end, mean ± sd; from the second method on, the difference from the first."""
    methods = list(dict.fromkeys(method for setting in study.values() for method in setting))
    rows = {
        setting: [against(runs[methods[0]], runs.get(method, {})) for method in methods]
        for setting, runs in study.items()
    }
    return markdown_table(rows, ("bits per character", *methods))


def against(base: Mapping[str, Any], runs: Mapping[str, Any]) -> str:
    values = [run["bits"][-1] for run in runs.values()]
    if not values:
        return ""
    text = f"{statistics.fmean(values):.3f}"
    text += f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    gaps = [runs[seed]["bits"][-1] - base[seed]["bits"][-1] for seed in runs]
    if runs is base or not any(gaps):
        return text
    p = f", p {stats.ttest_1samp(gaps, 0.0).pvalue:.2g}" if len(gaps) > 2 else ""
    return f"{text} ({statistics.fmean(gaps):+.3f}{p})"


def hostile_weights(study: Cells) -> str:
    """The mean weight of the hostile role over rounds and seeds; an equal share is 0.2."""
    attacks = [name for name in ATTACKS if name != "none"]
    rows = {
        setting: [
            f"{statistics.fmean(run['hostile_weight'] for run in runs[name].values()):.3f}"
            for name in attacks
        ]
        for setting, runs in study.items()
    }
    return markdown_table(rows, ("weight of the hostile role", *attacks))


def costs(study: Cells) -> str:
    """Traffic of a round, and the error of the rank in the first and the last round."""
    rows = {}
    for setting, methods in study.items():
        for method, runs in methods.items():
            each = list(runs.values())
            errors = [[row["rank_error"][place] for row in each] for place in (0, -1)]
            shown = [f"{100 * statistics.fmean(e):.1f} %" if None not in e else "" for e in errors]
            sent, whole = (each[0][name] / 1000 for name in ("bytes", "bytes_of_whole_models"))
            rows[f"{setting}: {method}"] = [f"{sent:,.0f}", f"{whole:,.0f}", *shown]
    return markdown_table(
        rows, ("", "kB a round", "whole models, kB", "rank error, first round", "rank error, last round")
    )
