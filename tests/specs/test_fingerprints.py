"""Equal fingerprints mean the same computation; other code, engines or values have others."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steelyard.objectives
import steelyard.settings
import steelyard.weighing
from steelyard import components
from steelyard.annotations import hints_of
from steelyard.components import family_of
from steelyard.settings import Server, Training
from steelyard.specs import fingerprints, schema
from steelyard.specs.fingerprints import CHOICES
from steelyard.specs.schema import Spec, load_spec
from steelyard.specs.source_code import source_hash

RULE = """
from dataclasses import dataclass

import torch
import helper_of_mine
from steelyard.types import Weighed
from steelyard.weighing import Weigher


@dataclass(frozen=True)
class Mine(Weigher):
    def weigh(self, geometry, round, state):
        return Weighed(torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64))
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rule of the user's own, in a package, which imports a module beside the package."""
    (tmp_path / "package_of_mine").mkdir()
    for name, text in (("__init__", ""), ("rules", RULE), ("other", "WIDTH = 1\n")):
        (tmp_path / "package_of_mine" / f"{name}.py").write_text(text)
    (tmp_path / "helper_of_mine.py").write_text("STRENGTH = 1\n")
    (tmp_path / "unrelated.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("package_of_mine", "helper_of_mine"))]:
        del sys.modules[name]


def of(**overrides: Any) -> str:
    return load_spec(None, {key.replace("__", "."): value for key, value in overrides.items()}).fingerprint()


@pytest.mark.parametrize(
    ("file", "same"),
    [
        ("package_of_mine/rules.py", False),
        ("package_of_mine/other.py", False),
        ("helper_of_mine.py", False),
        ("unrelated.py", True),
    ],
)
def test_editing_the_code_behind_a_name_changes_the_fingerprint(rules: Path, file: str, same: bool) -> None:
    mine = "package_of_mine.rules:Mine"
    before = of(weighing=mine)
    assert of(weighing=mine) == before
    (rules / file).write_text((rules / file).read_text() + "# edited\n")
    assert (of(weighing=mine) == before) == same


def test_code_in_a_nested_choice_counts(rules: Path) -> None:
    nested = {"name": "nnm", "rule": "package_of_mine.rules:Mine"}
    before = of(weighing=nested)
    (rules / "helper_of_mine.py").write_text("STRENGTH = 2\n")
    assert of(weighing=nested) != before


def test_compare_does_not_reuse_the_runs_of_an_edited_rule(rules: Path) -> None:
    """Each comparison in a process of its own, as on the command line."""
    script = (
        "from pathlib import Path; from steelyard.studies.comparison import compare; "
        "rows = compare([{'weighing': 'package_of_mine.rules:Mine'}], [0], "
        "{'rounds': 1, 'data.clients': 2, 'training.steps': 1}, Path('runs')); print(rows[0]['runs'][0])"
    )

    def run() -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(rules), *sys.path])}
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=rules, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run()
    assert run() == first
    (rules / "package_of_mine" / "rules.py").write_text(RULE.replace("1 / len", "1.0 / len"))
    assert run() != first


def test_a_name_without_source_never_has_the_same_hash() -> None:
    assert source_hash("no_such_module_anywhere:x") != source_hash("no_such_module_anywhere:x")
    assert source_hash("sys:exit") == source_hash("sys:exit")
    assert source_hash("json:loads") == source_hash("json:loads")


@pytest.mark.parametrize("engine", ["serial", "pool", "ray", {"name": "pool", "workers": 3}])
def test_engines_with_the_bits_of_serial_share_a_fingerprint(engine: Any) -> None:
    assert of(engine=engine) == of()
    assert of(engine=engine, data__clients=100) == of(engine="serial", data__clients=100)


def test_vectorized_and_auto_with_many_clients_have_fingerprints_of_their_own() -> None:
    many = {"data__clients": 100}
    auto, serial, vectorized = (of(engine=name, **many) for name in ("auto", "serial", "vectorized"))
    assert len({auto, serial, vectorized}) == 3
    assert of(engine={"name": "vectorized", "workers": 2}, **many) == vectorized
    assert of(engine={"name": "vectorized", "device": "cuda"}, **many) != vectorized
    few = {**many, "clients_per_round": 10}
    assert of(engine="auto", **few) == of(engine="serial", **few)
    assert of(engine="vectorized", **few) != of(engine="serial", **few)


def test_a_fingerprint_has_the_kind_of_device_and_not_its_number() -> None:
    cuda = of(engine={"name": "serial", "device": "cuda"})
    assert cuda != of(engine="serial")
    assert cuda != of(engine={"name": "serial", "device": "mps"})
    assert cuda != of(engine={"name": "vectorized", "device": "cuda"})
    assert cuda == of(engine={"name": "serial", "device": "cuda:1"})
    assert cuda == of(engine={"name": "auto", "device": "cuda"})
    assert of(engine={"name": "serial", "device": "cpu"}) == of(engine="serial")


