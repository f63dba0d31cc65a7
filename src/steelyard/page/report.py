"""The report: one HTML file about one run, or about several side by side."""

from collections.abc import Sequence
from pathlib import Path

from steelyard.errors import InputError
from steelyard.page.comparison import compare
from steelyard.page.document import saved_document
from steelyard.page.follower import page_json
from steelyard.page.run_page import RunPage
from steelyard.page.series import Json

MAX_RUNS = 12


def page_data(paths: Sequence[Path]) -> Json:
    """What a page shows of one or several recorded runs."""
    if len(paths) > MAX_RUNS:
        raise InputError(f"a report shows at most {MAX_RUNS} runs, not {len(paths)}.")
    keys = [path.resolve().name for path in paths]
    pages = [RunPage(path, share=len(paths)) for path in paths]
    runs = []
    for number, page in enumerate(pages):
        page.read()
        key = keys[number] if keys.count(keys[number]) == 1 else f"{keys[number]} ({number + 1})"
        runs.append({**page.json(), "key": key})
    return page_json(runs, compare(pages, runs) if len(runs) > 1 else None)


def write_report(paths: Sequence[Path], out: Path) -> Path:
    """Write the report of some runs to an HTML file; nothing is left behind if that fails."""
    data = page_data(paths)
    names = [str(run["name"]) for run in data["runs"]]
    text = saved_document(data, f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} · steelyard")
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.write_text(text, "utf-8")
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"cannot write {out}: {error.strerror or error}.") from None
    return out
