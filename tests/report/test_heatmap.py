"""Heat maps: the worst of each row, and pictures that can be read whatever the size of the grid."""

import csv
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from steelyard.report.grid_tables import failures_report, grid_report, write_csv
from steelyard.report.heatmap import draw_heatmap
from steelyard.report.heatmap_layout import Scale, scale_of
from steelyard.studies.grid_results import Entry, GridResults, Worst, number
from steelyard.texts import csv_text

FAILED = Entry(error="it broke")


def results_of(table: list[list[Entry | float | None]], metric: str = "accuracy") -> GridResults:
    """One panel from rows of values."""
    entries = {
        ("", f"row {i}", f"column {j}"): value if isinstance(value, Entry) else Entry(value)
        for i, row in enumerate(table)
        for j, value in enumerate(row)
    }
    rows = tuple(f"row {i}" for i in range(len(table)))
    return GridResults(metric, ("",), rows, tuple(f"column {j}" for j in range(len(table[0]))), entries)


def random_results(rows: int, columns: int, panels: int, label: str = "name {}") -> GridResults:
    draw = random.Random(0)
    names = [tuple(label.format(i) for i in range(count)) for count in (panels, rows, columns)]
    entries = {(p, r, c): Entry(draw.random()) for p in names[0] for r in names[1] for c in names[2]}
    return GridResults("accuracy", *names, entries)


def draw(shown: GridResults, path: Path) -> NDArray[np.int64]:
    draw_heatmap(shown, "A grid", "seed 0", path)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def test_cells_have_deviations_and_axes_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def keep(figure: Figure, path: Path) -> None:
        written.extend(text.get_text() for text in figure.findobj(Text))

    monkeypatch.setattr("steelyard.report.heatmap.save", keep)
    table: list[list[Entry | float | None]] = [[Entry(0.5, 0.02), Entry(0.6)], [FAILED, None]]
    shown = replace(results_of(table), row_key="weighing", column_key="training.lr", seeds=(0, 1))
    draw_heatmap(shown, "A grid", shown.caption, tmp_path / "heat.png")
    assert {"weighing", "training.lr", "0.50", "± 0.02", "0.60", "failed"} <= set(written)
    assert "accuracy, mean ± sd over seeds 0, 1" in written
    text = text_of(shown)
    assert text.startswith("accuracy  mean ± sd over seeds 0, 1\ncolumns: training.lr\n")
    assert "0.50 ±0.02" in text
    assert "weighing" in text


def test_deviations_go_below_their_means_on_a_narrow_terminal() -> None:
    table: list[list[Entry | float | None]] = [[Entry(0.5, 0.02)] * 6]
    console = Console(width=70)
    with console.capture() as captured:
        console.print(grid_report(results_of(table)))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 70
    assert captured.get().count("0.50") == 7
    assert captured.get().count("±0.02") == 6


def text_of(shown: GridResults) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(grid_report(shown))
    return captured.get()


def test_the_worst_is_the_least_mean_and_says_where() -> None:
    assert results_of([[0.9, 0.2, 0.5]]).worst("", "row 0") == Worst("column 1", 0.2)


@pytest.mark.parametrize("metric", ["nll", "mse", "loss", "client_accuracy_sd"])
def test_where_less_is_better_the_worst_is_the_most(metric: str) -> None:
    assert results_of([[0.9, 0.2, 0.5]], metric).worst("", "row 0") == Worst("column 0", 0.9)


def test_missing_values_are_skipped_and_a_failure_is_the_worst() -> None:
    assert results_of([[0.9, None, 0.5]]).worst("", "row 0") == Worst("column 2", 0.5)
    assert results_of([[0.1, FAILED, 0.5]]).worst("", "row 0") == Worst("column 1", None)
    assert results_of([[None, None]]).worst("", "row 0") is None


def test_rows_are_sorted_by_their_worst() -> None:
    table: list[list[Entry | float | None]] = [
        [0.9, 0.1],
        [None, None],
        [0.5, 0.4],
        [0.9, FAILED],
        [0.3, 0.2],
    ]
    assert results_of(table).sorted_by_worst().rows[:3] == ("row 2", "row 4", "row 0")
    assert results_of(table[:1] + table[2:3], "nll").sorted_by_worst().rows == ("row 1", "row 0")


def test_numbers_have_two_decimals_where_they_fit() -> None:
    assert [number(each) for each in (0.256, 12.0, 123456.0, None)] == ["0.26", "12.00", "1.2e+05", "–"]


def test_dark_is_better_whatever_the_metric() -> None:
    up, down = scale_of(results_of([[0.1, 0.9]])), scale_of(results_of([[0.5, 4.5]], "nll"))
    assert (up, up.shade(0.9) > up.shade(0.1)) == (Scale(0.0, 1.0, False), True)
    assert (down, down.shade(0.5), down.shade(4.5)) == (Scale(0.5, 4.5, True), 1.0, 0.0)
    assert scale_of(results_of([[0.91, 0.95]])) == Scale(0.91, 0.95, False)
    assert down.shade(float("inf")) == 0.0


