"""Files that name code run only if they are trusted."""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import steelyard as sy
from steelyard.errors import InputError
from steelyard.runs.reader import Run
from steelyard.specs import gate, trust
from steelyard.specs.loading import load_predictions, load_test
from steelyard.specs.schema import load_spec
from steelyard.studies.comparison import compare
from steelyard.studies.grid import read_grid

QUICK = {"rounds": 1, "data.clients": 2, "training.steps": 1}

# Leaves a file behind when it is imported, so that a test sees whether it was.
HOSTILE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()

from steelyard.nn.zoo import mlp
from steelyard.weighing import Samples
from steelyard.objectives import CrossEntropy
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stranger, with a module in it, as the current one."""
    (tmp_path / "stranger.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STEELYARD_CONFIG", str(tmp_path / "settings"))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    return tmp_path


def written(place: Path, text: str, name: str = "stranger.toml") -> Path:
    (place / name).write_text(text)
    return place / name


WAYS = {
    "a model": 'model = "stranger:mlp"',
    "a table": 'model = { name = "stranger:mlp", hidden = 3 }',
    "a nested choice": 'objective = { name = "proximal", base = "stranger:CrossEntropy" }',
    "a nested table": '[objective]\nname = "proximal"\n[objective.base]\nname = "stranger:CrossEntropy"',
    "a dotted key": 'weighing.name = "stranger:Samples"',
    "an escaped colon": 'model = "stranger\\u003amlp"',
    "a data set": '[data]\ndataset = "stranger:mlp"',
    "a partition": '[data]\npartition = "stranger:mlp"',
    "a shift": '[data]\nshift = "stranger:mlp"',
    "an attack": '[adversaries]\nattack = "stranger:mlp"',
    "an engine": 'engine = "stranger:mlp"',
    "beside a preset": 'preset = "fedprox"\nmodel = "stranger:mlp"',
    "part of steelyard that is no component": 'model = "steelyard.data.fetching.packages:_run"',
    "a cluster": 'engine = { name = "ray", address = "ray://stranger.org:10001" }',
    "an observer": 'observers = ["stranger:mlp"]',
    "a tracking server": 'observers = [{ name = "mlflow", tracking_uri = "http://stranger.org" }]',
    "a file elsewhere": 'observers = [{ name = "csv", path = "/tmp/elsewhere" }]',
    "a file above": '[[observers]]\nname = "jsonlines"\npath = "a/../../b"',
    "a file at home": 'observers = { name = "tensorboard", path = "~/board" }',
}


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_a_file_that_names_code_is_refused_before_anything_is_imported(place: Path, text: str) -> None:
    path = written(place, text)
    for door in (load_spec, sy.run, lambda file: compare([file], [0])):
        with pytest.raises(InputError, match=r"names code .*--trust .*trust=True .*`steelyard trust"):
            door(path)
    with pytest.raises(InputError, match="names code"):
        read_grid(path, rows="weighing=samples,uniform")
    assert not (place / "imported").exists()
    assert not (place / "runs").exists()


GRIDS = {
    "values": '[grid]\nrows = { model = ["mlp", "stranger:mlp"] }',
    "labels": '[grid.rows]\nplain = {}\nother = { model = "stranger:mlp" }',
    "tables": '[grid]\nrows = { model = [{ name = "stranger:mlp" }, "mlp"] }',
    "dotted": '[grid]\nrows.model.name = ["stranger:mlp"]',
    "an address": '[grid]\nrows = { "engine.address" = ["ray://stranger.org:10001"] }',
}


@pytest.mark.parametrize("text", GRIDS.values(), ids=GRIDS)
def test_the_axes_of_a_grid_file_are_looked_at_too(place: Path, text: str) -> None:
    with pytest.raises(InputError, match="names code"):
        read_grid(written(place, text))
    assert not (place / "imported").exists()


def test_text_that_would_be_parsed_behind_the_gate_is_no_axis_of_a_file(place: Path) -> None:
    path = written(place, "[grid]\nrows = 'model={name=\"stranger\\u003amlp\"},mlp'")
    with pytest.raises(InputError, match=r"grid\.rows should be a table"):
        read_grid(path).cells()
    assert not (place / "imported").exists()


def test_names_that_are_passed_from_python_never_ask(place: Path) -> None:
    assert load_spec({"model": "stranger:mlp"}).model["hidden"] == 64
    assert load_spec(None, {"model": "stranger:mlp"}).model["hidden"] == 64
    sy.run(load_spec(None, {**QUICK, "model": "stranger:mlp"}), out=None)
    assert (place / "imported").exists()


@pytest.mark.parametrize(
    "text", ["model = 'mlp'", 'about = "time:now"', "[grid]\nseeds = [1]\nrows={seed=[1]}"]
)
def test_files_that_name_no_code_never_ask(place: Path, text: str) -> None:
    table = tomllib.loads(text)
    assert gate.code_names(table) == []
    gate.admit(place / "any.toml", b"", table, permission=False)  # an UntrustedError would be raised here


def test_with_trust_the_file_runs(place: Path) -> None:
    path = written(place, 'model = "stranger:mlp"\nrounds = 1\ntraining.steps = 1\ndata.clients = 2')
    assert load_spec(path, trust=True).model["hidden"] == 64
    assert len(sy.run(path, out=None, trust=True).history) == 1


def test_a_function_is_asked_with_the_file_and_the_names(place: Path) -> None:
    path = written(place, 'model = "stranger:mlp"\nweighing = "stranger:Samples"')
    asked: list[Any] = []

    def answer(file: Path, names: Any) -> bool:
        asked.append((file, list(names)))
        return len(asked) > 1

    with pytest.raises(InputError, match="names code"):
        load_spec(path, trust=answer)
    assert not (place / "imported").exists()
    load_spec(path, trust=answer)
    assert asked == [(path, ["stranger:Samples", "stranger:mlp"])] * 2


def test_comparing_a_file_on_several_seeds_asks_once(place: Path) -> None:
    path = written(place, 'model = "stranger:mlp"\nrounds = 1\ntraining.steps = 1\ndata.clients = 2')
    asked: list[Path] = []
    compare([path], [0, 1, 2], trust=lambda file, names: asked.append(file) or True)  # type: ignore[func-returns-value]
    assert asked == [path]


def test_files_in_a_trusted_folder_run_until_it_is_removed(place: Path) -> None:
    (place / "deep" / "down").mkdir(parents=True)
    path = written(place, 'model = "stranger:mlp"', "deep/down/mine.toml")
    assert trust.trust_folder(place / "deep") == place / "deep"
    assert load_spec(path).model["hidden"] == 64
    assert trust.trusted_folders() == [place / "deep"]
    trust.distrust_folder(place / "deep")
    with pytest.raises(InputError, match="names code"):
        load_spec(path)


def test_a_link_out_of_a_trusted_folder_is_not_trusted(place: Path) -> None:
    path = written(place, 'model = "stranger:mlp"')
    (place / "trusted").mkdir()
    (place / "trusted" / "link.toml").symlink_to(path)
    trust.trust_folder(place / "trusted")
    with pytest.raises(InputError, match="names code"):
        load_spec(place / "trusted" / "link.toml")


def test_a_folder_beside_a_trusted_one_is_not_trusted(place: Path) -> None:
    for name in ("mine", "mine-not"):
        (place / name).mkdir()
    trust.trust_folder(place / "mine")
    with pytest.raises(InputError, match="names code"):
        load_spec(written(place, 'model = "stranger:mlp"', "mine-not/spec.toml"))


def run_of(place: Path, **overrides: Any) -> Path:
    result = sy.run(None, out=place / "runs", **{**QUICK, "model": "stranger:mlp", **overrides})
    assert result.path is not None
    return result.path


def test_the_users_own_run_can_be_resumed_and_loaded_without_asking(place: Path) -> None:
    path = run_of(place)
    assert len(sy.resume(path).history) == 1
    assert isinstance(sy.load_model(path), torch.nn.Module)
    assert len(load_test(path)) == len(load_predictions(path).labels)
    assert load_spec(path / "spec.toml").model["name"] == "stranger:mlp"


@pytest.mark.parametrize("change", ["edited", "moved", "another user", "seal of another"])
def test_a_run_that_was_not_made_like_this_here_asks(
    place: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_of(place)
    spec = path / "spec.toml"
    if change == "edited":
        spec.write_text(spec.read_text().replace('about = ""', 'about = "mine"'))
    elif change == "moved":
        path = path.rename(place / "moved")
    elif change == "another user":
        monkeypatch.setenv("STEELYARD_CONFIG", str(place / "other-settings"))
    else:
        other = run_of(place, rounds=2)
        seal = (other / "spec.toml").read_text().splitlines()[0]
        spec.write_text("\n".join([seal, *spec.read_text().splitlines()[1:]]))
    for door in (sy.resume, sy.load_model, load_test, load_predictions):
        with pytest.raises(InputError, match="names code"):
            door(path)
    assert isinstance(sy.load_model(path, trust=True), torch.nn.Module)
    sy.resume(path, trust=True)


def test_a_run_without_code_is_not_marked(place: Path) -> None:
    result = sy.run(None, out=place / "runs", **QUICK)
    assert result.path is not None
    assert not (result.path / "spec.toml").read_text().startswith("#")
    assert not (place / "settings").exists()


def test_the_key_of_the_user_is_readable_by_the_user_only_and_kept(place: Path) -> None:
    run_of(place)
    key = place / "settings" / trust.KEY
    before = key.read_bytes()
    assert len(before) == 32
    assert os.stat(key).st_mode & 0o077 == 0
    run_of(place)
    assert key.read_bytes() == before
    assert [path.name for path in (place / "settings").iterdir()] == [trust.KEY]


def test_an_emptied_key_seals_nothing(place: Path) -> None:
    path = run_of(place)
    (place / "settings" / trust.KEY).write_bytes(b"")
    with pytest.raises(InputError, match="names code"):
        sy.load_model(path)


def test_a_run_is_made_also_where_no_key_can_be_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "a-file").write_text("")
    monkeypatch.setenv("STEELYARD_CONFIG", str(place / "a-file"))
    path = run_of(place)
    assert Run(path).meta["status"] == "finished"
    with pytest.raises(InputError, match="names code"):
        sy.resume(path)


@pytest.mark.parametrize(
    "name", ["os.path:", ":x", "a b:c", "a:b:c", "a/b:c", "a..b:c", "os:1", "a:b.c", "-m:x"]
)
def test_names_must_be_a_module_and_a_factory(name: str) -> None:
    with pytest.raises(InputError, match="cannot be imported: write it as"):
        gate.load("model", name)


def test_without_imports_a_spec_is_completed_as_far_as_steelyard_knows_it(place: Path) -> None:
    text = 'model = { name = "stranger:mlp", anything = 3 }\n[objective]\nname = "proximal"\n'
    path = written(place, text + 'base = { name = "stranger:CrossEntropy", odd = 1 }')
    spec = load_spec(path, {"weighing": "stranger:Samples"}, imports=False)
    assert spec.model == {"name": "stranger:mlp", "anything": 3}
    assert spec.objective == {
        "name": "proximal",
        "mu": 0.01,
        "base": {"name": "stranger:CrossEntropy", "odd": 1},
    }
    assert spec.weighing == {"name": "stranger:Samples"}
    assert not (place / "imported").exists()
    with pytest.raises(InputError, match="did you mean 'mu'"):
        load_spec(written(place, 'objective = { name = "proximal", nu = 1 }'), imports=False)
