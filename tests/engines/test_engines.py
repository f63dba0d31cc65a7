"""Whatever engine runs a federation, the bits are the same; a worker that dies is not missed."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.algorithm import Algorithm
from steelyard.client.evaluation import BATCH
from steelyard.data.clients import Client
from steelyard.engines import Auto, Engine, Pool, Serial, auto, pool_sites
from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.objectives import CrossEntropy
from steelyard.objectives.base import Local, LocalLoss
from steelyard.server.federation import advance
from steelyard.server.result import Result
from steelyard.settings import Server, Training
from steelyard.sharing import WholeModel
from steelyard.sharing.base import Tensors
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.sites import Answer
from steelyard.types import Broadcast, RoundInfo, State, Weighed
from steelyard.weighing import Samples
from steelyard.weighing.geometry import Geometry

CLIENTS = 5


def model() -> nn.Module:
    """Convolution, running statistics and dropout: everything that could go astray between processes."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 3)
    )


def data(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 1, 8, 8, generator=generator), torch.arange(size) % 3


def clients() -> list[Client]:
    return [Client(f"c{number}", data(20 + 9 * number, number), data(10, 50)) for number in range(CLIENTS)]


def run(engine: Engine, **settings: Any) -> Result:
    algorithm = Algorithm(training=Training(lr=0.05, momentum=0.9, batch_size=8))
    common = {"test": data(600, 99), "rounds": 3, "clients_per_round": 4}
    return Federation(clients(), model(), algorithm, engine=engine, **(common | settings)).run()


def assert_same(found: Result, wanted: Result) -> None:
    assert found.history == wanted.history
    assert found.clients == wanted.clients
    for name, value in wanted.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_any_number_of_workers_gives_the_bits_of_the_serial_engine(workers: int) -> None:
    assert_same(run(Pool(workers)), run(Serial()))


def test_where_the_model_is_averaged_over_rounds_workers_score_the_average() -> None:
    algorithm = Algorithm(server=Server(average=4))
    found, wanted = (
        Federation(clients(), model(), algorithm, engine=engine, rounds=3).run()
        for engine in (Pool(2), Serial())
    )
    assert_same(found, wanted)
    plain = Federation(clients(), model(), engine=Serial(), rounds=3).run()
    assert plain.history != wanted.history


def test_where_processes_cannot_fork_the_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert_same(run(Pool(2)), run(Serial()))


@pytest.mark.parametrize(("worth", "kind"), [(0.0, "pool"), (1e9, "serial")])
def test_auto_gives_the_same_bits_whatever_it_decides(
    worth: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "MIN_SAVED", worth)
    monkeypatch.setattr(auto, "cores", lambda: 2)
    federation = Federation(clients(), model(), engine=Auto(), rounds=2, test=data(300, 99))
    with federation.open() as sites:
        server = federation.server(sites)
        state = server.init()
        for _ in range(2):
            _, state = advance(server, state)
        answers = sites.ask(Broadcast(3, state.server.message), list(federation.clients))
        assert sorted(answer.client for answer in answers) == list(federation.clients)
        assert sites.about.startswith(kind)
        assert "a client takes" in sites.about
    wanted = Federation(clients(), model(), engine=Serial(), rounds=2, test=data(300, 99)).run().model
    found = server.model_after(state).state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.state_dict().items())


def test_auto_trains_each_client_of_the_timed_round_once() -> None:
    federation = Federation(clients(), model(), engine=Auto())
    with federation.open() as sites:
        message = federation.server(sites).init().server.message
        answers = list(sites.ask(Broadcast(1, message), list(federation.clients)))
        assert sorted(answer.client for answer in answers) == list(federation.clients)
        assert all(isinstance(answer, Answer) and answer.reply is not None for answer in answers)


class Noisy(Dataset[tuple[Tensor, int]]):
    """A random transform."""

    def __len__(self) -> int:
        return 2 * BATCH + 30

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(1, 8, 8), index % 3


def test_test_data_drawn_at_random_is_the_same_however_it_is_shared_out() -> None:
    assert_same(run(Pool(3), test=Noisy()), run(Serial(), test=Noisy()))


def test_workers_are_started_once_for_rounds_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "MIN_SAVED", 0.0)
    monkeypatch.setattr(auto, "cores", lambda: 2)
    federation = Federation(clients(), model(), engine=Auto(), rounds=3, test=data(300, 99))
    seen: set[int] = set()
    federation.run(lambda round: seen.update(each.pid or 0 for each in multiprocessing.active_children()))
    assert len(seen) == 2


def test_auto_stays_serial_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "MIN_SAVED", 0.0)
    monkeypatch.setattr(auto, "cores", lambda: 1)
    federation = Federation(clients(), model(), engine=Auto(), rounds=1)
    with federation.open() as sites:
        server = federation.server(sites)
        advance(server, server.init())
        assert sites.about == "serial"


