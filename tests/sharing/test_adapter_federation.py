"""Federations of adapters: exact merging, models of several ranks, attacks, engines, resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lora_models import clients, network
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.attacks import SignFlip
from steelyard.combining import LowRank, Mean, Median, ProductCombiner
from steelyard.combining.products import Merged
from steelyard.data.clients import Client
from steelyard.engines import Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.layout import Pair
from steelyard.objectives import Alignment
from steelyard.runs.state_file import load_state, save_state
from steelyard.server.federation import advance
from steelyard.settings import Server, Training
from steelyard.sharing import Adapter, Trainable, WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.weighing import Concord, Consensus, Majority, Samples

TRAINING = Training(lr=0.5, batch_size=10)


def federation(parties: Any = None, model: nn.Module | None = None, **settings: Any) -> Federation:
    own = {"sharing": Adapter(), "combining": LowRank(), "training": TRAINING}
    algorithm = Algorithm(**{**own, **{name: settings.pop(name) for name in [*settings] if name in PARTS}})
    return Federation(parties or clients(), model or network(2), algorithm, **{"rounds": 3, **settings})


PARTS = ("sharing", "weighing", "combining", "training", "server", "objective")


def weights_of(model: nn.Module) -> list[Tensor]:
    """The whole weight of each layer: the frozen one and the adapter."""
    wholes = (
        layer.base_layer.weight
        + layer.scaling["default"] * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        for layer in (model[0], model[2])
    )
    return [whole.detach() for whole in wholes]


def test_with_enough_rank_the_merged_weights_are_the_mean_of_the_clients_weights() -> None:
    alone = [federation({name: data}, rounds=1).run().model for name, data in clients().items()]
    result = federation(rounds=1, sharing=Adapter(rank=10)).run()
    for found, *each in zip(weights_of(result.model), *map(weights_of, alone), strict=True):
        torch.testing.assert_close(found, torch.stack(each).mean(dim=0))
    assert float(result.history[0]["rank_error"]) < 1e-6
    short = federation(rounds=1).run()
    assert float(short.history[0]["rank_error"]) > 0.001
    separate = federation(rounds=1, combining=Mean()).run()
    first = torch.stack([weights_of(model)[0] for model in alone]).mean(dim=0)
    off = [float((weights_of(run.model)[0] - first).norm()) for run in (short, separate)]
    assert 0 < off[0] < off[1]


def test_frozen_weights_do_not_travel_and_the_record_says_what_whole_models_would_take() -> None:
    run = federation()
    result = run.run()
    size = run.workload.learner.layout.size
    assert result.history[-1]["bytes"] == 2 * 4 * 4 * size
    whole = sum(parameter.numel() for parameter in network(2).parameters())
    assert result.history[-1]["bytes_of_whole_models"] == 2 * 4 * 4 * whole
    assert torch.equal(result.model[0].base_layer.weight, network(2)[0].base_layer.weight)


@pytest.mark.parametrize("combining", [LowRank(), Mean(), Median()])
def test_clients_with_models_of_their_own_rank_train_together(combining: Any) -> None:
    ranks = {"lima": 1, "oslo": 2, "turin": 3, "york": 4}
    test = clients(("test",))["test"]

    def parties(order: list[str]) -> list[Client]:
        data = clients()
        return [Client(name, data[name], model=network(ranks[name], alpha=ranks[name])) for name in order]

    settings = {"model": network(4), "sharing": Adapter(rank=4), "combining": combining, "test": test}
    result = federation(parties([*ranks]), **settings).run()
    assert [row["status"] for row in result.clients] == ["used"] * 12
    assert result.history[-1]["accuracy"] > result.history[0]["accuracy"] - 0.05
    again = federation(parties([*reversed(ranks)]), engine=Pool(workers=2), **settings).run()
    for found, expected in zip(weights_of(again.model), weights_of(result.model), strict=True):
        assert torch.equal(found, expected)
    expected = result.model(test[0])
    for name in ranks:
        torch.testing.assert_close(result.model_of(name)(test[0]), expected, rtol=1e-4, atol=1e-5)


class Own(ProductCombiner):
    """A rule of one's own that merges as `LowRank` does."""

    def merge(self, updates: Tensor, factors: Tensor, start: Tensor, pairs: tuple[Pair, ...]) -> Merged:
        return LowRank().merge(updates, factors, start, pairs)


def test_a_rule_of_ones_own_may_merge_products() -> None:
    found, expected = (federation(combining=rule).run() for rule in (Own(), LowRank()))
    assert torch.equal(found.state.server.message.mean, expected.state.server.message.mean)
    assert found.history == expected.history
    with pytest.raises(InputError, match="Own merges products of LoRA factors"):
        Algorithm(combining=Own())


def test_a_rank_larger_than_the_models_keeps_what_they_cannot_hold() -> None:
    test = clients(("test",))["test"]
    result = federation(sharing=Adapter(rank=6), test=test).run()
    assert max(float(row["rank_error"]) for row in result.history) < 1e-6
    frozen = result.model[0].base_layer.weight
    assert not torch.allclose(frozen, network(2)[0].base_layer.weight), "the rest is in the frozen weight"
    found = (result.model(test[0]).argmax(dim=1) == test[1]).double().mean()
    assert float(found) == pytest.approx(result.history[-1]["accuracy"])


