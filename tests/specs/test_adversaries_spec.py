"""Adversaries in a spec: how many, which, and how they attack."""

from pathlib import Path
from typing import Any

import pytest
import torch

import steelyard as sy
from steelyard.attacks import Gaussian, OnOff, SignFlip
from steelyard.errors import InputError
from steelyard.runs.folder import MODEL, states_in
from steelyard.runs.reader import Run
from steelyard.runs.summary import summarise
from steelyard.specs.building import build
from steelyard.specs.schema import load_spec
from steelyard.specs.sources import parse_override
from steelyard.types import Round

QUICK = {"rounds": 4, "data.clients": 6, "training.steps": 3}


def words(*given: str) -> dict[str, Any]:
    return dict(map(parse_override, given))


def adversaries(**overrides: Any) -> dict[str, Any]:
    spec = load_spec(None, {**QUICK, **{f"adversaries.{key}": value for key, value in overrides.items()}})
    return build(spec).adversaries


@pytest.mark.parametrize(
    "overrides",
    [
        {"adversaries.count": 3},
        {"adversaries.count": 3, "adversaries.attack": "a-little-is-enough"},
        {"adversaries.count": 2, "adversaries.extra": True, "adversaries.attack": "gaussian"},
        {"adversaries.count": 1, "adversaries.attack": {"name": "on-off", "attack": "scaled", "on": 2}},
        {"adversaries.attack": {"name": "inflated-count", "attack": {"name": "gaussian", "scale": 3.0}}},
    ],
)
def test_a_spec_with_adversaries_reads_back_as_itself(tmp_path: Path, overrides: dict[str, Any]) -> None:
    spec = load_spec(None, overrides)
    (tmp_path / "spec.toml").write_text(spec.to_toml(), "utf-8")
    again = load_spec(tmp_path / "spec.toml")
    assert again == spec
    assert again.fingerprint() == spec.fingerprint()


def test_the_command_line_sets_the_attack_and_its_settings() -> None:
    given = words("adversaries.count=3", "adversaries.attack=sign-flip", "adversaries.attack.scale=2")
    found = load_spec(None, given).adversaries
    assert (found.count, found.attack) == (3, {"name": "sign-flip", "scale": 2.0})
    nested = load_spec(
        None, words("adversaries.attack=on-off", "adversaries.attack.attack.scale=3", "data.clients=4")
    )
    assert nested.adversaries.attack["attack"] == {"name": "sign-flip", "scale": 3.0}


def test_without_adversaries_the_attack_does_not_matter() -> None:
    plain = load_spec()
    idle = load_spec(None, words("adversaries.attack=gaussian", "adversaries.extra=true"))
    assert idle.fingerprint() == plain.fingerprint()
    assert build(load_spec(None, {**QUICK, "adversaries.attack": "gaussian"})).adversaries == {}


