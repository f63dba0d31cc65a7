"""Observers in a spec: their names, their settings, and that they do not change what is computed."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard import components
from steelyard.errors import InputError
from steelyard.specs.building import build
from steelyard.specs.running import run_or_resume
from steelyard.specs.schema import load_spec
from steelyard.types import Round

QUICK = {"rounds": 3, "data.clients": 2, "training.steps": 1}

MINE = """
from steelyard.observers import Tracker

told = []


def appending(prefix: str = ""):
    return lambda round: told.append(f"{prefix}{round.number}")


class Own(Tracker):
    def __call__(self, round):
        told.append(round.number)

    def end(self, status):
        told.append(status)
"""


def test_the_names_are_those_of_the_programs() -> None:
    assert list(components.names("observers")) == ["csv", "jsonlines", "mlflow", "tensorboard"]


@pytest.mark.parametrize(
    "given", ["csv", ["csv"], {"name": "csv"}, [{"name": "csv", "path": None}], ("csv",)]
)
def test_a_single_observer_needs_no_list(given: Any) -> None:
    assert load_spec(None, {"observers": given}).observers == [{"name": "csv", "path": None}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["cvs"], r"^unknown observer 'cvs': did you mean 'csv'\?"),
        ([{"name": "csv", "file": 1}], r"^unknown setting 'file' of observer 'csv'"),
        ([{"name": "csv", "path": 1}], r"observer 'csv': path should be"),
        ([3], r"^observers should be a name or a table with a name, not 3"),
    ],
)
def test_mistakes_are_named(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_spec(None, {"observers": given})


def test_a_spec_with_observers_is_written_and_read_back() -> None:
    named = ["csv", {"name": "mlflow", "experiment": "mine"}]
    spec = load_spec(None, {"observers": named})
    assert load_spec(tomllib.loads(spec.to_toml())) == spec
    assert "observers" not in tomllib.loads(load_spec().to_toml()).get("model", {})


def test_observers_are_not_part_of_the_fingerprint_nor_is_their_code(tmp_path: Path) -> None:
    plain = load_spec().fingerprint()
    for named in (["csv"], [{"name": "mlflow", "experiment": "x"}], ["no.such.module:observer"]):
        assert load_spec(None, {"observers": named}, imports=False).fingerprint() == plain


def test_a_run_that_is_recorded_without_observers_counts_as_the_same_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sy.run(None, _stop, out=tmp_path, **QUICK, observers=["csv"])
    (path,) = tmp_path.iterdir()
    result = run_or_resume(load_spec(None, QUICK), path, out=tmp_path)
    assert result.path == path
    assert (path / "rounds.csv").read_text().count("\n") == 4


def _stop(round: Round) -> None:
    if round.number == 2:
        raise KeyboardInterrupt


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "mine_observing.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("mine_observing")
    sys.modules.pop("mine_observing", None)


def test_observers_of_ones_own_are_named_by_module_and_factory(mine: Any, tmp_path: Path) -> None:
    named = [{"name": "mine_observing:appending", "prefix": "no. "}, "mine_observing:Own"]
    sy.run(None, out=None, **{**QUICK, "rounds": 2}, observers=named)
    assert mine.told == ["no. 1", 1, "no. 2", 2, "finished"]


def test_resume_starts_them_again(mine: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sy.run(None, _stop, out=tmp_path / "runs", **QUICK, observers=["mine_observing:Own"])
    (path,) = (tmp_path / "runs").iterdir()
    assert mine.told[-1] == "interrupted"
    mine.told.clear()
    sy.resume(path)
    assert mine.told[-2:] == [3, "finished"]


def test_paths_inside_the_current_folder_need_no_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(
        'rounds = 1\nobservers = [{ name = "csv", path = "tables/a" }]\n[data]\nclients = 2\n'
    )
    sy.run("own.toml", out=None)
    assert (tmp_path / "tables" / "a" / "rounds.csv").is_file()


def test_a_model_can_be_loaded_where_the_library_of_an_observer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = sy.run(None, out=tmp_path, **{**QUICK, "rounds": 1}, observers=["tensorboard"])
    monkeypatch.setattr("steelyard.observers.facts.find_spec", lambda name: None)
    assert result.path is not None
    sy.load_model(result.path)
    sy.resume(result.path)
    build(load_spec(result.path / "spec.toml"))
