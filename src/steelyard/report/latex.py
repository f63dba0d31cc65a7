"""Tables for LaTeX, with the rules of the package booktabs."""

import re
from collections.abc import Sequence
from typing import Any

from steelyard.studies.grid_results import Entry, GridResults, number
from steelyard.texts import plain

PACKAGE = r"% \usepackage{booktabs}"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "σ": r"$\sigma$",
    **{each: f"\\{each}" for each in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    """Text as LaTeX prints it."""
    return re.sub(r"[\\~^±–×ασ&%$#_{}]", lambda match: _SPECIAL[match[0]], " ".join(plain(text).split()))


def latex_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    above: tuple[str, int] | None = None,
    title: str = "",
) -> str:
    """A tabular; the first column has names, the others numbers. `above` is a heading over some columns."""
    lines = [r"\begin{tabular}{l" + "r" * (len(headings) - 1) + "}", r"\toprule"]
    if title:
        lines += [rf"\multicolumn{{{len(headings)}}}{{l}}{{{latex_text(title)}}} \\", r"\midrule"]
    if above is not None and above[0]:
        text, count = above
        lines += [
            rf" & \multicolumn{{{count}}}{{c}}{{{latex_text(text)}}} \\",
            rf"\cmidrule(lr){{2-{count + 1}}}",
        ]
    lines += [_line(headings), r"\midrule", *map(_line, rows), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines)


def comparison_latex(rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> str:
    """One row for each spec: mean ± standard deviation of each score over the seeds."""
    cells = [[row["name"], *(_spread(row["metrics"].get(name)) for name in metrics)] for row in rows]
    return f"{PACKAGE}\n{latex_table(['', *(name.replace('_', ' ') for name in metrics)], cells)}"


def grid_latex(results: GridResults) -> str:
    """One tabular for each panel; mean ± standard deviation over the seeds, and the worst of each row."""
    parts, above = [PACKAGE], (results.column_key, len(results.columns))
    headings = [results.row_key, *results.columns, *(["worst"] if results.has_worst else [])]
    for panel in results.panels:
        title = results.caption + (f"; {results.title(panel)}" if panel else "")
        rows = [_grid_row(results, panel, row) for row in results.rows]
        parts.append(latex_table(headings, rows, above, title))
    return "\n".join(parts)


def _grid_row(results: GridResults, panel: str, row: str) -> list[str]:
    cells = [entry_text(results.entry(panel, row, column)) for column in results.columns]
    worst = results.worst(panel, row) if results.has_worst else None
    last = "–" if worst is None else "failed" if worst.value is None else number(worst.value)
    return [row, *cells, *([last] if results.has_worst else [])]


def entry_text(entry: Entry) -> str:
    """Mean ± standard deviation of a cell."""
    if entry.error:
        return "failed"
    return number(entry.mean) + ("" if entry.sd is None else f" ± {number(entry.sd)}")


def _spread(value: dict[str, float | None] | None) -> str:
    if value is None:
        return "–"
    return f"{value['mean']:.4f}" + ("" if value["sd"] is None else f" ± {value['sd']:.4f}")


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"