@pytest.mark.parametrize(
    ("rows", "columns", "panels"), [(1, 1, 1), (2, 2, 1), (3, 12, 1), (16, 12, 6), (30, 3, 2), (5, 4, 3)]
)
def test_any_grid_gives_a_picture_of_a_sane_size(
    tmp_path: Path, rows: int, columns: int, panels: int
) -> None:
    results = replace(random_results(rows, columns, panels), row_key="data.partition", column_key="weighing")
    pixels = draw(results, tmp_path / "heat.png")
    height, width, _ = pixels.shape
    assert 250 < height < 3000
    assert 300 < width < 3600
    assert 0.4 < width / height < 3
    inked = np.asarray((pixels < 250).any(axis=2))
    for edge in (inked[:8], inked[-8:], inked[:, :8], inked[:, -4:]):
        assert not edge.any(), "nothing is cut off"


def test_long_and_odd_names_stay_inside(tmp_path: Path) -> None:
    results = random_results(4, 5, 2, "a_very_long_name_{} of $x_{{$\n")
    inked = (draw(results, tmp_path / "heat.png") < 250).any(axis=2)
    for edge in (inked[:8], inked[-8:], inked[:, :8], inked[:, -4:]):
        assert not edge.any()


def test_good_cells_are_dark_and_the_worst_have_their_own_column(tmp_path: Path) -> None:
    pixels = draw(results_of([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]), tmp_path / "heat.png")
    above_the_legend = pixels[:-120]
    dark = np.asarray((np.abs(above_the_legend - [8, 52, 61]) < 3).all(axis=2))
    line = np.flatnonzero(dark[dark.sum(axis=1).argmax()])  # across the good row, above its numbers
    gaps = np.diff(line)[np.diff(line) > 1]
    assert len(gaps) == 3, "three columns and the worst"
    assert gaps[2] > 3 * gaps[:2].max(), "the last stands apart"
    top, bottom = np.array_split(np.flatnonzero(dark.any(axis=1)), 2)
    assert dark[bottom].sum() > 1.5 * dark[top].sum(), "the first row has a bad cell, and so a bad worst"


def test_the_picture_has_no_worst_for_one_column(tmp_path: Path) -> None:
    one, two = results_of([[0.5], [0.6]]), results_of([[0.5, 0.5], [0.6, 0.6]])
    assert (one.has_worst, two.has_worst) == (False, True)
    assert "worst" not in text_of(one)
    assert "worst" in text_of(two)


def test_the_table_shows_numbers_missing_values_failures_and_the_worst() -> None:
    lines = text_of(results_of([[0.9, 0.254, None], [0.5, FAILED, 0.1]])).splitlines()
    first, second = (next(line for line in lines if line.startswith(f"row {i}")) for i in (0, 1))
    assert first.split()[2:] == ["0.90", "0.25", "–", "0.25", "column", "1"]
    assert second.split()[2:] == ["0.50", "failed", "0.10", "failed", "column", "1"]
    assert text_of(results_of([[None, None]])).splitlines()[-1].split() == ["row", "0", "–", "–", "–"]


def test_failures_are_shown_with_their_reason() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(failures_report([("a × b", "it broke")]))
    assert captured.get().splitlines() == ["failed: 1", "a × b  it broke"]


def test_csv_has_every_cell(tmp_path: Path) -> None:
    shown = results_of([[Entry(0.5, 0.1, values=(0.4, 0.6)), FAILED]])
    write_csv([shown], tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["row"], first["column"], first["metric"]) == ("row 0", "column 0", "accuracy")
    assert (float(first["mean"]), float(first["sd"]), first["values"]) == (0.5, 0.1, "0.4 0.6")
    assert (second["mean"], second["error"]) == ("", "it broke")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'=1"),
        ("-0.5", "-0.5"),
        ("+3", "+3"),
        ("-1e-3", "-1e-3"),
        ("plain = text", "plain = text"),
        ("\x1b[31mred", "red"),
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula(text: str, cell: str) -> None:
    assert csv_text(text) == cell


def test_labels_metrics_and_errors_are_neutralised_in_csv(tmp_path: Path) -> None:
    place = ("", "=row", "@column")
    shown = GridResults("=metric", ("",), ("=row",), ("@column",), {place: Entry(-0.5, error="=error")})
    write_csv([shown], tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert (line["metric"], line["row"], line["column"]) == ("'=metric", "'=row", "'@column")
    assert (line["mean"], line["error"]) == ("-0.5", "'=error")


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")])
def test_the_end_of_the_name_is_the_format(tmp_path: Path, name: str, magic: bytes) -> None:
    draw_heatmap(results_of([[0.5, 0.6]]), "A grid", "seed 0", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, steelyard.report.heatmap; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
