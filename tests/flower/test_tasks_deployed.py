"""A deployment with batches of dicts and own metrics has the bits of the simulation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from loop_channel import LoopChannel

import steelyard as sy
from steelyard.errors import InputError
from steelyard.flower.answering import Answering
from steelyard.flower.building import build_server, check_server
from steelyard.flower.deployment import Invitation, Settings, spec_hash
from steelyard.flower.remote import RemoteSites
from steelyard.server.result import Result
from steelyard.specs.building import build_algorithm, build_task
from steelyard.specs.schema import Spec, load_spec
from steelyard.threads import one_thread

SITES = ("lima", "oslo", "pisa")
CODE = """
import torch
from torch import nn
from torchmetrics import R2Score
from torchmetrics.classification import BinaryAUROC

import steelyard as sy


class Columns(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(2, 2), nn.Linear(3, 2)

    def forward(self, left, right):
        return self.left(left) + self.right(right)


def model():
    return Columns()


def columns(seed, count=20):
    draw = torch.Generator().manual_seed(seed)
    left, right = torch.randn(count, 2, generator=draw), torch.randn(count, 3, generator=draw)
    return {"left": left, "right": right, "row": torch.arange(count), "label": (left[:, 0] > 0).long()}


def client(name):
    number = sum(map(ord, name))
    return sy.Client(name, columns(number), columns(number + 1, 9))


def test():
    return columns(7, 300)


def auroc():
    return BinaryAUROC(thresholds=50)


def sure():
    return lambda outputs, targets: outputs.softmax(1).amax(1)


def line():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def numbers(name):
    number = sum(map(ord, name))

    def drawn(seed, count):
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
        return x, x[:, :2] + x[:, 1:] ** 2

    return sy.Client(name, drawn(number, 20), drawn(number + 1, 9))


def fit():
    return R2Score(multioutput="raw_values")
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "dict_deployment.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import dict_deployment  # type: ignore[import-not-found]

    return dict_deployment


def deployed(spec: Spec, settings: Settings, folder: Path, load: Any) -> Result:
    shape = settings.input_shape, settings.classes
    hash, made = spec_hash(spec, *shape), {}
    for name in SITES:
        home = folder / name
        home.mkdir(parents=True)
        invitation = Invitation(name, "test", "", "", spec.to_toml(), hash, False, *shape)
        made[name] = Answering(invitation, home, load, trust=True)
    sites = RemoteSites(settings.sites, LoopChannel(made), hash, "ab" * 16, folder / "server")
    with one_thread():
        return build_server(spec, settings, sites).run()


@pytest.mark.parametrize("common", [True, False], ids=["common-test", "own-tests"])
def test_dict_batches_and_own_metrics_have_the_same_bits(code: Any, tmp_path: Path, common: bool) -> None:
    names = {"model": "dict_deployment:model", "rounds": 3, "engine": "serial"}
    metrics = {"auroc": "dict_deployment:auroc", "sure": "dict_deployment:sure"}
    spec = load_spec("fedavg", {**names, "metrics": metrics})
    test = "dict_deployment:test" if common else None
    settings = Settings(host="localhost", sites=list(SITES), classes=2, test=test)
    found = deployed(spec, settings, tmp_path, code.client)
    wanted = sy.Federation(
        [code.client(name) for name in SITES],
        code.model(),
        build_algorithm(spec),
        test=code.test() if common else None,
        rounds=3,
        engine="serial",
        task=build_task(spec, 2),
    ).run()
    assert found.history == wanted.history
    assert found.clients == wanted.clients
    assert {"client_auroc", "client_sure", *({"auroc", "sure"} if common else ())} <= set(found.history[-1])
    pairs = zip(found.model.parameters(), wanted.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_states_as_wide_as_the_outputs_need_no_data_at_the_server(code: Any, tmp_path: Path) -> None:
    names = {"model": "dict_deployment:line", "objective": "auto", "rounds": 2, "engine": "serial"}
    spec = load_spec("fedavg", {**names, "metrics": {"fit": "dict_deployment:fit"}})
    settings = Settings(host="localhost", sites=list(SITES), input_shape=[3], classes=2)
    check_server(spec, settings)
    found = deployed(spec, settings, tmp_path, code.numbers)
    clients = [code.numbers(name) for name in SITES]
    wanted = sy.Federation(
        clients, code.line(), build_algorithm(spec), rounds=2, engine="serial", task=build_task(spec, 2)
    ).run()
    assert found.history == wanted.history
    assert found.clients == wanted.clients
    assert found.own_metrics == wanted.own_metrics == ("fit_0", "fit_1")
    assert {"client_fit_0", "client_fit_1"} <= set(found.history[-1])


def test_a_server_that_cannot_count_the_outputs_is_refused_before_it_starts(code: Any) -> None:
    names = {"model": "dict_deployment:line", "rounds": 2}
    spec = load_spec("fedavg", {**names, "metrics": {"fit": "dict_deployment:fit"}})
    words = "^metric 'fit' has sums for each output of the model.*set input_shape, or name a test set"
    with pytest.raises(InputError, match=words):
        check_server(spec, Settings(host="localhost", sites=list(SITES), classes=2))
    plain = load_spec("fedavg", {**names, "metrics": {"sure": "dict_deployment:sure"}})
    check_server(plain, Settings(host="localhost", sites=list(SITES), classes=2))


def test_a_metric_with_the_name_of_evidence_is_refused_before_the_server_starts(code: Any) -> None:
    names = {"model": "dict_deployment:line", "weighing": "majority"}
    spec = load_spec("fedavg", {**names, "metrics": {"trust": "dict_deployment:sure"}})
    with pytest.raises(InputError, match="called 'trust': the weighing rule Majority records a figure"):
        check_server(spec, Settings(host="localhost", sites=list(SITES)))
