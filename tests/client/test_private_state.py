"""What stays with clients can lie in files: the bits are the same, and nothing piles up."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.client.private_state import StateFiles
from steelyard.engines import Pool, Serial
from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.runs import writer as record
from steelyard.runs.reader import STATE, Run
from steelyard.runs.state_file import load_state
from steelyard.runs.writer import Recorder
from steelyard.server.result import Result
from steelyard.sharing import WholeModel
from steelyard.sharing.base import Tensors
from steelyard.simulation import SimulatedFederation as Federation
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


PARTIES = {name: data(number) for number, name in enumerate(["oslo", "turin", "../é/x", "lima", "pisa"])}


def federation(**settings: Any) -> Federation:
    torch.manual_seed(0)
    algorithm = Algorithm(sharing=PrivateBias())
    settings = {"rounds": 6, "clients_per_round": 3, "engine": Serial(), **settings}
    return Federation(PARTIES, nn.Linear(4, 3), algorithm, **settings)


def assert_same(found: Result, wanted: Result) -> None:
    assert found.clients == wanted.clients
    assert torch.equal(found.model.bias, wanted.model.bias)


@pytest.mark.parametrize("engine", [Serial(), Pool(2)])
def test_files_change_no_bit(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert_same(federation(spill=True, engine=engine).run(), federation().run())
    assert list(tmp_path.iterdir()) == []


def test_a_recorded_run_keeps_one_file_for_each_client_and_goes_on_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "STATE_SECONDS", 0.0)
    counts: list[int] = []

    def stop_after_four(round: Round) -> None:
        counts.append(len(list((tmp_path / "run" / "clients").iterdir())))
        if round.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation(spill=True).run(stop_after_four, recorder=Recorder(tmp_path / "run"))
    state = load_state(tmp_path / "run" / STATE)
    assert isinstance(state.clients, StateFiles)
    assert counts[-1] == len(state.clients) <= len(PARTIES)
    assert state.clients["../é/x"]["bias"].shape == (3,)
    found = federation(spill=True).run(recorder=Recorder(tmp_path / "run", after=4), state=state)
    wanted = federation().run()
    assert found.clients == wanted.clients[-len(found.clients) :]
    assert torch.equal(found.model.bias, wanted.model.bias)
    assert len(Run(tmp_path / "run").rounds) == 6


def test_states_that_a_saved_state_still_needs_are_not_removed(tmp_path: Path) -> None:
    """Between two saves a crash goes back to the older one."""
    recorder = Recorder(tmp_path / "run")
    federation(spill=True, rounds=1).run(recorder=recorder)
    state = load_state(tmp_path / "run" / STATE)
    assert isinstance(state.clients, StateFiles)
    before = {client: state.clients[client]["bias"].clone() for client in state.clients}
    later = state.clients.put(2, {client: {"bias": torch.zeros(3)} for client in state.clients})
    assert all(torch.equal(state.clients[client]["bias"], value) for client, value in before.items())
    later.prune()
    assert all(torch.equal(later[client]["bias"], torch.zeros(3)) for client in later)
    with pytest.raises(InputError, match="cannot read what client"):
        state.clients[next(iter(before))]


def test_a_run_that_spilled_can_go_on_in_files_only_and_one_that_did_not_moves_there() -> None:
    whole = federation(spill=True)
    state = whole.init()
    with whole.engine.open(whole.workload) as session:
        for _ in range(3):
            _, state = whole.round(state, session)
    assert not isinstance(state.clients, StateFiles)
    found = whole.run(state=state)
    assert torch.equal(found.model.bias, federation().run().model.bias)


def test_the_setting_is_in_the_spec_and_changes_no_fingerprint(tmp_path: Path) -> None:
    result = sy.run({"rounds": 2, "data": {"clients": 3}, "spill": True}, out=tmp_path)
    plain = sy.run({"rounds": 2, "data": {"clients": 3}}, out=tmp_path)
    assert result.path is not None
    assert plain.path is not None
    assert Run(result.path).meta["fingerprint"] == Run(plain.path).meta["fingerprint"]
    assert result.clients == plain.clients
