"""The result of a run: short to print, and rows of a recorded run that are read when they are looked at."""

import pickle
import tracemalloc
from pathlib import Path

import pytest
from scripted_sites import CLASSES, ScriptedSites, ServerTest
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.runs.writer import Recorder
from steelyard.server.federation import Federation
from steelyard.server.result import RecordedRows
from steelyard.types import Round


def federation(clients: int, rounds: int) -> Federation:
    sites = ScriptedSites([f"client-{number:03d}" for number in range(clients)])
    return Federation(sites, Algorithm(), nn.Linear(2, CLASSES), test=ServerTest(), rounds=rounds)


def test_a_recorded_run_does_not_grow_with_its_rounds(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}

    def measure(round: Round) -> None:
        if round.number in (20, 120):
            sizes[round.number] = tracemalloc.get_traced_memory()[0]

    with Recorder(tmp_path / "run") as recorder:
        tracemalloc.start()
        federation(100, 120).run(measure, keeper=recorder)
        tracemalloc.stop()
    assert sizes[120] - sizes[20] < 100 * 1000, "bytes: less than 1 KB in a round of 100 clients"


def test_the_rows_of_a_recorded_run_are_those_of_the_same_run_in_memory(tmp_path: Path) -> None:
    plain = federation(3, 4).run()
    with Recorder(tmp_path / "run") as recorder:
        kept = federation(3, 4).run(keeper=recorder)
    assert isinstance(kept.history, RecordedRows)
    assert kept.history == plain.history
    assert (len(kept.clients), kept.clients[-1]) == (12, plain.clients[-1])
    assert kept.accuracy == plain.accuracy == 0.6
    assert kept.history[1:3] == plain.history[1:3]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_result_is_short_to_print_and_can_be_pickled(tmp_path: Path, recorded: bool) -> None:
    if recorded:
        with Recorder(tmp_path / "run") as recorder:
            result = federation(50, 4).run(keeper=recorder)
    else:
        result = federation(50, 4).run()
    assert len(repr(result)) < 200
    assert "4 rounds" in repr(result)
    again = pickle.loads(pickle.dumps(result))
    assert tuple(again.clients) == tuple(result.clients)
    assert again.state.round == 4
