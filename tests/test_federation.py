"""Whole runs: reproducible to the byte, robust against clients that fail, and honest in what they report."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.aggregation import Server
from steelyard.algorithm import Algorithm
from steelyard.data.clients import Client
from steelyard.errors import ClientError
from steelyard.federation import Federation, Result
from steelyard.nn.zoo import light_cnn
from steelyard.optimizers import Training
from steelyard.types import Round

Data = tuple[Tensor, Tensor]


def blobs(count: int, seed: int) -> Data:
    """Three classes around three corners."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    corners = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return corners[labels] + torch.randn(count, 2, generator=random), labels


NAMES = ("lima", "oslo", "pisa", "turin")
CLIENTS: dict[str, Any] = {name: blobs(12 + 6 * number, number) for number, name in enumerate(NAMES)}
TEST = blobs(60, 99)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 3)


def run(clients: Any = CLIENTS, model: nn.Module | None = None, **settings: Any) -> Result:
    settings = {"test": TEST, "rounds": 3, **settings}
    return Federation(clients, model or linear(), **settings).run()


def weights(result: Result) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in result.model.state_dict().items()}


class Table(Dataset[tuple[Tensor, int]]):
    """A torch data set that may add noise to every read and may fail."""

    def __init__(self, data: Data, noise: float = 0.0, broken: bool = False) -> None:
        self.data, self.noise, self.broken = data, noise, broken

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self.broken and row > 1:  # the first rows are read when the federation is built
            raise OSError(f"disk error at row {row}")
        inputs = self.data[0][row]
        return inputs + self.noise * torch.randn(inputs.shape), int(self.data[1][row])


# Reproducibility


def test_the_same_seed_gives_the_same_run_to_the_byte_and_another_seed_another() -> None:
    settings: dict[str, Any] = {"clients_per_round": 2, "rounds": 4}
    first = run(**settings)
    torch.manual_seed(123)  # what the caller draws does not matter
    torch.rand(10)
    again, other = run(**settings), run(seed=1, **settings)
    assert first.history == again.history
    assert first.clients == again.clients
    assert weights(first) == weights(again)
    assert weights(first) != weights(other)
    assert first.history != other.history


def test_a_federation_can_run_twice() -> None:
    federation = Federation(CLIENTS, linear(), test=TEST, rounds=2)
    first, second = federation.run(), federation.run()
    assert first.history == second.history
    assert weights(first) == weights(second)


def test_the_order_in_which_clients_are_given_does_not_matter() -> None:
    first = run(clients_per_round=3)
    turned = run(dict(reversed(CLIENTS.items())), clients_per_round=3)
    listed = run(
        [Client(name, CLIENTS[name]) for name in ("pisa", "lima", "turin", "oslo")], clients_per_round=3
    )
    for other in (turned, listed):
        assert first.history == other.history
        assert first.clients == other.clients
        assert weights(first) == weights(other)


def test_the_state_of_the_global_generator_survives_a_run() -> None:
    model = nn.Sequential(linear(), nn.Dropout(0.5))
    before = torch.get_rng_state()
    run(model=model)
    assert torch.equal(torch.get_rng_state(), before)


# What is learned


