"""The setting `device` of engines: refused where it cannot be used, recorded, and "cpu" by default."""

from typing import Any

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard.devices import checked_device
from steelyard.engines import Auto, Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError

random = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(60, 4, generator=random), torch.arange(60) % 3
CLIENTS = {name: (INPUTS[first::3], TARGETS[first::3]) for first, name in enumerate("abc")}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def federation(engine: Any, **settings: Any) -> sy.Federation:
    test = (INPUTS, TARGETS)
    return sy.Federation(CLIENTS, model(), rounds=2, test=test, engine=engine, **settings)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "meta"])
@pytest.mark.parametrize("kind", [Serial, Auto, Vectorized])
def test_a_device_that_is_not_there_is_refused_when_the_federation_is_made(kind: Any, name: str) -> None:
    with pytest.raises(InputError) as found:
        federation(kind(device=name))
    start = f"engine.device is {name!r}, which cannot be used here: "
    assert str(found.value).startswith(start)
    assert "; there is 'cpu'" in str(found.value)
    assert str(found.value).endswith(": take that, or install a build of torch for your device.")
    assert str(found.value).count(". ") == 0  # one sentence


def test_why_a_device_cannot_be_used_is_one_clause(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise NotImplementedError(
            "Could not run it with the 'MPS' backend. If you are a Facebook employee, go"
        )

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(InputError, match=r"used here: Could not run it with the 'MPS' backend; there is"):
        checked_device("mps")


def test_the_cpu_by_name_is_the_default() -> None:
    plain, named = (federation(engine).run() for engine in (Serial(), {"name": "serial", "device": "cpu"}))
    for name, value in plain.model.state_dict().items():
        assert torch.equal(named.model.state_dict()[name], value)
    assert [round.metrics for round in plain.as_rounds()] == [round.metrics for round in named.as_rounds()]


def test_engines_of_workers_have_no_device() -> None:
    with pytest.raises(InputError, match="engine 'pool' has no setting 'device': it is a setting of"):
        federation({"name": "pool", "device": "cuda"})
    assert Pool().device == "cpu"


@pytest.mark.parametrize("kind", [Serial, Auto, Vectorized])
def test_a_deadline_is_refused_on_a_device(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.engines.base.checked_device", torch.device)
    with pytest.raises(InputError, match=r"^round_seconds is a deadline for worker processes, but with "):
        federation(kind(device="cuda"), round_seconds=5.0)


def test_an_engine_of_the_users_own_is_on_the_cpu() -> None:
    class Own(Serial):
        pass

    assert issubclass(Own, Engine)
    assert Own().device == "cpu"