def test_every_engine_gives_the_same() -> None:
    for sharing in (Adapter(), Adapter(rank=5)):
        serial, pool, together = (
            federation(sharing=sharing, weighing=Majority(), engine=engine).run()
            for engine in (Serial(), Pool(workers=2), Vectorized(workers=1))
        )
        assert torch.equal(serial.state.server.message.mean, pool.state.server.message.mean)
        for found, expected in zip(weights_of(together.model), weights_of(serial.model), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_reversed_client_has_no_weight() -> None:
    names = ("lima", "oslo", "quito", "turin", "york")
    run = federation(
        clients(names, apart=0.0), weighing=Majority(), adversaries={"quito": SignFlip()}, rounds=5
    )
    rows = run.run().clients
    mean = {name: sum(row["weight"] for row in rows if row["client"] == name) / 5 for name in names}
    assert mean.pop("quito") < 0.02
    assert min(mean.values()) > 0.1


@pytest.mark.parametrize("sharing", [Adapter(), Adapter(rank=5)])
def test_a_resumed_run_ends_with_the_same_bits(sharing: Adapter, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"sharing": sharing, "weighing": Majority(), "rounds": 4}
    expected = federation(**settings).run().state.server.message.mean
    run = federation(**settings)
    with run.open() as sites:
        server = run.server(sites)
        state = server.init()
        for _ in range(2):
            _, state = advance(server, state)
    save_state(state, tmp_path / "state")
    found = federation(**settings).run(state=load_state(tmp_path / "state"))
    assert torch.equal(found.state.server.message.mean, expected)


def test_a_run_is_not_resumed_with_another_frozen_weight_or_scaling() -> None:
    result = federation(rounds=1).run()
    other = network(2)
    other[0].base_layer.weight.data += 1
    with pytest.raises(InputError, match="the first values of what is not shared was"):
        federation(model=other).resume(result)
    with pytest.raises(InputError, match="model was"):
        federation(model=network(2, alpha=8.0)).resume(result)
    assert federation(model=network(2, seed=5)).resume(result, rounds=2).state.round == 2


def test_names_in_a_spec_lead_here() -> None:
    from steelyard import components

    assert components.build("sharing", {"name": "adapter", "rank": 8}) == Adapter(rank=8)
    assert components.build("sharing", {"name": "trainable"}) == Trainable()
    assert components.build("combining", {"name": "low-rank"}) == LowRank()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"sharing": WholeModel()}, "merges products of LoRA factors, and sharing WholeModel sends none"),
        ({"sharing": Trainable()}, "take the sharing `adapter`"),
        ({"weighing": Consensus()}, "weighing rule Consensus needs the updates as vectors"),
        ({"weighing": Concord()}, "weighing rule Concord needs the updates as vectors"),
        ({"server": Server(momentum=0.9)}, "server.momentum is 0.9"),
        ({"server": Server(average=3)}, "server.average is 3"),
        ({"weighing": Concord(), "combining": Mean(), "objective": Alignment()}, "sends factors"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_sentence(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        Algorithm(**{"sharing": Adapter(), "combining": LowRank(), **settings})
    assert str(caught.value).count(". ") == 0
    Algorithm(sharing=Adapter(), weighing=Concord())
    Algorithm(
        sharing=Adapter(), combining=LowRank(), weighing=Samples(), server=Server(lr=0.5, clip="median")
    )


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1)])
def test_a_client_of_another_rank_needs_a_common_rank(ranks: tuple[int, int]) -> None:
    parties = [Client("oslo", clients()["oslo"], model=network(ranks[0])), Client("york", clients()["york"])]
    match = (
        rf"'oslo' brings .*, but '0\.lora_A\.default\.weight' has rank {ranks[0]} there, and rank {ranks[1]} "
        "in the federation's model; set a common `rank`, such as 2, in the sharing `adapter`"
    )
    with pytest.raises(InputError, match=match):
        Federation(parties, network(ranks[1]), Algorithm(sharing=Adapter()))
    Federation(parties, network(ranks[1]), Algorithm(sharing=Adapter(rank=2)))


def test_a_client_that_trains_other_tensors_is_refused() -> None:
    more, wide = network(2), network(2)
    more[0].base_layer.bias.requires_grad_(True)
    wide[2].base_layer.bias = nn.Parameter(torch.zeros(1))
    for model, match in (
        (more, r"'0\.base_layer\.bias' is trained in its model only; train and adapt the same layers"),
        (wide, r"'2\.base_layer\.bias' is 1 there, and 3 in the federation's model"),
    ):
        parties = [Client("oslo", clients()["oslo"], model=model), Client("york", clients()["york"])]
        with pytest.raises(InputError, match=match):
            Federation(parties, network(2), Algorithm(sharing=Adapter()))


def test_models_with_other_frozen_weights_are_refused_by_name() -> None:
    other = network(1)
    with torch.no_grad():
        other[2].base_layer.weight[0, 0] += 1
    parties = [Client("oslo", clients()["oslo"], model=other), Client("york", clients()["york"])]
    with pytest.raises(InputError, match=r"'oslo' .* frozen parameter '2.base_layer.weight' is not that of"):
        federation(parties, sharing=Adapter(rank=2))
    own = [Client(name, data, model=network(1)) for name, data in clients().items()]
    with pytest.raises(InputError, match="give it the model with the largest rank"):
        Federation(own, None, Algorithm(sharing=Adapter()))


def test_in_your_own_loop_the_rule_says_what_it_needs() -> None:
    with pytest.raises(InputError, match=r"call steelyard\.combining\.LowRank"):
        sy.combine([[0.0, 1.0], [1.0, 0.0]], rule="low-rank")
