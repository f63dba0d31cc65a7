"""`engine.threads`: clients on several threads of torch, with bits that belong to their number."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.engines import Auto, Pool, Serial
from steelyard.errors import InputError
from steelyard.threads import one_thread, with_threads

random = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(80, 4, generator=random), torch.arange(80) % 3
CLIENTS = {name: (INPUTS[first::4], TARGETS[first::4]) for first, name in enumerate("abcd")}


class Notes(nn.Module):
    """A model that keeps in a buffer on how many threads it was trained, and asserts it when it predicts."""

    def __init__(self, width: int = 60) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
        self.register_buffer("threads", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.threads.fill_(torch.get_num_threads())
        outputs: Tensor = self.net(inputs)
        return outputs


def federation(engine: Any, model: nn.Module | None = None, **settings: Any) -> sy.Federation:
    settings = {"rounds": 2, "test": (INPUTS, TARGETS), **settings}
    algorithm = sy.Algorithm(training={"steps": 2}, server={"statistics": "mean"})
    return sy.Federation(CLIENTS, model or Notes(), algorithm, engine=engine, **settings)


def bits(result: Any) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in result.model.state_dict().items()}


ENGINES = [Serial(threads=2), Pool(threads=2), Pool(workers=3, threads=2), Auto(threads=2)]


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_clients_train_on_so_many_threads_and_the_server_on_one(engine: Any) -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    result = federation(engine).run(callbacks=lambda event: seen.append(torch.get_num_threads()))
    assert result.model.get_buffer("threads").item() == 2
    assert seen == [1, 1]
    assert torch.get_num_threads() == before


def test_the_engines_agree_in_every_bit() -> None:
    first, *others = [federation(engine).run() for engine in ENGINES]
    for other in others:
        assert bits(other) == bits(first)
        assert [round.metrics for round in other.as_rounds()] == [each.metrics for each in first.as_rounds()]
    late = federation(Serial(threads=2), round_seconds=60.0).run()
    assert bits(late) == bits(first)


def test_one_thread_is_the_default() -> None:
    plain, named = (federation(engine).run() for engine in ("serial", {"name": "serial", "threads": 1}))
    assert bits(plain) == bits(named)
    assert plain.model.get_buffer("threads").item() == 1


def test_models_predict_on_them_too() -> None:
    counted: list[int] = []

    class Counts(Notes):
        def forward(self, inputs: Tensor) -> Tensor:
            counted.append(torch.get_num_threads())
            return super().forward(inputs)

    made = federation(Serial(threads=3), Counts())
    counted.clear()
    made.run()
    counted.remove(1)  # a trial that shows whether the model draws random numbers
    assert set(counted) == {3}


@pytest.mark.parametrize("kind", [Serial, Pool, Auto])
def test_fewer_threads_than_one_are_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="threads must be at least 1, not 0"):
        kind(threads=0)


def test_clients_that_train_together_have_no_threads() -> None:
    with pytest.raises(InputError, match="engine 'vectorized' has no setting 'threads': it is a setting of"):
        federation({"name": "vectorized", "threads": 2})


def test_a_run_goes_on_with_the_same_number_only(tmp_path: Path) -> None:
    federation(Serial(threads=2)).run(out=tmp_path)
    [folder] = tmp_path.iterdir()
    with pytest.raises(InputError, match="engine was serial or pool with 2 threads, now serial, pool or ray"):
        federation("serial", rounds=3).resume(folder, rounds=3)
    longer = federation(Pool(threads=2), rounds=3).resume(folder, rounds=3)
    assert bits(longer) == bits(federation(Auto(threads=2), rounds=3).run())


def test_the_record_says_the_number(tmp_path: Path) -> None:
    for place, (engine, words) in enumerate(
        (
            (Serial(threads=2), "serial with 2 threads for each client"),
            (Pool(2, threads=3), "pool of 2 with 3 threads for each client"),
        )
    ):
        federation(engine).run(recorder=tmp_path / str(place))
        assert sy.Run(tmp_path / str(place)).meta["engine"] == words


@pytest.mark.parametrize(("threads", "workers"), [(1, 6), (2, 3), (4, 1), (9, 1)])
def test_a_pool_has_as_many_workers_as_its_threads_leave_cores_for(
    threads: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.engines.pool.cores", lambda: 6)
    with federation(Pool(threads=threads)).open() as sites:
        assert sites.about.startswith(f"pool of {workers}")


def test_auto_trains_none_together_on_several_threads() -> None:
    many = {f"c{number}": (INPUTS[:6], TARGETS[:6]) for number in range(40)}
    net, steps = nn.Linear(4, 3), sy.Algorithm(training={"steps": 2, "batch_size": 2})
    abouts = []
    for threads in (1, 2):
        made = sy.Federation(many, net, steps, rounds=1, engine=Auto(threads=threads))
        with made.open() as sites:
            made.server(sites).run()
            abouts.append(sites.about)
    assert abouts[0].startswith("vectorized")
    assert abouts[1].startswith(("serial with 2 threads", "pool of 1 with 2 threads"))


@pytest.mark.parametrize(
    ("width", "cores", "threads", "note"),
    [(130_000, 8, 1, "engine.threads = 2"), (130_000, 7, 1, ""), (130_000, 8, 2, ""), (60, 8, 1, "")],
)
def test_auto_says_when_few_clients_with_a_large_model_leave_cores_idle(
    width: int, cores: int, threads: int, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.engines.auto.cores", lambda: cores)
    made = federation(Auto(threads=threads), Notes(width), rounds=1)
    with made.open() as sites:
        made.server(sites).run()
        assert ("cores are idle" in sites.about) == bool(note)
        assert note in sites.about


def test_work_on_several_threads_is_done_in_a_python_thread_of_its_own() -> None:
    with one_thread(), torch.no_grad():
        found = with_threads(2, lambda: (torch.get_num_threads(), torch.is_grad_enabled(), _here()))
        assert found == (2, False, found[2])
        assert found[2] != _here()
        assert torch.get_num_threads() == 1
        assert with_threads(1, _here) == _here()

    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with_threads(2, fails)


def _here() -> int:
    return threading.get_ident()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
def test_ctrl_c_ends_the_work() -> None:
    ended = []

    def long() -> None:
        try:
            time.sleep(0.2)  # until the main thread waits
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            for _ in range(1000):
                time.sleep(0.01)
        finally:
            ended.append(torch.get_num_threads())

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background has none
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            with_threads(2, long)
        assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGINT, handler)
    assert ended == [2]


FORKED = """
import os, signal, sys
import torch
sys.path.insert(0, {tests!r})
from test_client_threads import Pool, Serial, federation

torch.set_num_threads(4)
large = torch.randn(1000, 1000)
(large @ large).sum()
federation(Pool(2, threads=2), rounds=1).run()
federation(Serial(threads=2), rounds=1).run()
federation(Pool(2, threads=2), rounds=1).run()
child = os.fork()
if not child:
    signal.alarm(50)
    federation(Serial(threads=2), rounds=1).run()
    os._exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_threads_work_in_processes_that_were_forked_from_one_that_used_some() -> None:
    """Torch hangs in a forked process if it has used several threads before."""
    program = FORKED.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-W", "ignore", "-c", program]
    assert subprocess.run(command, timeout=60, check=False).returncode == 7
