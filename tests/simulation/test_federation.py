"""Whole runs: reproducible to the byte, and honest in what they report."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_federation import CLIENTS, NAMES, TEST, blobs, linear, run, weights
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.data.clients import Client, Population
from steelyard.engines import Serial
from steelyard.nn.zoo import light_cnn
from steelyard.server.federation import MAX_EVALUATED
from steelyard.server.scoring import Evaluation
from steelyard.settings import Training
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Round

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
    assert result.history[0]["rejected"] == 0


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
    with federation.open() as sites:
        server = federation.server(sites)
    drawn = [server.sample(number) for number in range(1, 31)]
    for clients in drawn:
        assert len(clients) == len(set(clients)) == 5
        assert list(clients) == sorted(clients)
    assert len(set(drawn)) > 20
    assert {client for clients in drawn for client in clients} == set(MANY)
    assert drawn == [server.sample(number) for number in range(1, 31)]


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


@pytest.mark.filterwarnings("ignore::steelyard.errors.SelectionWarning")
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


@pytest.mark.filterwarnings("ignore::steelyard.errors.SelectionWarning")
def test_a_better_score_renews_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.1, 0.1, 0.2, 0.2, 0.2, 0.9])

    def scripted(*_: Any) -> Evaluation:
        return Evaluation({"accuracy": next(scores)}, "accuracy", {})

    monkeypatch.setattr("steelyard.server.federation.evaluate", scripted)
    result = run(test=None, rounds=50, patience=2)
    assert [row["accuracy"] for row in result.history] == [0.1, 0.1, 0.2, 0.2, 0.2]


def test_observers_are_told_of_every_round_once_and_in_order() -> None:
    seen: list[tuple[str, Round]] = []
    Federation(CLIENTS, linear(), test=TEST, rounds=3).run(
        lambda each: seen.append(("a", each)), lambda each: seen.append(("b", each))
    )
    assert [(who, each.number) for who, each in seen] == [
        ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3),
    ]  # fmt: skip
    assert all({"exchange", "aggregate", "evaluate"} <= each.seconds.keys() for _, each in seen)


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


# Many clients


def test_of_a_population_only_those_at_work_are_made() -> None:
    made: list[str] = []

    def make(name: str) -> Any:
        made.append(name)
        return blobs(6, int(name))

    people = Population((f"{number:06d}" for number in range(100_000)), make)
    result = run(people, rounds=3, clients_per_round=5, engine=Serial())
    invited = {row["client"] for row in result.clients if row["status"] == "used"}
    assert len(invited) == 15
    assert len(made) == len(set(made)) <= 15 + MAX_EVALUATED + 1, (
        "and the first, to see whether the model fits"
    )


def test_of_many_clients_the_same_sample_is_tested_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.server.federation.MAX_EVALUATED", 3)
    people = [Client(f"{number:02d}", blobs(6, number), blobs(9, number)) for number in range(12)]
    result = run(people, rounds=3, clients_per_round=12)
    tested = [(row["round"], row["client"]) for row in result.clients if row["accuracy"] is not None]
    assert [{client for number, client in tested if number == each} for each in (1, 2, 3)] == [
        {client for _, client in tested}
    ] * 3
    assert len(tested) == 9


def test_a_client_of_a_population_that_cannot_be_made_is_rejected_by_name() -> None:
    def make(name: str) -> Any:
        if name == "b":
            raise OSError("no such patient")
        return blobs(6, 1)

    result = run(Population(["a", "b", "c"], make), rounds=1, engine=Serial(), test=TEST)
    status = {row["client"]: row["status"] for row in result.clients}
    assert status == {"a": "used", "b": "failed while training: OSError: no such patient", "c": "used"}
