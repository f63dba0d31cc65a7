"""A client cannot break a run, and data that is read lazily or at random does not disturb it."""

import pytest
import torch
from small_federation import CLIENTS, TEST, Table, blobs, linear, run, weights
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.algorithm import Algorithm
from steelyard.errors import ClientError, SteelyardWarning
from steelyard.settings import Server, Training
from steelyard.simulation import SimulatedFederation as Federation

# Clients that fail


def test_a_client_whose_data_fails_is_rejected_by_name_and_the_run_goes_on() -> None:
    broken = {**CLIENTS, "rome": Table(blobs(20, 5), broken=True)}
    result, without = run(broken), run(CLIENTS)
    rows = [row for row in result.clients if row["client"] == "rome"]
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert "failed while training: OSError: disk error at row" in str(row["status"])
        assert row["weight"] == 0
    assert [row["rejected"] for row in result.history] == [1, 1, 1]
    assert weights(result) == weights(without)


def test_when_every_client_fails_the_error_names_client_round_and_stage() -> None:
    broken = {name: Table(data, broken=True) for name, data in CLIENTS.items()}
    with pytest.raises(
        ClientError, match=r"client 'lima' failed in round 1 while training: OSError: disk"
    ) as caught:
        run(broken)
    error = caught.value
    assert (error.client, error.round, error.stage) == ("lima", 1, "training")


def test_a_client_that_diverges_is_rejected_and_the_model_stays_finite() -> None:
    inputs, labels = blobs(64, 5)
    result = run({**CLIENTS, "rome": (1e30 * inputs, labels)})
    rows = [row for row in result.clients if row["client"] == "rome"]
    assert all("not finite" in str(row["status"]) and row["weight"] == 0 for row in rows)
    assert all(bool(torch.isfinite(value).all()) for value in result.model.state_dict().values())
    assert weights(result) == weights(run(CLIENTS))


def test_a_round_below_its_quorum_leaves_the_model_and_says_so() -> None:
    clients = {
        name: (data[0] * (1e30 if name in ("lima", "oslo") else 1), data[1]) for name, data in CLIENTS.items()
    }
    algorithm = Algorithm(server=Server(quorum=0.75), training=Training(batch_size=4))
    model = linear()
    with pytest.warns(SteelyardWarning, match="no round changed the model"):
        result = run(clients, model, algorithm=algorithm, rounds=2)
    assert [row["used"] for row in result.history] == [0, 0]
    status = {str(row["client"]): str(row["status"]) for row in result.clients}
    assert "not finite" in status["lima"]
    assert "quorum" in status["pisa"]
    assert torch.equal(result.model.state_dict()["weight"], model.state_dict()["weight"])


# Data sets of torch


def test_a_torch_data_set_gives_the_run_of_its_tensors() -> None:
    tables = {name: Table(data) for name, data in CLIENTS.items()}
    assert weights(run(tables, test=Table(TEST))) == weights(run())


def test_random_transforms_are_drawn_from_the_seed_of_the_run() -> None:
    tables = {name: Table(data, noise=0.1) for name, data in CLIENTS.items()}
    results = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        model = linear()
        torch.manual_seed(noise)
        results.append(run(tables, model))
    assert weights(results[0]) == weights(results[1])
    assert results[0].history == results[1].history
    assert weights(results[0]) != weights(run())


class Noisy(Dataset[tuple[Tensor, int]]):
    """A random transform."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(4), index % 3


def test_a_noisy_test_set_gives_the_same_history_for_the_same_seed() -> None:
    torch.manual_seed(0)
    model, inputs, targets = nn.Linear(4, 3), torch.randn(6, 4), torch.arange(6) % 3
    histories = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        federation = Federation({"a": (inputs, targets), "b": Noisy()}, model, rounds=1, test=Noisy())
        histories.append(federation.run().history)
        assert torch.equal(before, torch.get_rng_state())
    assert histories[0] == histories[1]


class Broken(Noisy):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index > 1:
            raise OSError("the disk is gone")
        return super().__getitem__(index)


def test_a_client_that_fails_alone_in_its_round_does_not_end_the_run() -> None:
    good = {name: (torch.randn(6, 4), torch.arange(6) % 3) for name in "abcd"}
    federation = Federation({**good, "e": Broken()}, nn.Linear(4, 3), clients_per_round=1, rounds=20)
    failed = [row for row in federation.run().clients if "disk is gone" in str(row["status"])]
    assert {row["client"] for row in failed} == {"e"}
