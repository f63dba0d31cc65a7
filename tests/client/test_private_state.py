"""What stays with clients can lie in files: the bits are the same, and nothing piles up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.client.private_state import MemoryStates, PrivateStates, StateFiles
from steelyard.engines import Pool, Serial
from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.runs import writer as record
from steelyard.runs.folder import state_path
from steelyard.runs.reader import Run
from steelyard.runs.state_file import load_state
from steelyard.runs.writer import Recorder
from steelyard.server.result import Result
from steelyard.sharing import WholeModel
from steelyard.sharing.base import Tensors
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.tensor_files import load_tensors, save_tensors
from steelyard.types import Round, State


class PrivateBias(WholeModel):
    """Each client goes on with the bias that it had."""

    def write(self, tensors: Tensors, layout: Layout, message: Any, state: State) -> None:
        super().write(tensors, layout, message, state)
        if state:
            with torch.no_grad():
                tensors["bias"].copy_(state["bias"])

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return {"bias": tensors["bias"].detach().clone(), "turns": torch.ones(1)}


def data(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 4, generator=generator), torch.arange(12) % 3


CLIENTS = {name: data(number) for number, name in enumerate(["oslo", "turin", "../é/x", "lima", "pisa"])}


def federation(**settings: Any) -> Federation:
    torch.manual_seed(0)
    algorithm = Algorithm(sharing=PrivateBias())
    settings = {"rounds": 6, "clients_per_round": 3, "engine": Serial(), **settings}
    return Federation(CLIENTS, nn.Linear(4, 3), algorithm, **settings)


def assert_same(found: Result, wanted: Result) -> None:
    assert found.clients == wanted.clients
    assert torch.equal(found.model.bias, wanted.model.bias)


@pytest.mark.parametrize("engine", [Serial(), Pool(2)])
def test_files_change_no_bit(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert_same(federation(spill=True, engine=engine).run(), federation().run())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spill", [True, False])
def test_a_run_that_broke_off_goes_on_from_its_private_states(
    spill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "STATE_SECONDS", 0.0)
    counts: list[int] = []

    def stop_after_four(round: Round) -> None:
        counts.append(len(list((tmp_path / "run" / "private").iterdir())))
        if round.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation(spill=spill).run(stop_after_four, recorder=Recorder(tmp_path / "run"))
    state = load_state(state_path(tmp_path / "run", 4))
    assert max(counts) <= (4 * len(CLIENTS) + 3 if spill else 3), "files do not pile up"
    found = federation(spill=spill).run(recorder=Recorder(tmp_path / "run", after=4), state=state)
    wanted = federation().run(recorder=Recorder(tmp_path / "unbroken"))
    assert found.clients == wanted.clients
    assert torch.equal(found.model.bias, wanted.model.bias)
    assert torch.equal(found.model_of("../é/x").bias, wanted.model_of("../é/x").bias)
    assert len(Run(tmp_path / "run").rounds) == 6


STORES: dict[str, Callable[[Path], PrivateStates]] = {"memory": MemoryStates, "files": StateFiles}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_states_go_back_to_the_round_that_the_server_saved(
    store: Callable[[Path], PrivateStates], tmp_path: Path
) -> None:
    """The server may die between a commit and its own save, so that the commit before must still be there."""
    states = store(tmp_path / "private")
    for round in range(1, 5):
        states.put(round, {client: {"bias": torch.full((3,), float(round))} for client in ("a", "../b")})
        states.put(round, {f"only-{round}": {"bias": torch.zeros(1)}})
        states.commit(round)
    states.put(5, {"a": {"bias": torch.full((3,), 5.0)}})  # trained, but never committed
    again = store(tmp_path / "private")
    again.rewind(3)
    for client in ("a", "../b"):
        assert torch.equal(again.get(client)["bias"], torch.full((3,), 3.0))
    assert again.get("only-3")
    assert not again.get("only-4")
    again.put(4, {"a": {"bias": torch.full((3,), 4.5)}})
    again.commit(4)
    last = store(tmp_path / "private")
    last.rewind(4)
    assert torch.equal(last.get("a")["bias"], torch.full((3,), 4.5))
    assert torch.equal(last.get("../b")["bias"], torch.full((3,), 3.0))
    with pytest.raises(InputError, match="not after round 1"):
        store(tmp_path / "private").rewind(1)
    last.rewind(2)
    assert torch.equal(last.get("a")["bias"], torch.full((3,), 2.0)), "the commit before is whole, too"


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_states_of_a_round_that_the_server_did_not_finish_are_dropped(
    store: Callable[[Path], PrivateStates], tmp_path: Path
) -> None:
    states = store(tmp_path / "private")
    for round in (1, 2):
        states.put(round, {"a": {"bias": torch.full((3,), float(round))}})
    assert torch.equal(states.get("a")["bias"], torch.full((3,), 2.0))
    states.commit(1)
    assert torch.equal(states.get("a")["bias"], torch.full((3,), 1.0))
    again = store(tmp_path / "private")
    again.rewind(1)
    assert torch.equal(again.get("a")["bias"], torch.full((3,), 1.0))


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_before_the_first_round_there_are_no_states(
    store: Callable[[Path], PrivateStates], tmp_path: Path
) -> None:
    states = store(tmp_path / "private")
    states.put(1, {"a": {"bias": torch.ones(1)}})
    states.commit(1)
    again = store(tmp_path / "private")
    again.rewind(0)
    assert not again.get("a")


def test_a_commit_cannot_name_files_outside_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "precious.safetensors"
    outside.write_bytes(b"mine")
    files = {"a": "../precious.safetensors"}
    save_tensors(tmp_path / "private" / "after-3.safetensors", {}, {"files": files})
    with pytest.raises(InputError, match="names files that are not private states"):
        StateFiles(tmp_path / "private").rewind(3)
    assert outside.read_bytes() == b"mine"


def test_a_state_file_that_is_gone_is_named(tmp_path: Path) -> None:
    states = StateFiles(tmp_path)
    states.put(1, {"oslo": {"bias": torch.ones(1)}})
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(InputError, match="cannot read the state of client 'oslo'"):
        states.get("oslo")


def test_the_setting_is_in_the_spec_and_changes_no_fingerprint(tmp_path: Path) -> None:
    result = sy.run({"rounds": 2, "data": {"clients": 3}, "spill": True}, out=tmp_path)
    plain = sy.run({"rounds": 2, "data": {"clients": 3}}, out=tmp_path)
    assert result.path is not None
    assert plain.path is not None
    assert Run(result.path).meta["fingerprint"] == Run(plain.path).meta["fingerprint"]
    assert result.clients == plain.clients


def test_states_that_share_memory_are_written_as_they_are(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    given = {
        ("row",): whole[1],
        ("same",): whole[1],
        ("columns",): whole.T,
        ("one",): torch.ones(1).expand(5),
    }
    save_tensors(tmp_path / "file", given)
    found, _ = load_tensors(tmp_path / "file")
    assert found.keys() == given.keys()
    assert all(torch.equal(found[name], each) for name, each in given.items())
