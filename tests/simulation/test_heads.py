"""Clients with bodies of their own: bodies learn and stay, and heads are shared as each strategy says."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from bodies import (
    AVG,
    HEAD,
    KD,
    NAMES,
    SOLO,
    STRATEGIES,
    bits,
    clients,
    data,
    federation,
    own_test,
    perceptron,
)
from torch import nn

import steelyard as sy
from steelyard.client.evaluation import predict
from steelyard.client.private_state import MemoryStates
from steelyard.combining import Rklb
from steelyard.data.clients import Client
from steelyard.engines import Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.objectives import Elbo
from steelyard.server.federation import advance
from steelyard.sharing import Head
from steelyard.types import State


def head_of(model: nn.Module) -> list[list[Any]]:
    """Of models that end in their head."""
    return [parameter.tolist() for parameter in list(model.parameters())[-2:]]


def body_of(model: nn.Module) -> list[list[Any]]:
    return [parameter.tolist() for parameter in list(model.parameters())[:-2]]


# What stays


@pytest.mark.parametrize("name", STRATEGIES)
def test_bodies_learn_and_stay(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    for each in clients():
        assert each.model is not None
        assert body_of(result.model_of(each.id)) != body_of(each.model)
        found = predict(result.model_of(each.id), own_test(each.id))
        assert float((found.argmax(1) == own_test(each.id).labels).double().mean()) > 0.5
    assert result.history[-1]["client_accuracy"] > result.history[0]["client_accuracy"]  # type: ignore[operator]


@pytest.mark.parametrize("adopt", [True, False])
def test_whoever_sits_a_round_out_keeps_what_it_has(adopt: bool) -> None:
    one = federation(replace(KD, sharing=Head(adopt=adopt)), clients_per_round=1, rounds=6)
    states = MemoryStates()
    with one.open(states) as sites:
        server = one.server(sites)
        state, present = server.init(), []
        for number in range(1, 7):
            before = {client: bits_of(states.get(client)) for client in NAMES if states.get(client)}
            _, state = advance(server, state)
            (invited,) = server.sample(number)
            after = {client: bits_of(states.get(client)) for client in NAMES if states.get(client)}
            assert {name: kept for name, kept in after.items() if name != invited} == {
                name: kept for name, kept in before.items() if name != invited
            }
            assert after[invited] != before.get(invited)
            present.append(invited)
    counts = {client: present.count(client) for client in NAMES}
    assert max(counts.values()) >= 2, "somebody comes back"
    assert sorted(after) == sorted(client for client in NAMES if counts[client])
    tracked = states.get("oslo")["body.1.num_batches_tracked"]
    assert int(tracked) == 3 * counts["oslo"], "three batches each time: it went on from where it was"


def bits_of(kept: State) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in kept.items()}


def test_the_models_that_clients_bring_are_not_changed() -> None:
    members = clients()
    before = [bits(each.model) for each in members if each.model is not None]
    federation(KD, members).run()
    assert [bits(each.model) for each in members if each.model is not None] == before
    assert all(each.model is not None and each.model.training for each in members)


# Strategies


def test_solo_does_not_depend_on_the_others() -> None:
    together = federation(SOLO).run()
    for each in clients():
        alone = federation(SOLO, [each]).run()
        assert bits(alone.model_of(each.id)) == bits(together.model_of(each.id))


@pytest.mark.parametrize("name", ["avg", "kd", "avgkd", "anchor"])
def test_all_others_do(name: str) -> None:
    together, alone = federation(STRATEGIES[name]).run(), federation(STRATEGIES[name], clients()[1:2]).run()
    assert bits(alone.model_of("oslo")) != bits(together.model_of("oslo"))


@pytest.mark.parametrize("name", ["avg", "avgkd"])
def test_who_adopts_ends_with_the_head_that_is_released(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    assert isinstance(result.model, nn.Linear)
    assert all(head_of(result.model_of(client)) == head_of(result.model) for client in NAMES)
    assert result.history[-1]["shared_accuracy"] == pytest.approx(result.history[-1]["client_accuracy"])


@pytest.mark.parametrize("name", ["solo", "kd", "anchor"])
def test_who_does_not_keeps_a_head_of_its_own(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    heads = [head_of(result.model), *(head_of(result.model_of(client)) for client in NAMES)]
    assert all(heads[place] not in heads[:place] for place in range(4))
    sizes = torch.tensor([20.0, 21.0, 22.0])
    means = torch.stack([torch.tensor(heads[place][0]) for place in (1, 2, 3)])
    wanted = (means * (sizes / sizes.sum()).view(3, 1, 1)).sum(0)
    torch.testing.assert_close(torch.tensor(heads[0][0]), wanted)


@pytest.mark.parametrize(("common", "same"), [(True, True), (False, False)])
def test_clients_begin_with_one_head_or_each_with_its_own(common: bool, same: bool) -> None:
    waiting = replace(KD, sharing=Head(adopt=False, common=common), training=sy.Training(steps=0))
    result = federation(waiting, rounds=1).run()
    first = clients()[0].model
    assert first is not None
    assert (head_of(result.model_of("turin")) == head_of(first)) == same
    assert head_of(result.model_of("ghent")) == head_of(first)


def test_a_client_without_a_model_has_that_of_the_federation() -> None:
    members = [Client("a", data(20, 5, 1), data(10, 5, 2)), *clients()[1:]]
    result = federation(KD, members, model=perceptron(seed=8)).run()
    assert [len(list(result.model_of(each).modules())) for each in ("a", "oslo", "turin")] == [4, 7, 7]
    assert not torch.equal(result.model_of("a")[0].weight, perceptron(seed=8)[0].weight)  # type: ignore[index]


def test_bayesian_heads_on_bodies_of_all_kinds_are_merged_with_their_variances() -> None:
    members = [
        Client(each.id, each.train, each.test, model=sy.bayesian(each.model, last=1, samples=3))
        for each in clients()
        if each.model is not None
    ]
    algorithm = sy.Algorithm(
        Elbo(),
        Head(posterior=True),
        combining=Rklb(),
        training=sy.Training(optimizer="adam", lr=0.02, epochs=3),
    )
    heads, states = federation(algorithm, members, rounds=4), MemoryStates()
    with heads.open(states) as sites:
        server = heads.server(sites)
        state, rounds = server.init(), []
        before = state.server.message
        while not server.is_over(state):
            completed, state = advance(server, state)
            rounds += [] if completed is None else [completed.metrics]
    assert len(rounds) == 4
    variance = state.server.message.variance
    assert variance is not None
    assert before.variance is not None
    assert variance.shape == (HEAD,)
    assert bool(((variance > 0) & variance.isfinite()).all())
    assert bool((variance != before.variance).all())
    assert rounds[-1]["loss"] < rounds[0]["loss"]
    assert rounds[-1]["client_accuracy"] > 0.6
    assert rounds[-1]["bytes"] == 2 * 3 * 8 * HEAD
    sigma = [value for name, value in rounds[-1].items() if name.startswith("sigma.")]
    assert len(sigma) == 1
    assert all(states.get(client) for client in NAMES)
    assert all(body.startswith("body.") for client in NAMES for body in states.get(client))


# Engines


@pytest.mark.parametrize("name", ["kd", "avg"])
def test_a_pool_gives_the_same_bits(name: str) -> None:
    settings: dict[str, Any] = {"clients_per_round": 2, "rounds": 3}
    serial, pool = (
        federation(STRATEGIES[name], engine=engine, **settings).run() for engine in (Serial(), Pool(2))
    )
    assert pool.history == serial.history
    assert pool.clients == serial.clients
    assert bits(pool.model) == bits(serial.model)
    for client in NAMES:
        assert bits(pool.model_of(client)) == bits(serial.model_of(client))
    assert "temperature" in serial.history[-1], "what is held out is looked at with the client's own model"


def test_models_of_their_own_are_not_trained_together_with_others() -> None:
    members = [Client("a", data(12, 5, 1)), Client("b", data(12, 5, 2), model=perceptron(seed=9))]
    engine = Vectorized(workers=1)
    try:
        result = federation(AVG, members, model=perceptron(), engine=engine, rounds=1).run()
    except InputError:
        return
    wanted = federation(AVG, members, model=perceptron(), rounds=1).run()
    for mine, theirs in zip(
        result.model_of("b").parameters(), wanted.model_of("b").parameters(), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
