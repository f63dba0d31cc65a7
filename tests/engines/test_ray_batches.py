"""Which jobs a node of a Ray cluster gets, what is left of them when it dies, and the blocks that go up."""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from test_engines import clients, model

from steelyard.client.private_state import MemoryStates
from steelyard.engines import ray_node
from steelyard.engines.attempts import Attempt
from steelyard.engines.base import Deadline
from steelyard.engines.ray_batches import deal, keys, portion, rest
from steelyard.engines.ray_node import Batch, NodePool, selection
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.worker import Begin, Evaluate, Train
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.threads import one_thread
from steelyard.types import Broadcast


def queue(count: int, size: int = 1) -> "deque[Attempt]":
    jobs = [Train([f"c{number}-{each}" for each in range(size)], [], []) for number in range(count)]
    return deque(map(Attempt, jobs))


def test_workers_are_dealt_to_nodes_in_turn_as_far_as_they_have_cpus() -> None:
    assert deal(None, {"a": 3, "b": 1}) == {"a": 3, "b": 1}
    assert deal(2, {"a": 3, "b": 1}) == {"a": 1, "b": 1}
    assert deal(3, {"a": 3, "b": 1}) == {"a": 2, "b": 1}
    assert deal(9, {"a": 3, "b": 1}) == {"a": 3, "b": 1}
    assert deal(0, {"a": 3}) == deal(-1, {"a": 3}) == {}


def test_a_node_with_all_workers_gets_all_jobs_that_it_has_room_for() -> None:
    waiting = queue(10, size=3)
    assert len(portion(waiting, 2, 2, room=100)) == 10
    waiting = queue(10, size=3)
    assert len(portion(waiting, 2, 2, room=7)) == 2
    assert len(waiting) == 8
    assert len(portion(waiting, 2, 2, room=1)) == 1, "a job that is too large goes alone"


def test_nodes_get_large_and_small_clients_alike_and_some_wait_for_the_first_that_is_done() -> None:
    waiting = queue(80)
    order = list(waiting)
    first, second = portion(waiting, 2, 4, room=100), portion(waiting, 2, 4, room=100)
    assert len(first) == 30
    assert 15 < len(second) < 30
    assert {*first, *second, *waiting} == {*order}
    assert len(first) + len(second) + len(waiting) == 80
    for taken in (first, second):
        assert 30 < np.mean([order.index(each) for each in taken]) < 50
    assert len(portion(queue(3), 2, 64, room=100)) == 2, "one for each worker at least"


def test_a_job_whose_node_died_goes_alone() -> None:
    waiting = queue(5)
    suspect = waiting.popleft()
    suspect.retry_or_fail(waiting)
    assert portion(waiting, 2, 2, room=100) == [suspect]
    assert suspect not in portion(waiting, 2, 2, room=100)


def test_what_a_dead_node_has_answered_is_not_run_again() -> None:
    job = Train(["a", "b", "c"], [7, 8, 9], [{"x": np.ones(1)}, {}, {}])
    attempt = Attempt(job)
    left = dict.fromkeys(keys(job), attempt)
    left.pop(keys(job)[1])
    assert rest(job, left) == Train(["a", "c"], [7, 9], [{"x": np.ones(1)}, {}])
    scoring = Evaluate(["a", "b"], [{}, {}], True, False)
    assert rest(scoring, {keys(scoring)[1]: attempt}) == Evaluate(["b"], [{}], True, False)


def test_consecutive_rows_are_not_copied() -> None:
    assert selection([3, 4, 5]) == slice(3, 6)
    assert selection([3, 5]) == [3, 5]
    assert selection([4, 3]) == [4, 3]


@pytest.mark.parametrize("size", [1, 1 << 30])
def test_a_node_sends_updates_in_blocks_with_the_rows_of_the_server(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_node, "BLOCK_BYTES", size)
    federation = Federation(clients(), model())
    with federation.open() as sites:
        message = federation.server(sites).init().server.message
    serial = SerialSites(federation.workload, MemoryStates())
    with one_thread():
        trained = list(serial.train(Broadcast(1, message, rounds=3), list(federation.clients)))
    wanted = {
        each.reply.client: each.reply.message.mean.clone()  # type: ignore[union-attr]
        for each in trained
    }
    jobs: list[Any] = [Train(["c3"], [12], [{}]), Train(["c0", "c4"], [3, 7], [{}, {}])]
    pool = NodePool(federation.workload, MemoryStates(), 2)
    try:
        found = list(pool.blocks(message, Begin(1, 3, {}), Batch(jobs, SiteRunner, 1, None, None)))
    finally:
        pool.close()
    assert len(found) == (2 if size == 1 else 1)
    done = {row: each for block in found for each in block for row in getattr(each.job, "rows", ())}
    assert sorted(done) == [3, 7, 12]
    for row, client in ((3, "c0"), (7, "c4"), (12, "c3")):
        job: Any = done[row].job
        assert job.states == ()
        assert job.clients[job.rows.index(row)] == client
        update = done[row].updates["mean"][job.rows.index(row)]
        assert torch.equal(torch.from_numpy(update), wanted[client])


def test_a_node_names_the_seconds_that_the_round_has() -> None:
    deadline = Batch((), SiteRunner, 1, 8.0, 0.0).deadline()
    assert deadline.left() == 0
    assert deadline.missed_by("c0") == Deadline(8.0).missed_by("c0")