@pytest.mark.parametrize(
    "change",
    [
        {"adversaries.count": 3},
        {"adversaries.attack": "gaussian"},
        {"adversaries.attack.scale": 2.0},
        {"adversaries.extra": True},
    ],
)
def test_the_fingerprint_notices_adversaries(change: dict[str, Any]) -> None:
    two = {"adversaries.count": 2}
    assert load_spec(None, {**two, **change}).fingerprint() != load_spec(None, two).fingerprint()
    assert load_spec(None, two).fingerprint() != load_spec().fingerprint()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"adversaries.count": 11}, "adversaries.count is 11, but there are 10 clients; take fewer"),
        ({"adversaries.count": -1}, "adversaries.count should be greater than or equal to 0, not -1"),
        ({"adversaries.cuont": 1}, "unknown key 'adversaries.cuont': did you mean 'adversaries.count'?"),
        ({"adversaries.attack": "sing-flip"}, "unknown attack 'sing-flip': did you mean 'sign-flip'?"),
        ({"adversaries.attack.scal": 2}, "did you mean 'scale'?"),
        ({"adversaries.attack": 3}, "adversaries.attack should be a name or a table with a name, not 3"),
        ({"adversaries.attack": {"name": "on-off", "attack": "gausian"}}, "did you mean 'gaussian'?"),
        ({"adversaries": 5}, "adversaries should be a table, not 5"),
    ],
)
def test_mistakes_are_named(overrides: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(None, overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_some_clients_are_turned_by_a_draw_from_the_data_seed() -> None:
    two, four = adversaries(count=2), adversaries(count=4)
    assert (len(two), len(four)) == (2, 4)
    assert two.keys() < four.keys()  # more of them are the same ones and others
    assert set(two.values()) == {SignFlip()}
    assert len(adversaries(count=6)) == 6
    draws = {
        tuple(build(load_spec(None, {**QUICK, "adversaries.count": 2, "data.seed": seed})).adversaries)
        for seed in range(6)
    }
    assert len(draws) > 1
    same_data = {**QUICK, "adversaries.count": 2, "data.seed": 0, "seed": 5}
    assert build(load_spec(None, same_data)).adversaries.keys() == two.keys()


@pytest.mark.parametrize("shift", [None, "rotation"])
def test_extra_adversaries_hold_what_honest_clients_hold(shift: str | None) -> None:
    turned = load_spec(None, {**QUICK, "data.shift": shift})
    extra = load_spec(None, {**QUICK, "data.shift": shift, "adversaries.count": 8, "adversaries.extra": True})
    plain, federation = build(turned), build(extra)
    assert len(federation.clients) == 6 + 8
    assert list(federation.adversaries) == [f"client-{number:02d}" for number in range(6, 14)]
    for number in range(14):
        data = federation.clients[f"client-{number:02d}"].train.span(0, 5)
        wanted = plain.clients[f"client-{number % 6}"].train.span(0, 5)
        assert all(map(torch.equal, data, wanted))


def test_the_attack_is_built_with_what_is_inside() -> None:
    attack = {"name": "on-off", "attack": {"name": "gaussian", "scale": 3}, "start": 2}
    (found,) = adversaries(count=1, attack=attack).values()
    assert found == OnOff(Gaussian(3.0), start=2)


def test_a_setting_without_meaning_is_refused_when_the_run_is_built() -> None:
    with pytest.raises(InputError, match="'on-off': on must be at least 1"):
        adversaries(count=1, attack={"name": "on-off", "on": 0})


def test_the_record_and_its_summary_name_the_adversaries(tmp_path: Path) -> None:
    result = sy.run(None, out=tmp_path, **QUICK, **{"adversaries.count": 2})
    assert result.path is not None
    recorded = Run(result.path)
    turned = {row["client"] for row in recorded.clients if row["adversary"]}
    assert turned == adversaries(count=2).keys()
    assert {row["adversary"] for row in recorded.clients} == {0, 1}
    assert all(0.0 <= row["detection_auroc"] <= 1.0 for row in recorded.rounds)
    summary = summarise(recorded)
    assert {row["client"] for row in summary["clients"] if row["adversary"]} == turned
    assert summary["about"].endswith("2 adversaries: sign-flip")


def test_a_run_without_adversaries_has_no_such_column(tmp_path: Path) -> None:
    plain = sy.run(None, out=tmp_path / "plain", **QUICK)
    with pytest.warns(sy.SteelyardWarning, match="attack is 'gaussian', but adversaries.count is 0"):
        idle = sy.run(None, out=tmp_path / "idle", **QUICK, **{"adversaries.attack": "gaussian"})
    assert plain.path is not None
    assert idle.path is not None
    assert "adversary" not in Run(idle.path).clients[0]
    assert "adversary" not in summarise(Run(idle.path))["clients"][0]
    assert (Run(plain.path).rounds, Run(plain.path).clients) == (
        Run(idle.path).rounds,
        Run(idle.path).clients,
    )
    assert (plain.path / MODEL).read_bytes() == (idle.path / MODEL).read_bytes()


@pytest.mark.parametrize("attack", ["copies", "random-labels", {"name": "on-off", "start": 3, "on": 1}])
def test_a_resumed_run_with_adversaries_ends_in_the_same_bits(tmp_path: Path, attack: Any) -> None:
    def break_off(round: Round) -> None:
        if round.number == 2:
            raise KeyboardInterrupt

    overrides = {**QUICK, "adversaries.count": 2, "adversaries.attack": attack}
    wanted = sy.run(None, out=tmp_path / "whole", **overrides)
    with pytest.raises(KeyboardInterrupt):
        sy.run(None, break_off, out=tmp_path / "broken", **overrides)
    (folder,) = (tmp_path / "broken").iterdir()
    assert states_in(folder)
    sy.resume(folder)
    assert wanted.path is not None
    assert (Run(folder).rounds, Run(folder).clients) == (Run(wanted.path).rounds, Run(wanted.path).clients)
    assert (folder / MODEL).read_bytes() == (wanted.path / MODEL).read_bytes()
