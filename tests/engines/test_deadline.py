"""A client that never answers costs its round a deadline, and nothing else."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Auto, Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.settings import Server
from steelyard.types import Row

SECONDS = 3.0  # long enough for healthy clients on a busy machine


class Endless(Dataset[tuple[Tensor, int]]):
    """Reading it in another process, beyond the rows that are checked at the start, never ends."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8)) -> None:
        self.shape, self.parent = shape, os.getpid()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        while index > 1 and os.getpid() != self.parent:
            time.sleep(1)
        return torch.zeros(self.shape), index % 3


def data(size: int, seed: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(size) % 3


def clients(**more: Any) -> dict[str, Any]:
    return {**{f"c{number}": data(20, number) for number in range(4)}, **more}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def statuses(rows: tuple[Row, ...], client: str) -> list[str]:
    return [str(row["status"]) for row in rows if row["client"] == client]


LATE = f"failed while answering: no answer within {SECONDS:g} s"


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("engine", [Serial(), Pool(2), Auto()], ids=["serial", "pool", "auto"])
def test_a_client_that_never_answers_fails_and_the_round_goes_on_with_the_rest(engine: Engine) -> None:
    settings = {"engine": engine, "rounds": 2, "test": data(30, 9)}
    found = sy.Federation(clients(hung=Endless((4,))), model(), round_seconds=SECONDS, **settings).run()
    assert statuses(found.clients, "hung") == [LATE, LATE]
    used = {str(row["client"]) for row in found.clients if row["status"] == "used"}
    assert used, "clients that answered in time count"
    if not isinstance(engine, Serial):  # one after the other, later clients may wait for the hung one
        without = sy.Federation(clients(), model(), **settings).run()
        assert used == set(clients())
        for name, value in without.model.state_dict().items():
            assert torch.equal(found.model.state_dict()[name], value)


def test_without_a_client_that_hangs_a_deadline_changes_no_bit() -> None:
    settings: dict[str, Any] = {"rounds": 3, "test": data(30, 9), "clients_per_round": 3}
    results = [
        sy.Federation(clients(), model(), engine=engine, round_seconds=seconds, **settings).run()
        for engine, seconds in ((Serial(), None), (Serial(), 60.0), (Pool(2), 60.0))
    ]
    for result in results[1:]:
        assert result.history == results[0].history
        assert result.clients == results[0].clients


@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_a_round_in_which_too_few_answer_is_skipped() -> None:
    algorithm = sy.Algorithm(server=Server(quorum=0.9))
    members = clients(hung=Endless((4,)))
    result = sy.Federation(members, model(), algorithm, engine=Pool(2), rounds=1, round_seconds=SECONDS).run()
    assert result.history[0]["used"] == 0
    assert statuses(result.clients, "hung") == [LATE]
    assert "quorum" in statuses(result.clients, "c0")[0]
    assert torch.equal(result.model.weight, model().weight)


@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_when_all_are_late_the_rounds_are_skipped_and_the_run_goes_on() -> None:
    result = sy.Federation(
        {"hung": Endless((4,)), "too": Endless((4,))}, model(), engine=Pool(2), rounds=2, round_seconds=0.5
    ).run()
    assert [row["used"] for row in result.history] == [0, 0]


def test_a_client_that_never_scores_misses_the_deadline_too() -> None:
    stuck = Client("stuck", data(20, 7), Endless((4,)))
    result = sy.Federation(
        [*(Client(name, part) for name, part in clients().items()), stuck],
        model(),
        engine=Pool(2),
        rounds=2,
        round_seconds=SECONDS,
    ).run()
    assert statuses(result.clients, "stuck") == ["used", LATE], "scores of round 1 are asked in round 2"
    assert statuses(result.clients, "c0") == ["used", "used"]


@pytest.mark.parametrize("engine", [Serial(), Pool(2), Vectorized(2), Auto()])
def test_stopped_workers_are_replaced(engine: Engine) -> None:
    """They neither die nor answer, and ignore polite signals."""
    stopped: list[int] = []

    def stop_all(round: Any) -> None:
        if not stopped:
            stopped.extend(child.pid or 0 for child in multiprocessing.active_children())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    result = sy.Federation(
        clients(), model(), engine=engine, rounds=4, round_seconds=SECONDS / 2, evaluate_every=1
    ).run(stop_all)
    late = {row["round"] for row in result.clients if "no answer within" in str(row["status"])}
    assert len(late) == 1
    assert len({row["round"] for row in result.clients if row["status"] == "used"}) >= 3


@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_clients_trained_together_miss_the_deadline_together() -> None:
    members = {**{f"c{n:02d}": data(20, n) for n in range(40)}, "hung": Endless((4,))}
    result = sy.Federation(members, model(), engine=Vectorized(2), rounds=1, round_seconds=SECONDS).run()
    late = {str(row["client"]) for row in result.clients if LATE in str(row["status"])}
    assert "hung" in late
    assert len(late) <= 21, "the other group counts"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_deadline_is_a_time_ahead(seconds: float) -> None:
    with pytest.raises(InputError, match="round_seconds must be greater than 0"):
        sy.Federation(clients(), model(), round_seconds=seconds)


def test_a_spec_has_a_deadline_that_does_not_change_its_fingerprint() -> None:
    from steelyard.specs.schema import load_spec

    assert load_spec({"round_seconds": 60.0}).fingerprint() == load_spec().fingerprint()
    with pytest.raises(InputError, match="round_seconds"):
        load_spec({"round_seconds": 0.0})


def test_a_federation_with_a_deadline_runs_outside_of_the_main_thread() -> None:
    results: list[Any] = []
    federation = sy.Federation(clients(), model(), engine=Pool(1), rounds=1, round_seconds=60.0)
    thread = threading.Thread(target=lambda: results.append(federation.run()))
    thread.start()
    thread.join()
    assert results[0].history[0]["used"] == 4
