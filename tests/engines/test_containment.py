"""What one client's code does to its process, no other client and no caller sees."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.server.result import Result

PARENT = os.getpid()
ENGINES: dict[str, Engine] = {"serial": Serial(), "pool": Pool(2), "vectorized": Vectorized(1)}


def data(size: int, seed: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(size) % 3


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


class Acting(Dataset[tuple[Tensor, int]]):
    """Does something each time that it is read, beyond the rows that are checked at the start."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act, self.data = act, data(12, 50)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index > 1:
            self.act()
        return self.data[0][index], int(self.data[1][index])


def run(engine: Engine, clients: dict[str, Any], **settings: Any) -> Result:
    settings = {"rounds": 2, "test": data(30, 9), **settings}
    members = [each if isinstance(each, Client) else Client(name, each) for name, each in clients.items()]
    return sy.Federation(members, model(), engine=engine, **settings).run()


def honest(count: int = 3) -> dict[str, Any]:
    return {f"c{number}": data(20, number) for number in range(count)}


def statuses(result: Result, client: str) -> list[str]:
    return [str(row["status"]) for row in result.clients if row["client"] == client]


def world() -> list[Any]:
    return [
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_device(),
        torch.get_float32_matmul_precision(),
        os.getcwd(),
        dict(os.environ),
        list(warnings.filters),
        sys.stdout,
    ]


def leave_traces() -> None:
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    if os.getpid() == PARENT:  # OpenMP cannot start threads in a forked process
        torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    os.chdir("/")
    os.environ["STEELYARD_TRACE"] = "1"
    os.environ.pop("OMP_NUM_THREADS", None)
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_settings_that_one_client_changes_reach_no_other(engine: Engine) -> None:
    before = world()
    plain, changing = (
        run(engine, {"a": Acting(act), **honest()}) for act in (lambda: None, lambda: os.chdir("/"))
    )
    tracing = run(engine, {"a": Client("a", data(12, 50), Acting(leave_traces)), **honest()})
    assert world() == before
    assert plain.clients == changing.clients
    without = run(engine, {"a": Client("a", data(12, 50), Acting(lambda: None)), **honest()})
    others = [[row for row in each.clients if row["client"] != "a"] for each in (tracing, without)]
    assert others[0] == others[1]
    device = run(engine, {"a": Acting(lambda: torch.set_default_device("meta")), **honest()})
    assert all(statuses(device, client) == ["used", "used"] for client in honest())
    assert world() == before


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_client_that_turns_gradients_off_fails_alone(engine: Engine) -> None:
    """The others of its group too are trained as without it."""
    result = run(engine, {"a": Acting(lambda: torch.set_grad_enabled(False)), **honest()})
    assert all(statuses(result, client) == ["used", "used"] for client in honest())
    if not isinstance(engine, Vectorized):
        assert "does not require grad" in statuses(result, "a")[0]


def test_the_environment_is_that_of_the_process_too() -> None:
    """Child processes see it, not only `os.environ`."""
    os.environ["STEELYARD_KEPT"] = "before"

    def change() -> None:
        os.environ["STEELYARD_KEPT"] = "after"
        os.environ["STEELYARD_NEW"] = "1"

    run(Serial(), {"a": Acting(change), **honest()})
    seen = subprocess.check_output(["env"], text=True).splitlines()
    assert "STEELYARD_KEPT=before" in seen
    assert not [line for line in seen if line.startswith("STEELYARD_NEW")]
    del os.environ["STEELYARD_KEPT"]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class Odd(BaseException, metaclass=Nameless):
    pass


ERRORS = {
    "SystemExit: 3": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "UnprintableError, without a message": UnprintableError(),
    "Odd": Odd(),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("text", ERRORS)
@pytest.mark.parametrize("part", ["train", "test", "held_out"])
def test_exceptions_that_would_end_the_process_are_the_failure_of_the_client(
    text: str, engine: Engine, part: str
) -> None:
    def throw() -> None:
        raise ERRORS[text]

    parts = {"train": data(12, 1), part: Acting(throw)}
    result = run(engine, {**honest(), "odd": Client("odd", **parts)})
    rows = [row for row in result.clients if row["client"] == "odd"]
    said = [f"{row['status']} {row.get('evaluation')}" for row in rows]
    assert any(text in each for each in said)
    assert all(statuses(result, client) == ["used", "used"] for client in honest())


def test_ctrl_c_still_ends_the_run() -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Serial(), {"a": Acting(interrupt), **honest()})
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_client_that_forks_leaves_one_answer_and_no_process(engine: Engine, tmp_path: Path) -> None:
    forked: list[int] = []

    def fork() -> None:
        """Once in each process; the child goes on with what its parent was doing."""
        if forked:
            return
        forked.append(os.getpid())
        if child := os.fork():
            with (tmp_path / "children").open("a") as file:
                file.write(f"{child}\n")

    forking = run(engine, {"a": Acting(fork), **honest()})
    plain = run(engine, {"a": Acting(lambda: None), **honest()})
    assert forking.clients == plain.clients
    assert forking.history == plain.history
    for child in map(int, (tmp_path / "children").read_text().split()):
        assert is_gone(child)


def is_gone(process: int) -> bool:
    """Whether a process has ended, within two seconds; a zombie has."""
    for _ in range(40):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


class Falling:
    def __del__(self) -> None:
        raise OSError("in __del__")


def misuse_streams() -> None:
    Falling()
    if not sys.stdout.closed:
        print("not read")
        sys.stdout.close()
    sys.stdin.close()


def test_a_worker_without_streams_answers() -> None:
    found = run(Pool(1), {"a": Acting(misuse_streams), **honest()})
    wanted = run(Pool(1), {"a": Acting(lambda: None), **honest()})
    assert found.clients == wanted.clients


def test_the_output_of_a_program_is_not_closed_by_a_client() -> None:
    program = (
        "import test_containment as t, sys\n"
        "t.run(t.Serial(), {'a': t.Acting(lambda: sys.stdout.close()), **t.honest()})\n"
        "print('still here')"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "still here\n", done.stderr
