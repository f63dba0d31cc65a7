"""On a Ray cluster the bits are the same, on whichever node a client runs and whatever dies."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import any_tasks
import pytest
import torch
from test_deadline import Endless
from test_engines import (
    Counting,
    Deadly,
    Directed,
    Following,
    Noisy,
    Unreadable,
    assert_same,
    clients,
    data,
    model,
    run,
)
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.data.clients import Client
from steelyard.engines import Ray, Serial, Vectorized, description, pool_sites, ray_sites
from steelyard.errors import InputError, SteelyardError
from steelyard.server.federation import advance
from steelyard.settings import Training
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.specs.schema import load_spec

ray = pytest.importorskip("ray")
MARK = f"STEELYARD_TEST_{os.getpid()}"  # in the environment of every process that these tests start


@pytest.fixture(scope="module", autouse=True)
def _apart() -> Iterator[None]:
    """Ray writes to a folder of our own, talks to nobody but us and does not tell its makers."""
    folder = tempfile.mkdtemp(prefix="ray")  # short, because sockets are in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # for the classes below
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray._raylet.Config.initialize("")
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(_apart: None) -> Iterator[Any]:
    """A cluster of two nodes with a CPU each, both on this machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, "cluster")
        nodes = Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
        nodes.add_node()
    yield nodes
    nodes.shutdown()


@pytest.fixture
def cluster(nodes: Any) -> str:
    """Its address."""
    return str(nodes.address)


def processes(mark: str, title: bytes = b"") -> list[int]:
    """The processes that bear a mark and are called so."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if marked and (folder / "cmdline").read_bytes().startswith(title):
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def assert_gone(mark: str, title: bytes = b"") -> None:
    deadline = time.monotonic() + 20
    while processes(mark, title):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.05)


class Meeting(Noisy):
    """Is read on two nodes at a time or not at all; a file for each node shows that it was there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if ray.is_initialized() and index > 1:
            (self.folder / ray.get_runtime_context().get_node_id()).touch()
            deadline = time.monotonic() + 60
            while len(list(self.folder.iterdir())) < 2:
                if time.monotonic() > deadline:
                    (self.folder / "nobody").touch()  # one such wait is enough
                    raise TimeoutError("nobody else came")
                time.sleep(0.01)
        return super().__getitem__(index)


