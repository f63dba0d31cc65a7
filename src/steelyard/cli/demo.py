"""The demo: `steelyard run` without arguments."""

from pathlib import Path

from steelyard.cli.page import page_beside
from steelyard.cli.shared import finish, show_values, stderr

PRESET = "poisoned"
RULES = ("samples", "ivar-vb", "majority")


def run_demo(seed: int | None, out: Path, page: bool, as_json: bool) -> None:
    """Run one poisoned federation under three weighing rules, record the runs, and show them side by side.

    Its page is the list of the runs in `out`.
    """
    with stderr().status("loading"):
        from steelyard.report.demo import demo_report
        from steelyard.runs.reader import Run
        from steelyard.runs.summary import summarise
        from steelyard.specs.building import build
        from steelyard.specs.running import recorder_for
        from steelyard.specs.schema import load_spec

        common = {} if seed is None else {"seed": seed}
        specs = [
            load_spec(PRESET, {**common, "weighing": rule, "name": f"{PRESET}-{rule}"}) for rule in RULES
        ]
    out.mkdir(parents=True, exist_ok=True)
    with page_beside(out, page):
        paths = [finish(spec.name, build(spec), recorder_for(spec, out)) for spec in specs]
        summaries = {rule: summarise(Run(path)) for rule, path in zip(RULES, paths, strict=True)}
        show_values({"runs": summaries}, lambda: demo_report(summaries), as_json)
