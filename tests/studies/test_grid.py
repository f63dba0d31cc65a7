"""Grids as they are read: every cell is the run of its row, column and panel."""

from pathlib import Path
from typing import Any

import pytest
from quick_grids import QUICK, small

import steelyard as sy
from steelyard.specs import sources
from steelyard.specs.schema import load_spec
from steelyard.studies.grid import read_grid, run_grid
from steelyard.studies.grid_axes import Axis, read_axis

FILE = """
preset = "fedprox"
rounds = 1
[data]
clients = 3
[training]
steps = 2
[grid]
seeds = [0, 1]
metrics = ["accuracy", "nll"]
[grid.rows]
plain = { weighing = "samples" }
careful = { weighing = "uniform", "server.clip" = 1.0 }
[grid.columns]
training.lr = [0.1, 0.01]
[grid.panels]
iid = { data = { partition = "iid" } }
skewed = { "data.partition" = { name = "dirichlet", alpha = 0.1 } }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my-grid.toml"
    path.write_text(FILE)
    return path


def refused(*arguments: Any, **axes: Any) -> str:
    with pytest.raises(sy.InputError) as caught:
        read_grid(*arguments, **axes).cells()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_has_axes_seeds_and_metrics(file: Path) -> None:
    grid = read_grid(file)
    assert grid.rows.labels == ("plain", "careful")
    assert grid.columns == Axis(
        {"0.1": {"training": {"lr": 0.1}}, "0.01": {"training": {"lr": 0.01}}}, "training.lr"
    )
    assert grid.panels.labels == ("iid", "skewed")
    assert (grid.seeds, grid.metrics) == ((0, 1), ("accuracy", "nll"))


def test_there_is_a_cell_for_every_combination_and_seed(file: Path) -> None:
    cells = read_grid(file).cells()
    places = {(*cell.place, cell.spec.seed) for cell in cells}
    assert len(cells) == len(places) == 2 * 2 * 2 * 2
    assert ("skewed", "careful", "0.01", 1) in places


def test_a_cell_is_what_run_would_run_with_the_same_changes(file: Path) -> None:
    (cell,) = [
        each
        for each in read_grid(file, {"rounds": 4}).cells()
        if (*each.place, each.spec.seed) == ("skewed", "careful", "0.01", 1)
    ]
    changes = {
        "name": cell.spec.name,
        "data.clients": 3,
        "training.steps": 2,
        "rounds": 4,
        "data.partition": {"name": "dirichlet", "alpha": 0.1},
        "weighing": "uniform",
        "server.clip": 1.0,
        "training.lr": 0.01,
        "seed": 1,
    }
    alone = load_spec("fedprox", changes)
    assert cell.spec == load_spec("fedprox", {**changes, "engine": "serial"})
    assert cell.spec.fingerprint() == alone.fingerprint()
    assert cell.spec.data.seed == 1
    assert cell.spec.name.startswith("my-grid+rounds=4+data.partition.alpha=0.1+weighing=uniform")


def test_options_replace_the_axes_of_the_file(file: Path) -> None:
    grid = read_grid(file, rows="weighing=uniform", columns={"a": {"rounds": 2}}, seeds=[7], metrics=["nll"])
    assert (grid.rows.labels, grid.columns.labels) == (("uniform",), ("a",))
    assert grid.panels.labels == ("iid", "skewed")
    assert (grid.seeds, grid.metrics) == ((7,), ("nll",))
    assert {cell.spec.rounds for cell in grid.cells()} == {2}


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("weighing=samples,uniform", {"samples": "samples", "uniform": "uniform"}),
        ("weighing=1,0.5,none", {"1": 1, "0.5": 0.5, "none": None}),
        ("weighing=[1,2],[3]", {"[1,2]": [1, 2], "[3]": [3]}),
        ('weighing={name="a",b=1},c', {'{name="a",b=1}': {"name": "a", "b": 1}, "c": "c"}),
    ],
)
def test_typed_values_are_split_at_commas_and_label_themselves(text: str, choices: dict[str, Any]) -> None:
    expected = {label: {"weighing": value} for label, value in choices.items()}
    assert read_axis("rows", text) == Axis(expected, "weighing")


def test_a_list_of_choices_is_labelled_in_words_and_mixed_lists_by_their_settings() -> None:
    axis = read_axis("rows", {"data.partition": ["iid", {"name": "dirichlet", "alpha": 0.1}]})
    assert axis.labels == ("iid", "dirichlet (alpha 0.1)")
    mixed = read_axis("rows", {"rounds": [1, 2], "mine": {"rounds": 3}})
    assert (mixed.labels, mixed.key) == (("rounds=1", "rounds=2", "mine"), "")


def test_the_axes_beat_what_is_changed_for_all() -> None:
    grid = read_grid(None, {"rounds": 9, "data.clients": 4}, rows="rounds=1,2")
    assert [cell.spec.rounds for cell in grid.cells()] == [1, 2]
    assert {cell.spec.data.clients for cell in grid.cells()} == {4}


def test_presets_can_vary() -> None:
    cells = read_grid("fedavg", QUICK, rows="preset=fedavg,fedprox").cells()
    assert [cell.spec.objective["name"] for cell in cells] == ["cross-entropy", "proximal"]
    assert [cell.spec.fingerprint() for cell in cells] == [
        load_spec(name, QUICK).fingerprint() for name in ("fedavg", "fedprox")
    ]


def test_without_seeds_each_cell_has_its_own() -> None:
    assert [cell.spec.seed for cell in read_grid(None, {"seed": 5}, rows="rounds=1").cells()] == [5]
    assert [cell.spec.seed for cell in read_grid(None, rows="seed=3,4").cells()] == [3, 4]


def test_cells_run_serially_unless_an_engine_is_named() -> None:
    def engines(*arguments: Any, **axes: Any) -> list[str]:
        return [cell.spec.engine["name"] for cell in read_grid(*arguments, **axes).cells()]

    assert engines(rows="rounds=1,2") == ["serial", "serial"]
    assert engines(None, {"engine": "auto"}, rows="rounds=1") == ["auto"]
    assert engines(None, {"engine.name": "pool"}, rows="rounds=1") == ["pool"]
    assert engines({"engine": "pool"}, rows="rounds=1") == ["pool"]
    assert engines(rows="engine=pool,vectorized") == ["pool", "vectorized"]


def test_a_bad_cell_is_named_before_anything_runs(tmp_path: Path) -> None:
    grid = small(rows="weighing=samples,unifrom", columns="training.lr=0.1,0.2", panels="data.partition=iid")
    with pytest.raises(sy.InputError, match=r"cell unifrom × 0.1 × iid: .*did you mean 'uniform'"):
        run_grid(grid, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rows": {"a": {"roundz": 1}}}, "cell a: unknown key 'roundz': did you mean 'rounds'?"),
        ({"rows": {"a": {"training.lr": -1.0}}}, "cell a: training.lr must be greater than 0"),
        ({"rws": {}}, "unknown key 'grid.rws': did you mean 'grid.rows'?"),
        ({}, "a grid needs a setting that varies"),
        (3, "grid should be a table, not 3."),
        ({"rows": ["a"]}, "grid.rows should be a table"),
        ({"rows": {"rounds": 3}}, "grid.rows.rounds should be a table or a list"),
        ({"rows": {"rounds": [3, 3]}}, "grid.rows has '3' twice."),
        ({"rows": {"rounds": []}}, "grid.rows has no values."),
        (
            {"rows": {"rounds": [1]}, "seeds": [1, 1]},
            "grid.seeds should be a list of different whole numbers",
        ),
        ({"rows": {"rounds": [1]}, "seeds": 1}, "grid.seeds should be"),
        ({"rows": {"rounds": [1]}, "metrics": [1]}, "grid.metrics should be a list of different names"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_in_one_sentence(table: Any, sentence: str) -> None:
    assert sentence in refused({"grid": table})


@pytest.mark.parametrize("text", ["weighing", "=a", "weighing=", "weighing=a,,b"])
def test_an_axis_that_cannot_be_read_is_refused(text: str) -> None:
    assert "--rows takes a setting and its values" in refused(rows=text)


def test_a_grid_file_is_not_a_run(file: Path) -> None:
    with pytest.raises(sy.InputError, match=rf"a grid, not a single run: use `steelyard grid {file}`"):
        load_spec(file)
    assert "grid" in sources.table_of(file)


def test_some_labels_may_override_a_setting_of_another_axis_but_not_all() -> None:
    columns = {"none": {"adversaries.count": 0}, "flips": {"adversaries.attack": "sign-flip"}}
    panels = "adversaries.count=1,2"
    cells = read_grid(None, rows="weighing=samples", columns=columns, panels=panels).cells()
    assert [cell.spec.adversaries.count for cell in cells] == [0, 1, 0, 2]
    columns["flips"]["adversaries.count"] = 3
    with pytest.raises(
        sy.InputError, match=r"adversaries\.count is on the panels and the columns of the grid"
    ):
        read_grid(None, rows="weighing=samples", columns=columns, panels=panels)
    with pytest.raises(sy.InputError, match="seed is on the rows and the seeds of the grid"):
        read_grid(None, rows="seed=1,2", seeds=[3, 4])