def test_two_nodes_share_the_work_and_give_the_bits_of_the_serial_engine(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running statistics, dropout, unequal clients, what they keep, what the server offers, random data."""
    monkeypatch.setattr(pool_sites, "CHUNK_SECONDS", 1e9)  # after the first round, many clients at a time
    algorithm = Algorithm(Following(), Counting(), Directed(), training=Training(lr=0.05, momentum=0.9))
    parties = {**{each.id: each for each in clients()}, "oslo": Meeting(tmp_path), "turin": Meeting(tmp_path)}
    settings: dict[str, Any] = {"rounds": 3, "test": Noisy()}
    federation = Federation(parties, model(), algorithm, engine=Ray(address=cluster), **settings)
    assert_same(federation.run(), Federation(parties, model(), algorithm, engine=Serial(), **settings).run())
    assert len(list(tmp_path.iterdir())) == 2
    assert not ray.is_initialized()
    assert_gone("cluster", b"ray::Node")


def test_dict_batches_and_own_metrics_have_the_bits_of_the_serial_engine(cluster: str) -> None:
    assert_same(
        any_tasks.federation("dict", engine=Ray(address=cluster)).run(), any_tasks.federation("dict").run()
    )


def test_of_clients_that_kill_or_fail_the_incurable_are_set_aside_by_name(
    cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    healthy = {each.id: each for each in clients()}
    curable = {**healthy, "mortal": Deadly(tmp_path / "one", 1)}
    parties = {**curable, "deadly": Deadly(tmp_path / "all", 10**6), "bad": Unreadable(tmp_path, 0)}
    found = Federation(parties, model(), engine=Ray(address=cluster), rounds=1).run()
    assert (tmp_path / "one").stat().st_size == 1
    status = {row["client"]: str(row["status"]) for row in found.clients}
    assert status.pop("deadly") == "failed while training: its worker died 3 times"
    assert status.pop("bad") == "failed while training: OSError: the disk is gone"
    assert status == dict.fromkeys(curable, "used")
    wanted = Federation(curable, model(), engine=Serial(), rounds=1).run().model.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in found.model.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_a_ray_that_is_there_already_is_used_and_left_running(cluster: str) -> None:
    ray.init(address=cluster, log_to_driver=False, logging_level="ERROR")
    try:
        federation = Federation(clients(), model(), engine=Ray(workers=1), rounds=1)
        with federation.open() as sites:
            server = federation.server(sites)
            advance(server, server.init())
            assert sites.about == "ray, 1 worker on 1 node"
        assert ray.is_initialized()
        assert_gone("cluster", b"ray::Node")
    finally:
        ray.shutdown()


def test_a_client_that_never_answers_misses_the_deadline_and_its_worker_is_replaced(cluster: str) -> None:
    healthy = {each.id: each for each in clients()}
    federation = Federation(
        {**healthy, "hung": Endless()}, model(), engine=Ray(2, cluster), rounds=2, round_seconds=8.0
    )
    result = federation.run()
    status = {(row["round"], row["client"]): str(row["status"]) for row in result.clients}
    assert status[1, "hung"] == status[2, "hung"] == "failed while answering: no answer within 8 s"
    assert all(status[1, client] == "used" for client in healthy)
    assert_gone("cluster", b"ray::Node")


@pytest.mark.filterwarnings("ignore::steelyard.errors.SteelyardWarning")
def test_nodes_that_are_silent_after_the_deadline_are_replaced(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_sites, "GRACE_SECONDS", 0.5)
    stopped: list[int] = []

    def stop_all(round: Any) -> None:
        if round.number == 1:
            stopped.extend(processes("cluster", b"ray::Node"))
            for process in stopped:
                os.kill(process, signal.SIGSTOP)

    federation = Federation(
        clients(), model(), engine=Ray(2, cluster), rounds=4, round_seconds=4.0, evaluate_every=1
    )
    result = federation.run(stop_all)
    assert stopped
    status = {row["round"]: str(row["status"]) for row in result.clients}
    assert list(status.values()).count("failed while answering: no answer within 4 s") == 1
    assert list(status.values()).count("used") == 3
    assert_gone("cluster", b"ray::Node")


class Doomed(Dataset[tuple[Tensor, int]]):
    """Is never read to the end on one node; a file shows that somebody tries."""

    def __init__(self, seed: int, node: str, reached: Path) -> None:
        self.data, self.node, self.reached = data(12, seed), node, reached

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if ray.is_initialized() and ray.get_runtime_context().get_node_id() == self.node:
            self.reached.touch()
            time.sleep(600)
        return self.data[0][index], int(self.data[1][index])


def test_a_node_that_dies_in_the_middle_of_a_round_changes_no_bit(nodes: Any, tmp_path: Path) -> None:
    doomed, reached = nodes.add_node(num_cpus=1), tmp_path / "reached"

    def kill() -> None:
        while not reached.exists():
            time.sleep(0.05)
        nodes.remove_node(doomed, allow_graceful=False)

    killing = threading.Thread(target=kill)
    killing.start()
    parties = [*clients(), *(Client(f"d{n}", Doomed(n, doomed.node_id, reached)) for n in range(6))]
    federation = Federation(parties, model(), engine=Ray(address=nodes.address), rounds=2)
    with federation.open() as sites:
        assert isinstance(sites, ray_sites.RaySites)
        while not all(node.started for node in sites.nodes):
            for node in sites._ready(1.0):
                assert list(sites._receive(node, deque())) == []
        assert len(sites.nodes) == 3
        server = federation.server(sites)
        state = server.init()
        _, state = advance(server, state)
        round, state = advance(server, state)
        assert sites.about == "ray, 2 workers on 2 nodes"
    killing.join()
    wanted = Federation(parties, model(), engine=Serial(), rounds=2).run()
    assert round is not None
    assert round.metrics == {key: value for key, value in wanted.history[0].items() if key in round.metrics}
    found = server.model_after(state).state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.model.state_dict().items())


def test_where_nodes_train_clients_together_the_bits_are_those_of_vectorized(
    cluster: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "steelyard.engines")
    monkeypatch.setattr(ray_sites, "BATCH_BYTES", 1)  # a group at a time
    members = {f"c{n:02d}": data(8 + n % 3, n) for n in range(70)}
    settings: dict[str, Any] = {"rounds": 2, "test": data(300, 99)}

    def perceptron() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

    found = Federation(members, perceptron(), engine=Ray(address=cluster, node="auto"), **settings).run()
    assert "engine: ray, vectorized, " in caplog.text
    assert_same(found, Federation(members, perceptron(), engine=Vectorized(2), **settings).run())


def test_what_cannot_be_trained_together_is_refused_and_auto_takes_pools(cluster: str) -> None:
    with pytest.raises(InputError, match=r"cannot be trained together: .*Take another engine\.node"):
        run(Ray(address=cluster, node="vectorized"))
    federation = Federation(clients(), model(), engine=Ray(1, cluster, "auto"), rounds=1)
    with federation.open() as sites:
        server = federation.server(sites)
        advance(server, server.init())
        assert sites.about == "ray, 1 worker on 1 node"


def test_a_run_counts_as_one_of_the_engine_of_its_nodes() -> None:
    def fingerprint(**engine: Any) -> str:
        return load_spec({"engine": engine, "data": {"clients": 100}}).fingerprint()

    assert fingerprint(name="ray", workers=3, address="auto") == fingerprint(name="serial")
    assert fingerprint(name="ray", node="vectorized") == fingerprint(name="vectorized")
    assert fingerprint(name="ray", node="auto") == fingerprint(name="auto")
    assert len({fingerprint(name=name) for name in ("serial", "vectorized", "auto")}) == 3
    assert description._engine(Ray(node="vectorized")) == description._engine(Vectorized())
    assert description._engine(Ray()) == description._engine(Serial())
    with pytest.raises(InputError, match=r"engine\.node must be one of pool, vectorized, auto, not 'gpu'"):
        Ray(node="gpu")


class Homesick(Noisy):
    """Cannot be unpacked anywhere else."""

    def __reduce__(self) -> Any:
        return len, (3,)


def test_a_workload_that_workers_cannot_unpack_is_reported_at_once(cluster: str) -> None:
    with pytest.raises(SteelyardError, match=r"a Ray worker cannot start: TypeError: .*int"):
        run(Ray(1, cluster), test=Homesick())


def test_data_that_cannot_be_sent_is_refused(cluster: str) -> None:
    locked = Noisy()
    locked.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"cannot send these clients to its workers: .*lock"):
        run(Ray(address=cluster), test=locked)


def test_without_an_address_ray_runs_here_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(MARK, "local")
    monkeypatch.delenv("RAY_AUTH_MODE")  # which Ray then sets
    monkeypatch.setenv("PYTHONBREAKPOINT", "mine")
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    killed: list[int] = []

    def kill_the_workers(round: Any) -> None:
        if round.number == 1:
            killed.extend(processes("local", b"ray::Node"))
            for process in killed:
                os.kill(process, signal.SIGKILL)

    settings: dict[str, Any] = {"rounds": 3, "test": data(600, 99)}
    found = Federation(clients(), model(), engine=Ray(workers=2), **settings).run(kill_the_workers)
    assert killed
    assert not ray.is_initialized()
    assert_gone("local")
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == (environment, handler)
    assert capfd.readouterr() == ("", "")
    assert_same(found, Federation(clients(), model(), engine=Serial(), **settings).run())


def test_a_table_that_clients_share_is_packed_once() -> None:
    inputs, targets = data(1000, 0)
    parties = {str(each): (inputs[10 * each :][:10], targets[10 * each :][:10]) for each in range(100)}
    workload = Federation(parties, model()).workload
    assert len(ray_sites.pack(workload, ray.cloudpickle)) < 2 * inputs.nbytes


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^the ray engine needs Ray: install steelyard\[ray\]\.$"):
        run(Ray())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_reported(address: str) -> None:
    with pytest.raises(InputError, match=f"cannot join a Ray cluster at '{address}': "):
        run(Ray(address=address))


def test_ray_client_is_refused() -> None:
    with pytest.raises(InputError, match=r"not by Ray Client \(ray://\)"):
        run(Ray(address="ray://127.0.0.1:10001"))


def test_ray_is_listed_but_not_imported() -> None:
    program = (
        "import sys, steelyard.cli\n"
        "from steelyard.specs.registry import describe\n"
        "assert 'ray' in [each['name'] for each in describe('engines')]\n"
        "assert 'ray' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_ray_needs_a_worker() -> None:
    with pytest.raises(InputError, match="workers"):
        Ray(workers=0)


def test_held_out_examples_find_the_same_temperature_to_the_bit() -> None:
    serial, distributed = (
        sy.run("fedavg", out=None, rounds=2, engine=engine, **{"data.holdout": 0.2}).history
        for engine in ("serial", {"name": "ray", "workers": 1})
    )
    assert serial == distributed
    assert serial[-1]["temperature"] > 0
