"""Models of recorded runs are loaded from the folder alone: no data set is read, no federation is built."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.errors import InputError
from steelyard.runs.recorded_model import KEY
from steelyard.runs.writer import Recorder
from steelyard.sharing import WholeModel
from steelyard.specs import loading

SHORT = {"rounds": 2, "data.clients": 3, "training.steps": 2}
DATA = """
import steelyard.data.digits

calls = []

def once():
    calls.append(1)
    if len(calls) > 1:
        raise RuntimeError("the data set was read again")
    return steelyard.data.digits.digits()
"""


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


@pytest.fixture
def once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a data set that can be read only once."""
    (tmp_path / "data_once.py").write_text(DATA)
    monkeypatch.syspath_prepend(tmp_path)
    yield "data_once:once"
    sys.modules.pop("data_once", None)


@pytest.mark.parametrize("preset", ["fedavg", "ba-bfl"])
def test_the_model_of_a_spec_is_loaded_without_its_data(preset: str, once: str, tmp_path: Path) -> None:
    result = sy.run(preset, out=tmp_path / "runs", **{**SHORT, "data.dataset": once})
    assert result.path is not None
    loaded = sy.load_model(result.path)
    assert bits(loaded) == bits(result.model)
    assert not loaded.training
    with pytest.raises(RuntimeError, match="read again"):
        loading.load_test(result.path)


@pytest.mark.parametrize("spill", [False, True])
def test_the_private_layers_of_a_client_are_loaded_without_data(
    once: str, spill: bool, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {**SHORT, "data.dataset": once, "sharing": "head", "clients_per_round": 2}
    result = sy.run("fedavg", out=tmp_path / "runs", spill=spill, **settings)
    assert result.path is not None
    wanted = {client: bits(result.model_of(client)) for client in ("client-0", "client-1", "client-2")}
    assert {client: bits(sy.load_model(result.path, client)) for client in wanted} == wanted
    assert bits(sy.load_model(result.path)) == bits(result.model)
    with pytest.raises(InputError, match="unknown client 'client-9': did you mean"):
        sy.load_model(result.path, "client-9")


def blobs(seed: int, size: int = 12) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=random), torch.arange(size) % 2


class Net(nn.Module):
    """A body and a head; the width and the name of a layer can be changed."""

    def __init__(self, width: int = 4, more: bool = False) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(3, width), nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 2)
        if more:
            self.more = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Any:
        return self.head(self.norm(self.body(inputs)).relu())


CLIENTS = {name: blobs(seed) for seed, name in enumerate(("lima", "oslo", "pisa"))}


def run_of(path: Path, sharing: Any = "whole-model", **settings: Any) -> sy.Result:
    algorithm = sy.Algorithm(sharing=sharing, training={"steps": 2})
    federation = sy.Federation(CLIENTS, Net(), algorithm, rounds=2, **settings)
    return federation.run(recorder=Recorder(path))


def test_the_weights_of_a_federation_go_into_a_model_that_is_given(tmp_path: Path) -> None:
    result, mine = run_of(tmp_path / "run"), Net()
    assert sy.load_model(tmp_path / "run", model=mine) is mine
    assert bits(mine) == bits(result.model)
    assert not mine.training
    assert bits(sy.load_model(tmp_path / "run", "oslo", model=Net())) == bits(result.model)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Net(width=5), r"the model has 'body\.weight' with the shape \[5, 3\], and .* with \[4, 3\]\."),
        (Net(more=True), r"the model has a tensor 'more\.weight', and .* has none of this name\."),
        (nn.Linear(3, 2), r"the model has a tensor 'weight', and .* has none of this name\."),
        (nn.ReLU(), r"has a tensor 'body\.bias', and the model has none of this name\."),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_its_first_tensor(
    model: nn.Module, sentence: str, tmp_path: Path
) -> None:
    run_of(tmp_path / "run")
    before = bits(model)
    with pytest.raises(InputError, match=sentence):
        sy.load_model(tmp_path / "run", model=model)
    assert bits(model) == before