def test_auto_is_apart_exactly_where_its_rule_can_choose_joint_training() -> None:
    assert of(engine="auto", data__clients=31) == of(engine="serial", data__clients=31)
    assert of(engine="auto", data__clients=32) != of(engine="serial", data__clients=32)
    extra = {"data__clients": 30, "adversaries__count": 2, "adversaries__extra": True}
    assert of(engine="auto", **extra) != of(engine="serial", **extra)


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 31},
        {"seed": 1},
        {"data__seed": 1},
        {"data__holdout": 0.1},
        {"data__partition__alpha": 0.4},
        {"data__shift": "rotation"},
        {"data__partition": "iid"},
        {"model__hidden": 65},
        {"model": "logistic"},
        {"objective": {"name": "proximal"}},
        {"objective": {"name": "proximal", "mu": 0.02}},
        {"objective": {"name": "proximal", "base": {"name": "cross-entropy", "label_smoothing": 0.1}}},
        {"weighing__cap": 3.0},
        {"weighing": "uniform"},
        {"combining": "median"},
        {"training__lr": 0.2},
        {"training__steps": 3},
        {"server__clip": 1.0},
        {"server__max_norm_ratio": float("inf")},
        {"adversaries__count": 1},
        {"adversaries__count": 1, "adversaries__attack": "gaussian"},
        {"clients_per_round": 3},
        {"patience": 3},
    ],
    ids=str,
)
def test_every_setting_that_changes_a_result_changes_the_fingerprint(
    change: dict[str, Any], seen: dict[str, str]
) -> None:
    assert of(**change) not in seen
    seen[of(**change)] = str(change)


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    return {of(): "nothing"}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"about": "text"},
        {"spill": True},
        {"adversaries__attack": "gaussian"},
        {"rounds": 30},
    ],
    ids=str,
)
def test_settings_without_effect_do_not_change_it(change: dict[str, Any]) -> None:
    assert of(**change) == of()


def test_a_fingerprint_survives_the_disk(tmp_path: Path) -> None:
    for changes in ({"server.max_norm_ratio": float("inf")}, {"weighing": "nnm"}, {"model": "assorted"}, {}):
        spec = load_spec(None, changes)
        (tmp_path / "fedavg.toml").write_text(spec.to_toml())
        again = load_spec(tmp_path / "fedavg.toml")
        assert again == spec
        assert again.fingerprint() == spec.fingerprint()


def test_a_setting_that_is_turned_off_with_none_is_not_lost_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steelyard.weighing, "Uniform", with_new_setting(steelyard.weighing.Uniform, 0.5))
    spec = load_spec(None, {"weighing": {"name": "uniform", "novelty": None}})
    (tmp_path / "fedavg.toml").write_text(spec.to_toml())
    assert 'novelty = "none"' in spec.to_toml()
    assert load_spec(tmp_path / "fedavg.toml") == spec
    assert "none" not in load_spec().to_toml()


def with_new_setting(kind: type, value: Any) -> type:
    """A dataclass like `kind` with one more setting, as a later version might have."""
    return dataclasses.make_dataclass(
        kind.__name__,
        [("novelty", float | None, value)],
        bases=(kind,),
        frozen=True,
        namespace={"__doc__": "New."},
    )


def test_a_new_setting_keeps_the_fingerprints_of_recorded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = (
        {"weighing": "nnm"},
        {"weighing": {"name": "nnm", "rule": "uniform"}},
        {"objective": {"name": "proximal", "mu": 0.3}},
        {"objective": {"name": "elbo", "base": {"name": "proximal"}}},
    )
    before = [load_spec(None, changes).fingerprint() for changes in specs]
    for module, name in (
        (steelyard.weighing, "Nnm"),
        (steelyard.weighing, "Uniform"),
        (steelyard.objectives, "Proximal"),
    ):
        monkeypatch.setattr(module, name, with_new_setting(getattr(module, name), 0.5))
    assert [load_spec(None, changes).fingerprint() for changes in specs] == before
    assert load_spec(None, specs[0]).weighing["novelty"] == 0.5
    for changes in ({"weighing": {"name": "nnm", "novelty": 0.7}}, {**specs[2], "objective.novelty": 0.7}):
        assert load_spec(None, changes).fingerprint() not in before


def test_a_new_setting_of_training_keeps_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, defaults = load_spec(None, {"training.lr": 0.3}).model_dump(), Spec().model_dump()
    before = fingerprints.fingerprint(spec, defaults)
    spec["training"]["novelty"] = defaults["training"]["novelty"] = 1
    spec["privacy"] = defaults["privacy"] = {"name": "none"}
    assert fingerprints.fingerprint(spec, defaults) == before
    spec["training"]["novelty"] = 2
    assert fingerprints.fingerprint(spec, defaults) != before


def test_another_number_of_defaults_is_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(fingerprints, "DEFAULTS", fingerprints.DEFAULTS + 1)
    assert of() != before


def test_every_choice_of_a_spec_is_known() -> None:
    def choices(section: type[schema.Section], place: str = "") -> set[str]:
        found: set[str] = set()
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, schema.Section):
                found |= choices(field.annotation, f"{name}.")
            elif name not in ("training", "server") and "dict[" in str(field.annotation):
                found.add(place + name)
        return found

    hints = {"training": hints_of(Training), "server": hints_of(Server)}
    nested = {f"{name}.{key}" for name, found in hints.items() for key in found if family_of(found[key])}
    assert choices(Spec) | nested == set(CHOICES)
    assert set(CHOICES.values()) == set(components.FAMILIES)


def test_several_threads_for_a_client_are_another_computation() -> None:
    two = of(engine={"name": "serial", "threads": 2})
    assert two != of(engine="serial")
    assert two != of(engine={"name": "serial", "threads": 3})
    assert two == of(engine={"name": "pool", "threads": 2, "workers": 5})
    assert two == of(engine={"name": "auto", "threads": 2})
    assert of(engine={"name": "auto", "threads": 2}, data__clients=100) == of(
        engine={"name": "serial", "threads": 2}, data__clients=100
    )
    assert of(engine={"name": "pool", "threads": 1}) == of(engine="serial")
    on_cuda = of(engine={"name": "serial", "device": "cuda", "threads": 2})
    assert len({two, on_cuda, of(engine={"name": "serial", "device": "cuda"})}) == 3
