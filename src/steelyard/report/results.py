"""A result of Python on the terminal: the same tables as `steelyard show`."""

from typing import Any

from steelyard.report.console import SafeConsole
from steelyard.report.terminal import run_report
from steelyard.runs.reader import Run
from steelyard.runs.summary import client_table, final_scores, summarise
from steelyard.server.result import Result


def show_result(result: Result) -> None:
    """Print clients, reasons and scores, and what is wrong with the run."""
    console = SafeConsole()
    console.print(run_report(result_summary(result)), crop=False)
    for text in (*result.warnings, *result.notices):
        console.print(f"warning: {text}", soft_wrap=True)


def result_summary(result: Result) -> dict[str, Any]:
    """The summary of the record, or, of a run that is not recorded, of the rows in memory."""
    if result.path is not None and Run(result.path).is_readable():
        return summarise(Run(result.path))
    return {
        "path": None,
        "name": "federation",
        "about": f"{type(result.model).__name__} · {len(result.verdicts)} clients",
        "status": "finished",
        "error": None,
        "rounds": result.state.round,
        "seconds": None,
        **final_scores(result.history),
        "clients": client_table(result.verdicts.values()),
    }