def test_without_a_model_the_run_of_a_program_asks_for_one(tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    with pytest.raises(InputError, match=r"a program made it, so pass the model .*model=Net\(\)"):
        sy.load_model(tmp_path / "run")


def test_a_result_says_where_its_run_is_recorded(tmp_path: Path) -> None:
    result = run_of(tmp_path / "run")
    assert bits(sy.load_model(result, model=Net())) == bits(result.model)
    kept_in_memory = sy.Federation(CLIENTS, Net(), rounds=1).run()
    with pytest.raises(InputError, match=r"was not recorded, and its model is `result\.model`"):
        sy.load_model(kept_in_memory, model=Net())


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Net, r"model is the class Net, not an object of it: write model=Net\(\)\."),
        ("net", r"model must be a torch\.nn\.Module, such as Net\(\), not 'net'\."),
    ],
)
def test_what_is_not_a_model_is_refused(model: Any, sentence: str, tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    with pytest.raises(InputError, match=sentence):
        sy.load_model(tmp_path / "run", model=model)
    with pytest.raises(InputError, match="run must be the folder of a run, a Run or a Result, not 3"):
        sy.load_model(3, model=Net())  # type: ignore[arg-type]


@pytest.mark.parametrize("adopt", [True, False])
def test_the_private_layers_of_a_federation_are_loaded(adopt: bool, tmp_path: Path) -> None:
    result = run_of(tmp_path / "run", {"name": "head", "adopt": adopt}, clients_per_round=2, seed=1)
    seen = {str(row["client"]) for row in result.clients}
    for client in sorted(seen):
        loaded = sy.load_model(tmp_path / "run", client, model=Net())
        assert bits(loaded) == bits(result.model_of(client))
    mine = Net()
    assert sy.load_model(tmp_path / "run", model=mine) is mine.head
    assert bits(mine.head) == bits(result.model)
    with pytest.raises(InputError, match=r"'more\.weight' of client .* is missing in .* \[2, 2\] in the"):
        sy.load_model(tmp_path / "run", min(seen), model=_with_body(more=True))
    with pytest.raises(InputError, match="shares the layer 'head', which the model does not have"):
        sy.load_model(tmp_path / "run", model=nn.Linear(3, 2))


def _with_body(more: bool) -> nn.Module:
    class Last(Net):
        """The head is the last linear layer, also with another layer before it."""

        def __init__(self) -> None:
            super().__init__(more=more)
            head = self.head
            del self.head
            self.head = head

    return Last()


def test_a_client_that_never_trained_has_no_private_layers_to_load(tmp_path: Path) -> None:
    def never(name: str) -> Any:
        if name == "oslo":
            raise OSError("no disk")
        return CLIENTS[name]

    algorithm = sy.Algorithm(sharing="head", training={"steps": 1})
    clients = sy.Population(CLIENTS, never)
    sy.Federation(clients, Net(), algorithm, rounds=1).run(recorder=Recorder(tmp_path / "run"))
    with pytest.raises(InputError, match="client 'oslo' has not trained in"):
        sy.load_model(tmp_path / "run", "oslo", model=Net())


class Own(WholeModel):
    """A sharing rule outside the package."""


def test_a_sharing_rule_of_ones_own_is_not_guessed(tmp_path: Path) -> None:
    run_of(tmp_path / "run", Own())
    assert sy.load_model(tmp_path / "run", model=Net())
    with pytest.raises(InputError, match=r"sharing rule of its own; .* `federation\.resume"):
        sy.load_model(tmp_path / "run", "oslo", model=Net())


def test_the_record_of_a_stranger_leads_to_no_code(tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    text = sy.Run(tmp_path / "run").meta[KEY].replace("whole-model", "os:system")
    with Recorder(tmp_path / "run", after=2) as recorder:
        recorder.note(**{KEY: text})
    with pytest.raises(InputError, match="sharing rule of its own"):
        sy.load_model(tmp_path / "run", "oslo", model=Net())


def test_tied_tensors_are_loaded_once(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 2))
        model[1].weight = model[0].weight  # type: ignore[assignment]
        return model

    result = sy.Federation(CLIENTS, tied(), rounds=1).run(recorder=Recorder(tmp_path / "run"))
    loaded = sy.load_model(tmp_path / "run", model=tied())
    assert bits(loaded) == bits(result.model)
