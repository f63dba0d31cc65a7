"""Sites with data of their own choose the best model as the simulation does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from loop_channel import LoopChannel
from torch import Tensor

import steelyard as sy
from steelyard.errors import InputError
from steelyard.flower.answering import Answering
from steelyard.flower.building import build_server, check_server
from steelyard.flower.deployment import Invitation, Settings, spec_hash
from steelyard.flower.remote import RemoteSites
from steelyard.server.result import Result
from steelyard.specs.building import build_algorithm, make_model
from steelyard.specs.schema import Spec, load_spec
from steelyard.threads import one_thread

SITES = ("lima", "oslo", "pisa")
CODE = """
import torch

def validation():
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(9))
    return inputs, (inputs[:, 0] > 0).long()
"""


def data(name: str) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(SITES.index(name)))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def spec_of(**changed: Any) -> Spec:
    return load_spec(
        "fedavg", {"rounds": 4, "engine": "serial", "model": "linear", "monitor": "nll", **changed}
    )


def settings_of(**changed: Any) -> Settings:
    return Settings(host="localhost", sites=list(SITES), input_shape=[4], classes=2, **changed)


def deployed(spec: Spec, settings: Settings, folder: Path) -> Result:
    hash, made = spec_hash(spec, [4], 2), {}
    for name in SITES:
        home = folder / name
        home.mkdir(parents=True)
        invitation = Invitation(name, "test", "", "", spec.to_toml(), hash, False, [4], 2)
        made[name] = Answering(invitation, home, data, trust=True)
    sites = RemoteSites(settings.sites, LoopChannel(made), hash, "ab" * 16, folder / "server")
    with one_thread():
        return build_server(spec, settings, sites).run()


def simulated(spec: Spec, validation: Any) -> Result:
    settings = {"rounds": 4, "engine": "serial", "monitor": "nll", "validation": validation}
    model = make_model(spec, (4,), 2)
    return sy.Federation({name: data(name) for name in SITES}, model, build_algorithm(spec), **settings).run()


def assert_same(found: Result, wanted: Result) -> None:
    names = ("validation_accuracy", "validation_nll")
    for row, other in zip(found.history, wanted.history, strict=True):
        assert [row[name] for name in names] == [other[name] for name in names]
    assert (found.best_round, found.best_score) == (wanted.best_round, wanted.best_score)
    pairs = zip(found.best_model.parameters(), wanted.best_model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_share_of_each_sites_data_is_the_share_of_the_simulation(tmp_path: Path) -> None:
    spec = spec_of(validation=0.25)
    assert_same(deployed(spec, settings_of(), tmp_path), simulated(spec, 0.25))


def test_the_server_has_a_validation_set_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_validation.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_validation  # type: ignore[import-not-found]

    spec, settings = spec_of(), settings_of(validation="own_validation:validation")
    assert_same(deployed(spec, settings, tmp_path), simulated(spec, own_validation.validation()))


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ({"validation": 0.1}, {"validation": "a:b"}, "in the deployment and in the spec"),
        ({"monitor": "margin"}, {}, "set mode"),
        ({"monitor": "validation_nll"}, {}, "no validation data"),
    ],
)
def test_a_deployment_that_cannot_choose_is_refused_before_it_starts(
    spec: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        check_server(spec_of(**spec), settings_of(**settings))


def test_a_metric_of_the_spec_says_which_way_it_gets_better() -> None:
    check_server(spec_of(monitor="mine", metrics={"mine": "kappa"}), settings_of())
