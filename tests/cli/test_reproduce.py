"""steelyard reproduce"""

import json
import sys
from pathlib import Path

import pytest
from calls import output, steelyard

REPRODUCE = """
from dataclasses import dataclass

from studies import PAPER


@dataclass
class Claim:
    paper: str


def main(out, quick, say):
    from steelyard import components
    import tables

    say(PAPER)
    out.mkdir(parents=True)
    model = components.find("models", "studies:model")()
    (out / "claim.txt").write_text(f"{Claim(PAPER)} {model} {tables.PAPER}")
    return [out / "claim.txt"]
"""
STUDIES = """
PAPER = "{paper}"


def model():
    return "model of {paper}"
"""


@pytest.fixture
def papers(place: Path) -> Path:
    """Two papers whose programs have the same names."""
    for paper in ("one", "two"):
        folder = place / "experiments" / paper
        folder.mkdir(parents=True)
        (folder / "reproduce.py").write_text(REPRODUCE)
        (folder / "studies.py").write_text(STUDIES.format(paper=paper))
        (folder / "tables.py").write_text("from studies import PAPER")
    return place / "experiments"


@pytest.mark.usefixtures("papers")
def test_two_papers_in_one_process_get_their_own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tables", pytest)  # a module of this name that was imported before
    path = list(sys.path)
    for paper in ("one", "two", "one"):
        out = Path(f"results-{paper}-{len(list(Path().glob('results-*')))}")
        found = json.loads(output(steelyard("reproduce", paper, "--out", out, "--json")))
        assert found == {"files": [str(out / "claim.txt")], "quick": False}
        assert Path(found["files"][0]).read_text() == f"Claim(paper='{paper}') model of {paper} {paper}"
    assert sys.path == path
    assert "studies" not in sys.modules
    assert sys.modules["tables"] is pytest


def test_results_go_to_the_folder_of_the_paper(papers: Path) -> None:
    output(steelyard("reproduce", "one"))
    output(steelyard("reproduce", "one", "--quick"))
    for folder in ("results", "results-quick"):
        assert (papers / "one" / folder / "claim.txt").is_file()


def test_a_program_that_fails_leaves_nothing_behind(papers: Path) -> None:
    (papers / "two" / "reproduce.py").write_text("import studies\n1 / 0")
    path = list(sys.path)
    assert isinstance(steelyard("reproduce", "two").exception, ZeroDivisionError)
    assert sys.path == path
    assert "studies" not in sys.modules


def test_an_interruption_says_that_the_same_command_continues(papers: Path) -> None:
    program = "def main(out, quick, say):\n    raise KeyboardInterrupt\n"
    (papers / "two" / "reproduce.py").write_text(program)
    result = steelyard("reproduce", "two")
    message = "error: interrupted; what is finished is recorded, and the same command continues.\n"
    assert (result.exit_code, result.stderr) == (130, message)


def test_an_unknown_paper_is_refused_with_the_nearest_one(papers: Path) -> None:
    result = steelyard("reproduce", "tow")
    assert (result.exit_code, result.stderr) == (2, "error: unknown paper 'tow': did you mean 'two'?\n")


DRAWING = """
def main(out, quick, say):
    from steelyard.report.charts import line_charts, markdown_table

    out.mkdir(parents=True)
    rows = {"FedAvg": ["0.5", ""], "FedBaC, stabilised": ["0.6 ± 0.1", "**0.7**"]}
    tables = [markdown_table(rows, ["", "accuracy", heading]) for heading in ("worst", "sd " * 30)]
    (out / "table.md").write_text("\\n".join(tables))
    line_charts({"MNIST": {"a": {1: 0.5, 2: 0.6}}}, "MNIST, 200 rounds", "x", "y", out / "a.svg", {})
    return [out / "table.md", out / "a.svg"]
"""


@pytest.mark.parametrize("quick", [False, True])
def test_tables_are_printed_and_all_of_a_quick_run_says_that_it_is_one(
    papers: Path, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (papers / "one" / "reproduce.py").write_text(DRAWING)
    text = output(steelyard("reproduce", "one", *(["--quick"] if quick else [])))
    lines = [line.split() for line in text.splitlines()]
    assert lines.count(["FedAvg", "0.5"]) == 2, "a table, not its source"
    assert lines.count(["FedBaC,", "stabilised", "0.6", "±", "0.1", "**0.7**"]) == 2
    assert text.count("QUICK CHECK") == quick, "said once"
    folder = papers / "one" / ("results-quick" if quick else "results")
    assert f"written: {folder / 'table.md'}" in text, "in one line, also if it is long"
    for written in ((folder / "table.md").read_text(), (folder / "a.svg").read_text()):
        assert ("QUICK CHECK" in written) == quick


def test_git_ignores_what_quick_runs_write() -> None:
    root = Path(__file__).parents[2]
    assert "results-quick/" in (root / ".gitignore").read_text().splitlines()
