"""Workers that train groups die: the bits are those of an undisturbed run, or the record says who failed."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from test_engines import Deadly
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.data.clients import Client
from steelyard.engines import Vectorized
from steelyard.server.result import Result
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Round


def table(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def run(clients: Any, **settings: Any) -> Result:
    settings = {"engine": Vectorized(2), "rounds": 2, "test": table(40, 99), **settings}
    return Federation(clients, model(), **settings).run()


class Slow(Dataset[tuple[Tensor, int]]):
    """Reads slowly in workers, so that they are killed while they train."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.data, self.seconds, self.parent = table(4, seed), seconds, os.getpid()

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if os.getpid() != self.parent:
            time.sleep(self.seconds)
        return self.data[0][index], int(self.data[1][index])


def test_a_killer_is_named_and_the_others_of_its_group_are_trained_together(tmp_path: Path) -> None:
    honest = [Client(f"c{number:02d}", table(12, number)) for number in range(6)]
    killer = Client("killer", Deadly(tmp_path / "deaths", 10**6, table(12, 77)[0]))
    found, wanted = run([*honest, killer]), run(honest)
    status = {str(row["client"]): row["status"] for row in found.clients}
    assert status.pop("killer") == "failed while training: its worker died 3 times"
    assert set(status.values()) == {"used"}
    for name, value in wanted.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), "they are trained as if it were not there"


def test_workers_killed_all_the_time_change_no_bit_that_is_not_recorded() -> None:
    """In the last round, the group takes longer than a worker lives: clients fail by name."""
    clients = {f"c{number:02d}": Slow(number, 0.04) for number in range(8)}
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.4):
            for process in multiprocessing.active_children():
                os.kill(process.pid or 0, signal.SIGKILL)

    settings: dict[str, Any] = {"rounds": 3, "engine": Vectorized(1), "test": table(40, 99)}
    wanted = Federation(clients, model(), **settings).run()
    killing = threading.Thread(target=kill)

    def begin_to_kill(round: Round) -> None:
        if round.number == 1:
            killing.start()

    try:
        found = Federation(clients, model(), **settings).run(begin_to_kill)
    finally:
        stop.set()
        killing.join()
    assert [row for row in found.clients if row["round"] != 3] == [
        row for row in wanted.clients if row["round"] != 3
    ]
    last = [row for row in found.clients if row["round"] == 3]
    failed = [row for row in last if row["status"] != "used"]
    assert all(str(row["status"]).endswith("died 3 times") for row in failed)
    assert failed or last == [row for row in wanted.clients if row["round"] == 3]


@pytest.mark.parametrize("deaths", [2, 4])
def test_groups_that_are_run_in_the_end_have_the_bits_of_an_undisturbed_run(
    deaths: int, tmp_path: Path
) -> None:
    """Four deaths: the group dies three times, the killer once more when it is tried alone."""
    results = []
    for lives in (0, deaths):
        killing = Client("killing", Deadly(tmp_path / f"deaths-{lives}", lives, table(12, 3)[0]))
        results.append(run([*(Client(f"c{n:02d}", table(12, n)) for n in range(6)), killing]))
    assert (tmp_path / f"deaths-{deaths}").stat().st_size == deaths
    assert results[0].clients == results[1].clients