class Deadly(Dataset[tuple[Tensor, int]]):
    """Kills the process that reads it, as often as it has lives to take; a file counts across processes."""

    def __init__(self, counter: Path, lives: int, inputs: Tensor | None = None) -> None:
        self.counter, self.lives, self.parent = counter, lives, os.getpid()
        self.inputs = data(12, 3)[0] if inputs is None else inputs

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        taken = self.counter.stat().st_size if self.counter.exists() else 0
        if os.getpid() != self.parent and taken < self.lives:
            with self.counter.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inputs[index], index % 3


def with_deadly(folder: Path, lives: int, engine: Engine) -> Result:
    parties = {**{client.id: client for client in clients()}, "deadly": Deadly(folder / "deaths", lives)}
    return Federation(parties, model(), engine=engine, rounds=2, test=data(300, 99)).run()


def test_a_worker_killed_in_a_round_is_replaced_and_the_bits_are_the_same(tmp_path: Path) -> None:
    found = with_deadly(tmp_path, 2, Pool(2))
    assert (tmp_path / "deaths").stat().st_size == 2
    assert_same(found, with_deadly(tmp_path, 2, Serial()))


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["one job at a time", "many jobs at a time"])
def test_a_client_that_always_kills_its_worker_is_set_aside_by_name(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_sites, "CHUNK_SECONDS", seconds)
    result = with_deadly(tmp_path, 10**6, Pool(2))
    status = {(row["round"], row["client"]): row["status"] for row in result.clients}
    for number in (1, 2):
        assert status[number, "deadly"] == "failed while training: its worker died 3 times"
        assert all(status[number, f"c{each}"] == "used" for each in range(CLIENTS))


def test_many_jobs_at_a_time_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_sites, "CHUNK_SECONDS", 1e9)
    assert_same(run(Pool(2)), run(Serial()))


def test_killing_every_worker_from_outside_changes_nothing() -> None:
    federation = Federation(clients(), model(), engine=Pool(2), rounds=3, test=data(300, 99))
    with federation.open() as sites:
        server = federation.server(sites)
        state = server.init()
        while not server.is_over(state):
            for process in multiprocessing.active_children():
                os.kill(process.pid or 0, signal.SIGKILL)
            time.sleep(0.05)
            _, state = advance(server, state)
    wanted = Federation(clients(), model(), engine=Serial(), rounds=3, test=data(300, 99)).run().model
    found = server.model_after(state).state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.state_dict().items())


class Unreadable(Deadly):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index > 1:
            raise OSError("the disk is gone")
        return self.inputs[index], index % 3


def test_a_client_that_raises_in_a_worker_is_set_aside_with_its_reason(tmp_path: Path) -> None:
    parties = {"bad": Unreadable(tmp_path, 0), **{client.id: client for client in clients()}}
    rows = Federation(parties, model(), engine=Pool(2), rounds=1).run().clients
    assert "OSError: the disk is gone" in str(rows[0]["status"])
    assert [row["status"] for row in rows[1:]] == ["used"] * CLIENTS


class Directed(Samples):
    """Offers a vector that changes from round to round."""

    offers = frozenset({"direction"})

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        return super().weigh(geometry, round, state)._replace(state={"mean": geometry.updates.mean(dim=0)})

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state.get("mean", torch.zeros(1))}


class Following(CrossEntropy):
    needs = frozenset({"direction"})  # type: ignore[assignment]

    def bind(self, local: Local) -> LocalLoss:
        strength = float(local.broadcast.offers["direction"].sum())
        loss = super().bind(local).loss
        return LocalLoss(lambda inputs, targets: loss(inputs, targets) * (1 + strength))


class Counting(WholeModel):
    """Keeps the sum of the parameters with the client."""

    def write(self, tensors: Tensors, layout: Layout, message: Any, state: State) -> None:
        super().write(tensors, layout, message, state)
        if "kept" in state:
            with torch.no_grad():
                tensors["5.bias"].add_(0.01 * state["kept"])

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return {"kept": torch.stack([each.detach().sum() for each in tensors.values()]).sum()}


def test_what_the_server_offers_and_what_clients_keep_reach_the_workers() -> None:
    algorithm = Algorithm(objective=Following(), sharing=Counting(), weighing=Directed())
    results = [
        Federation(clients(), model(), algorithm, engine=engine, rounds=3).run()
        for engine in (Serial(), Pool(2))
    ]
    assert_same(results[1], results[0])
    plain = Federation(clients(), model(), engine=Serial(), rounds=3).run()
    assert results[0].clients != plain.clients


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(InputError, match="workers"):
        Pool(0)
