"""What is reported where only heads travel: the scores of each client's own model, and bytes."""

import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch
from bodies import AVG, HEAD, KD, NAMES, SOLO, bits, data, federation, own_test, perceptron
from torch import Tensor, nn

import steelyard as sy
from steelyard.client.evaluation import predict
from steelyard.client.private_state import MemoryStates
from steelyard.data.clients import Client
from steelyard.metrics.scores import score
from steelyard.server.federation import advance
from steelyard.server.result import Result
from steelyard.server.rows import traffic
from steelyard.sharing import Head, WholeModel
from steelyard.sites import Answer
from steelyard.types import Broadcast, ClientId, Message

# Scores


def own(result: Result, client: ClientId) -> Tensor:
    return predict(result.model_of(client), own_test(client))


def test_scores_are_those_of_each_clients_own_model() -> None:
    result = federation(replace(KD, sharing=Head(adopt=False))).run()
    accuracies, balanced, shared = [], [], []
    for client in NAMES:
        guesses, labels = own(result, client).argmax(1).tolist(), own_test(client).labels.tolist()
        right = [guess == label for guess, label in zip(guesses, labels, strict=True)]
        accuracies.append(sum(right) / len(right))
        within = [
            statistics.fmean(hit for hit, label in zip(right, labels, strict=True) if label == wanted)
            for wanted in range(3)
        ]
        balanced.append(statistics.fmean(within))
        taught: Any = result.model_of(client)
        taught[-1] = result.model
        guesses = predict(taught, own_test(client)).argmax(1).tolist()
        shared.append(statistics.fmean(guess == label for guess, label in zip(guesses, labels, strict=True)))
    last = result.history[-1]
    assert last["client_accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert last["client_accuracy_balanced"] == pytest.approx(statistics.fmean(balanced))
    assert last["shared_accuracy"] == pytest.approx(statistics.fmean(shared))
    assert last["shared_accuracy"] != last["client_accuracy"]
    assert [row["accuracy"] for row in result.clients[-3:]] == pytest.approx(accuracies)
    assert "accuracy" not in last, "there is no common test set"


def test_balanced_accuracy_is_the_mean_over_the_classes_that_are_there() -> None:
    guesses = torch.eye(4)[torch.tensor([0, 0, 0, 1, 3, 1])].log()
    counts, recall = score(guesses, torch.tensor([0, 0, 0, 0, 3, 3]), detail=True).recall
    assert recall[counts > 0].tolist() == [3 / 4, 1 / 2]
    counts, recall = score(guesses, torch.tensor([2, 2, 2, 2, 2, 2]), detail=True).recall
    assert recall[counts > 0].tolist() == [0]


def test_on_a_common_test_set_the_score_is_the_mean_over_the_clients_models() -> None:
    members, test = {name: data(12, 5, seed) for seed, name in enumerate("ab")}, data(50, 5, 9)
    result = federation(KD, members, model=perceptron(), test=test).run()
    found = [predict(result.model_of(name), sy.examples(*test)).argmax(1) == test[1] for name in "ab"]
    assert result.accuracy == pytest.approx(float(torch.stack(found).double().mean()))
    assert found[0].tolist() != found[1].tolist()


@pytest.mark.parametrize("bodies", [True, False], ids=["not invited yet", "body without parameters"])
def test_what_is_shared_is_looked_at_also_where_nothing_is_kept_besides_the_head(bodies: bool) -> None:
    def model(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return perceptron(seed=seed) if bodies else nn.Sequential(nn.Flatten(), nn.Linear(5, 3))

    members = [Client(name, data(12, 5, 1), data(12, 5, 2), model=model(ord(name))) for name in "ab"]
    heads = federation(SOLO, members, clients_per_round=1 if bodies else 2)
    states = MemoryStates()
    with heads.open(states) as sites:
        server = heads.server(sites)
        _, state = advance(server, server.init())
        client = next((name for name in "ab" if not states.get(name)), "a")
        broadcast = Broadcast(2, state.server.message, evaluated=state.server.evaluated_model)
        (answer,) = sites.ask(broadcast, [], [client])
    wanted: Any = model(ord(client))
    nn.utils.vector_to_parameters(state.server.evaluated_model.mean, wanted[-1].parameters())
    test = heads.clients[client].test
    assert test is not None
    assert isinstance(answer, Answer)
    found, shared = answer.scores["shared"], score(predict(wanted, test), test.labels)
    assert found.values.tobytes() == shared.values.tobytes()


# Bytes


def test_bytes_are_those_of_heads_and_of_whole_models() -> None:
    floats = (5 * 4 + 4 + HEAD) + (7 * 6 + 6 + 4 * 6 + 6 * 4 + 4 + HEAD) + (2 * 4 + 2 + 8 * 4 + 4 + HEAD)
    for row in federation(AVG, rounds=1).run().history:
        assert row["bytes"] == 2 * 3 * 4 * HEAD
        assert row["bytes_of_whole_models"] == 2 * 4 * floats  # BatchNorm's counter would not travel
    (row,) = federation(AVG, rounds=1, clients_per_round=2).run().history
    assert row["bytes"] == 2 * 2 * 4 * HEAD


def test_a_posterior_costs_twice_the_bytes() -> None:
    message = Message(torch.zeros(HEAD), torch.zeros(HEAD))
    assert traffic(message, 1, [4 * 39]) == {
        "bytes": 2.0 * 8 * HEAD,
        "bytes_of_whole_models": 2.0 * 4 * 39,
    }


def test_whole_models_have_their_own_bytes_only() -> None:
    result = federation(replace(AVG, sharing=WholeModel()), {"a": data(20, 5, 0)}, model=perceptron()).run()
    assert result.history[-1]["bytes"] == 2 * 4 * sum(each.numel() for each in perceptron().parameters())
    assert "bytes_of_whole_models" not in result.history[-1]
    assert bits(result.model_of("a")) == bits(result.model)
