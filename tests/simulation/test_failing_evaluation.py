"""A client that cannot score a model has failed in that round only, in every engine."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import steelyard as sy
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.simulation import SimulatedFederation

NAMES = ("lima", "oslo", "pisa", "turin")
ENGINES: dict[str, Callable[[], Engine]] = {
    "serial": Serial,
    "pool": lambda: Pool(2),
    "vectorized": lambda: Vectorized(1),
}


def blobs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    return torch.randn(count, 2, generator=draw) + labels.unsqueeze(1), labels


class Broken(Dataset[tuple[Tensor, int]]):
    """Data of which only the first rows, which are read when a federation is built, can be read."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if row > 1:
            raise OSError("the disk is gone")
        return torch.zeros(2), row % 3


def clients(part: str) -> list[sy.Client]:
    """Of the last one, the test data or what it holds out cannot be read."""
    good = [sy.Client(name, blobs(12, place), blobs(9, 20 + place)) for place, name in enumerate(NAMES[:3])]
    broken: dict[str, Any] = {part: Broken()}
    return [*good, sy.Client("turin", blobs(12, 3), **broken)]


@pytest.mark.parametrize("part", ["test", "held_out"])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_it_is_a_failure_of_that_client_in_that_round(
    engine: Callable[[], Engine], part: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    federation = SimulatedFederation(
        clients(part), nn.Linear(2, 3), rounds=3, engine=engine(), test=blobs(9, 9)
    )
    result = federation.run(recorder=sy.Recorder(tmp_path / "run"))
    rows = {(row["round"], row["client"]): row for row in result.clients}
    reason = "failed while evaluating: OSError: the disk is gone"
    assert [rows[number, "turin"]["status"] for number in (1, 2, 3)] == ["used", reason, reason]
    assert rows[3, "turin"]["evaluation"] == reason, "the last exchange only scores"
    for name in NAMES[:3]:
        assert all(rows[number, name]["status"] == "used" for number in (1, 2, 3))
        assert all(rows[number, name]["accuracy"] is not None for number in (1, 2, 3))
    assert [row["used"] for row in result.history] == [4, 3, 3]
    assert all(row["client_accuracy"] >= 0 for row in result.history)


def test_a_first_round_in_which_all_sampled_clients_fail_does_not_end_the_run() -> None:
    broken = ("lima", "oslo", "pisa")
    data = {name: Broken() if name in broken else blobs(12, place) for place, name in enumerate(NAMES)}
    used = []
    for seed in range(6):
        federation = SimulatedFederation(
            data, nn.Linear(2, 3), rounds=8, clients_per_round=2, engine=Serial(), seed=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sy.SteelyardWarning)  # some end with skipped rounds
            used.append([row["used"] for row in federation.run().history])
    assert any(rounds[0] == 0 for rounds in used)
    assert all(any(rounds) for rounds in used)
