"""Tables of numbers at any width: every number is whole."""

import io
from collections import Counter

import pytest
from rich.console import Console

from steelyard.report.charts import markdown_table, read_tables
from steelyard.report.tables import NumberTable, _folded
from steelyard.report.terminal import comparison_report

LONG = "fedavg+rounds=1+data.partition=shards+data.partition.shards=20+2-more-s0"
HEADINGS = ("", "report", "final, by seed", "sd over its rounds", "best − worst client", "Spearman, 10 %")
ROW = ("0.86", "0.2169 / 0.2168 / 0.2167", "0.0012 ± 0.0013", "+4.5**", "−0.31 (+0.1, p 0.02)")


def shown(table: NumberTable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
@pytest.mark.parametrize("name", ["a", "FedBaC, no regulariser", LONG])
def test_no_number_is_cut(width: int, name: str) -> None:
    lines = shown(NumberTable(HEADINGS, [(name, *ROW), ("other", *ROW)]), width)
    assert max(map(len, lines)) <= width
    words = Counter(" ".join(lines).split())
    for word in " ".join(ROW).split():
        assert words[word] >= 2


def test_what_fits_is_one_line_for_each_row() -> None:
    table = NumberTable(("run", "accuracy", "NLL"), [(LONG, "0.9 ± 0.1", "0.5"), ("other", "0.8", "0.4")])
    assert shown(table, 120) == [
        f"run{' ' * len(LONG)}accuracy  NLL",
        f"{LONG}  0.9 ± 0.1  0.5",
        f"other{' ' * (len(LONG) + 3)}0.8  0.4",
    ]


def test_names_are_folded_before_numbers_and_at_their_signs() -> None:
    table = NumberTable(("run", "accuracy", "NLL"), [(LONG, "0.9 ± 0.1", "0.5")])
    lines = shown(table, 60)
    assert lines[1].split() == ["fedavg+rounds=1+data.partition=shards+", "0.9", "±", "0.1", "0.5"]
    assert lines[2] == "data.partition.shards=20+2-more-s0"
    assert _folded("fedavg+rounds=1 at T = 1.24", 16) == "fedavg+rounds=1\nat T = 1.24"
    assert _folded("abcdefgh+i", 5) == "abcde\nfgh+i"


def test_deviations_go_below_means_before_columns_do() -> None:
    rows = [(LONG, *["0.9000 ± 0.1000"] * 4)]
    lines = shown(NumberTable(("", "accuracy", "nll", "worst 10 %", "client sd"), rows), 80)
    assert next(line for line in lines if "0.9000 " in line).split()[1:] == ["0.9000"] * 4
    assert lines[0].split() == ["worst", "client"]
    assert lines[1].split() == ["accuracy", "nll", "10", "%", "sd"]


def test_rows_of_unequal_numbers_of_runs_say_how_many() -> None:
    score = {"accuracy": {"mean": 0.9, "sd": None}}
    rows = [
        {"name": name, "metrics": score, "runs": ["run"] * len(seeds), "seeds": seeds}
        for name, seeds in (("a", [0, 1]), ("b", [1]), ("c", []))
    ]
    rows[2]["runs"] = ["a run without a spec"]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(comparison_report(rows, [0, 1]))
    title, *lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert " ".join(title) == "mean ± sd over the runs of each row"
    assert lines == [
        ["runs", "accuracy"],
        ["a", "2", "0.9000"],
        ["b", "1", "0.9000"],
        ["c", "1", "0.9000"],
    ]


def test_markdown_tables_are_read_as_they_were_written() -> None:
    first, second = {"a": ["", "1.5 ± 0.2"], "b": ["2", ""]}, {"x, y": ["**3**"]}
    text = markdown_table(first, ("", "n", "m")) + "\n" + markdown_table(second, ("β", "0.9"))
    assert read_tables(f"A heading\n\n{text}") == [
        (["", "n", "m"], [["a", "", "1.5 ± 0.2"], ["b", "2", ""]]),
        (["β", "0.9"], [["x, y", "**3**"]]),
    ]
