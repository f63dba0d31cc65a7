"""Runs are named after what was changed."""

from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.runs.naming import MAX_NAME
from steelyard.specs.schema import load_spec


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "fedprox"),
        ({"weighing": "majority"}, "fedprox+weighing=majority"),
        ({"weighing": {"name": "krum", "f": 3}}, "fedprox+weighing=krum+weighing.f=3"),
        ({"training.lr": 0.001, "rounds": 5}, "fedprox+rounds=5+training.lr=0.001"),
        ({"training.lr": 1e-05}, "fedprox+training.lr=1e-05"),
        ({"patience": 3, "data.shift": "rotation"}, "fedprox+patience=3+data.shift=rotation"),
        ({"model": "mlp", "weighing": "samples"}, "fedprox"),  # as before
        ({"seed": 4, "engine": "pool", "spill": True}, "fedprox"),  # not part of a name
        ({"adversaries.extra": True}, "fedprox+adversaries.extra=true"),
        ({"name": "mine", "rounds": 5}, "mine"),
    ],
)
def test_a_name_has_the_settings_that_were_changed(changes: dict[str, Any], name: str) -> None:
    assert load_spec("fedprox", changes).name == name


MANY = {
    "rounds": 2,
    "patience": 3,
    "evaluate_every": 2,
    "data.clients": 7,
    "training.lr": 0.123456,
    "training.momentum": 0.9,
    "server.clip": 3.0,
}
"""More changes than fit into a name."""


def test_a_file_that_is_changed_keeps_its_own_name_in_front(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('preset = "fedprox"\nrounds = 7\n')
    assert load_spec(file).name == "trial"
    assert load_spec(file, {"rounds": 8}).name == "trial+rounds=8"


def test_the_spec_of_a_changed_run_can_be_changed_again(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(load_spec("fedprox", {"weighing": "majority"}).to_toml())
    assert load_spec(file).name == "fedprox+weighing=majority"
    assert load_spec(file, {"rounds": 8}).name == "fedprox+weighing=majority+rounds=8"
    assert load_spec(file, {"weighing": "krum"}).name == "fedprox+weighing=krum"


def test_names_are_short_and_are_names_of_files(tmp_path: Path) -> None:
    name = load_spec("fedavg", MANY).name
    assert len(name) <= MAX_NAME
    assert name.endswith("-more")
    odd = load_spec(None, {"model": "my_package.models:make"}, imports=False)
    assert odd.name == "fedavg+model=my_package.models-make"


def test_changes_of_a_shortened_name_are_counted_once_and_the_new_ones_show(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(load_spec("fedavg", MANY).to_toml())
    base = load_spec(file).name
    assert base == "fedavg+rounds=2+evaluate_every=2+patience=3+data.clients=7+3-more"
    names = [load_spec(file, {"weighing": rule}).name for rule in ("majority", "ivar-vb")]
    start = "fedavg+rounds=2+evaluate_every=2+patience=3"
    assert names == [f"{start}+weighing=majority+4-more", f"{start}+weighing=ivar-vb+4-more"]
    file.write_text(load_spec(file, {"weighing": "majority"}).to_toml())
    again = load_spec(file, {"combining": "trimmed-mean", "engine": "serial"}).name
    assert again == f"{start}+combining=trimmed-mean+5-more"
    assert load_spec(file, {"engine": "serial"}).name == f"{start}+weighing=majority+4-more"


def test_the_folder_and_the_record_have_the_name(tmp_path: Path) -> None:
    result = sy.run("fedavg", out=tmp_path, rounds=1, weighing="uniform", **{"data.clients": 2})
    assert result.path is not None
    name = "fedavg+rounds=1+data.clients=2+weighing=uniform"
    assert result.path.name.endswith(f"-{name}-s0")
    assert sy.Run(result.path).meta["name"] == name
    assert load_spec(result.path / "spec.toml").fingerprint() == sy.Run(result.path).meta["fingerprint"]