def test_one_full_batch_step_of_fedavg_is_a_step_on_the_pooled_data() -> None:
    algorithm = Algorithm(training=Training(lr=0.5, batch_size=1000))
    found = run(algorithm=algorithm, rounds=3)
    model = linear()
    inputs = torch.cat([data[0] for data in CLIENTS.values()])
    labels = torch.cat([data[1] for data in CLIENTS.values()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    logits = model(TEST[0])
    assert found.accuracy == pytest.approx((logits.argmax(1) == TEST[1]).double().mean().item())
    assert found.history[-1]["nll"] == pytest.approx(F.cross_entropy(logits, TEST[1]).item(), rel=1e-5)


def test_training_pays() -> None:
    result = run(rounds=20)
    assert result.accuracy > 0.8
    assert result.history[-1]["loss"] < result.history[0]["loss"]  # type: ignore[operator]
    assert not result.model.training


def test_the_rows_say_who_counted_how_much() -> None:
    result = run(rounds=1)
    counts = [12, 18, 24, 30]
    assert [row["client"] for row in result.clients] == list(NAMES)
    assert [row["num_examples"] for row in result.clients] == counts
    assert [row["weight"] for row in result.clients] == pytest.approx([n / 84 for n in counts])
    assert all(row["status"] == "used" and row["round"] == 1 for row in result.clients)
    shares = [row["weight"] * row["loss"] for row in result.clients]  # type: ignore[operator]
    assert result.history[0]["loss"] == pytest.approx(sum(shares))
    assert result.history[0]["used"] == 4
    assert result.history[0]["refused"] == 0


def test_the_model_of_the_user_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = run(model=model)
    assert result.model is not model
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not torch.equal(result.model.state_dict()["0.weight"], before["0.weight"])


def test_what_the_user_does_to_the_model_later_does_not_reach_the_run() -> None:
    model = linear()
    federation = Federation(CLIENTS, model, test=TEST, rounds=3)
    nn.init.zeros_(model.weight)  # type: ignore[arg-type]
    assert weights(federation.run()) == weights(run())


def test_batch_norm_shares_its_statistics_and_keeps_its_counters() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    result = run({**CLIENTS, "odd": blobs(33, 8)}, model=model)  # 32 and one left over
    norm = result.model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.dtype == torch.int64
    assert norm.num_batches_tracked == 0
    assert norm.running_mean is not None
    assert norm.running_mean.count_nonzero() == 4
    assert result.history[-1]["used"] == 5


# Who takes part

MANY: dict[str, Any] = {f"client-{number:02d}": blobs(6, number) for number in range(12)}


def test_a_part_of_the_clients_is_drawn_anew_every_round() -> None:
    federation = Federation(MANY, linear(), clients_per_round=5, rounds=1)
    drawn = [federation.sample(number) for number in range(1, 31)]
    for clients in drawn:
        assert len(clients) == len(set(clients)) == 5
        assert list(clients) == sorted(clients)
    assert len(set(drawn)) > 20
    assert {client for clients in drawn for client in clients} == set(MANY)
    assert drawn == [federation.sample(number) for number in range(1, 31)]


def test_only_invited_clients_train_and_the_last_round_shows_the_others_idle() -> None:
    result = run(MANY, clients_per_round=5, rounds=3)
    by_round = [[row for row in result.clients if row["round"] == number] for number in (1, 2, 3)]
    assert [len(rows) for rows in by_round] == [5, 5, 12]
    assert all(row["status"] == "used" for rows in by_round[:2] for row in rows)
    last = [row["status"] for row in by_round[2]]
    assert (last.count("used"), last.count("idle")) == (5, 7)
    assert {row["client"] for row in by_round[2]} == set(MANY)
    assert [row["used"] for row in result.history] == [5, 5, 5]


def test_idle_clients_are_scored_too() -> None:
    clients = [Client(name, data, TEST) for name, data in CLIENTS.items()]
    result = run(clients, clients_per_round=1, rounds=1)
    assert [row["accuracy"] for row in result.clients] == [result.accuracy] * 4


# Evaluation and stopping


def test_the_model_is_evaluated_on_every_nth_round_and_the_last() -> None:
    result = run(rounds=7, evaluate_every=3)
    assert [row["round"] for row in result.history if "accuracy" in row] == [3, 6, 7]
    assert all("loss" in row for row in result.history)
    assert weights(result) == weights(run(rounds=7))


STILL = Algorithm(training=Training(lr=1e-12))  # nothing ever gets better after the first evaluation


@pytest.mark.parametrize(("evaluate_every", "last"), [(1, 4), (2, 8)])
@pytest.mark.parametrize("common", [True, False])
def test_patience_counts_evaluations_without_a_better_score(
    evaluate_every: int, last: int, common: bool
) -> None:
    clients = [Client(name, data, blobs(30, 7)) for name, data in CLIENTS.items()]
    result = run(
        clients,
        algorithm=STILL,
        test=TEST if common else None,
        rounds=50,
        clients_per_round=3,
        patience=3,
        evaluate_every=evaluate_every,
    )
    assert result.history[-1]["round"] == last
    assert [row["status"] for row in result.clients][-1] == "idle", "the last round, though not the 50th"


def test_a_better_score_renews_the_patience() -> None:
    scores = iter([0.1, 0.1, 0.2, 0.2, 0.2, 0.9])

    class Scripted(Federation):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.scorer = self  # type: ignore[assignment]

        def score(self, predict: Any) -> tuple[Mapping[str, float], Mapping[str, float]]:
            return {"accuracy": next(scores)}, {}

    result = Scripted(CLIENTS, linear(), rounds=50, patience=2).run()
    assert [row["accuracy"] for row in result.history] == [0.1, 0.1, 0.2, 0.2, 0.2]


def test_observers_are_told_of_every_round_once_and_in_order() -> None:
    seen: list[tuple[str, Round]] = []
    Federation(CLIENTS, linear(), test=TEST, rounds=3).run(
        lambda each: seen.append(("a", each)), lambda each: seen.append(("b", each))
    )
    assert [(who, each.number) for who, each in seen] == [
        ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3),
    ]  # fmt: skip
    assert all({"train", "aggregate", "evaluate"} <= each.seconds.keys() for _, each in seen)


# Clients that fail


def test_a_client_whose_data_fails_is_set_aside_by_name_and_the_run_goes_on() -> None:
    broken = {**CLIENTS, "rome": Table(blobs(20, 5), broken=True)}
    result, without = run(broken), run(CLIENTS)
    rows = [row for row in result.clients if row["client"] == "rome"]
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert "failed while training: OSError: disk error at row" in str(row["status"])
        assert row["weight"] == 0
    assert [row["refused"] for row in result.history] == [1, 1, 1]
    assert weights(result) == weights(without)


def test_when_every_client_fails_the_error_names_client_round_and_stage() -> None:
    broken = {name: Table(data, broken=True) for name, data in CLIENTS.items()}
    with pytest.raises(
        ClientError, match=r"client 'lima' failed in round 1 while training: OSError: disk"
    ) as caught:
        run(broken)
    error = caught.value
    assert (error.client, error.round, error.stage) == ("lima", 1, "training")


def test_a_client_that_diverges_is_set_aside_and_the_model_stays_finite() -> None:
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


def test_buffers_that_do_not_travel_do_not_leak_from_client_to_client() -> None:
    class Drifting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += self.training
            return self.layer(inputs) * (1 + self.calls)

    data = (torch.randn(6, 4), torch.arange(6) % 3)
    first, second = Federation({"a": data, "b": data}, Drifting(), rounds=1).run().clients
    assert first["norm"] == pytest.approx(second["norm"], rel=1e-3)


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    torch.manual_seed(0)
    data = {name: (torch.randn(40, 1, 16, 16), torch.arange(40) % 3) for name in "abc"}
    model = light_cnn((1, 16, 16), 3)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(Federation(data, model, rounds=2, test=data["a"]).run())
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert results[0].history == results[1].history
    assert results[0].clients == results[1].clients
