"""Algorithms: combinations that cannot work are refused at construction."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.combining import Combiner, Mean, Median, TrimmedMean
from steelyard.errors import InputError
from steelyard.objectives import Auto, CrossEntropy, Objective, Proximal
from steelyard.objectives.base import Local, LocalLoss
from steelyard.server.federation import advance
from steelyard.settings import Server, Training
from steelyard.sharing import WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Combined, RoundInfo, Stack, State, Weighed
from steelyard.weighing import IcovEm, IcovMle, IcovVb, Nnm, Samples, Weigher
from steelyard.weighing.geometry import Geometry


class Directed(Objective):
    """Records the direction of each round."""

    needs = frozenset({"direction"})

    def __init__(self) -> None:
        self.received: list[tuple[int, Tensor]] = []

    def bind(self, local: Local) -> LocalLoss:
        self.received.append((local.broadcast.round, local.broadcast.offers["direction"].clone()))
        return CrossEntropy().bind(local)


class Compass(Weigher):
    """Equal weights; offers the mean update of the round before."""

    offers = frozenset({"direction"})

    def init(self) -> State:
        return {"last": torch.zeros(8)}

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
        return Weighed(weights, {"last": geometry.mix(weights)})

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["last"]}


class Precise(Combiner):
    needs = frozenset({"mean", "variance"})

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        raise AssertionError("never reached")


class Posterior(WholeModel):
    slots = frozenset({"mean", "variance"})


def test_the_defaults_are_fedavg() -> None:
    algorithm = Algorithm()
    assert algorithm.objective == Auto()  # cross-entropy where targets are classes
    assert algorithm.sharing == WholeModel()
    assert algorithm.weighing == Samples()
    assert algorithm.combining == Mean()
    assert algorithm.training == Training()
    assert algorithm.server == Server()


def test_an_objective_that_needs_what_the_rule_does_not_offer_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError) as caught:
        Algorithm(objective=Directed())
    message = str(caught.value)
    assert "objective Directed needs direction" in message
    assert "rule Samples does not offer it" in message
    assert message.endswith(".")
    assert "\n" not in message
    assert message.count(". ") == 0


def test_a_combiner_that_needs_a_variance_is_refused_where_none_is_sent() -> None:
    with pytest.raises(InputError, match=r"rule Precise needs the variance .* WholeModel does not send it"):
        Algorithm(combining=Precise())
    Algorithm(combining=Precise(), sharing=Posterior())


def test_an_offered_vector_reaches_the_objective_of_every_client_in_every_round() -> None:
    objective = Directed()
    random = torch.Generator().manual_seed(0)
    clients = {name: (torch.randn(6, 3, generator=random), torch.arange(6) % 2) for name in ("oslo", "turin")}
    algorithm = Algorithm(objective=objective, weighing=Compass(), training=Training(lr=0.5))
    federation = Federation(clients, nn.Linear(3, 2), algorithm, rounds=3)
    with federation.open() as sites:
        server = federation.server(sites)
        state = server.init()
        before = [state.server.message.mean]
        for _ in range(3):
            _, state = advance(server, state)
            before.append(state.server.message.mean)
    assert [number for number, _ in objective.received] == [1, 1, 2, 2, 3, 3]
    moves = [torch.zeros(8), before[1] - before[0], before[2] - before[1]]
    for number, direction in objective.received:
        torch.testing.assert_close(direction, moves[number - 1])
    assert float(objective.received[-1][1].norm()) > 0


def test_a_wrapped_objective_keeps_its_needs() -> None:
    class Needy(CrossEntropy):
        needs = frozenset({"direction"})

    with pytest.raises(InputError, match="direction"):
        Algorithm(objective=Proximal(base=Needy()))


def test_a_posterior_is_not_merged_by_a_rule_that_would_lose_its_variance() -> None:
    class Posterior(WholeModel):
        slots = frozenset({"mean", "variance"})

    with pytest.raises(InputError, match="would lose it"):
        Algorithm(sharing=Posterior())


@pytest.mark.parametrize("rule", [IcovMle, IcovVb, IcovEm])
@pytest.mark.parametrize("combining", [Median(), TrimmedMean()])
def test_negative_weights_are_refused_where_they_have_no_meaning(rule: Any, combining: Any) -> None:
    name = type(combining).__name__
    for weighing in (rule(), Nnm(rule())):
        with pytest.raises(InputError, match=f"negative weights, and combining rule {name} cannot use them"):
            Algorithm(weighing=weighing, combining=combining)
    Algorithm(weighing=rule(clip=True), combining=combining)
    Algorithm(weighing=Nnm(rule(clip=True)), combining=combining)
    Algorithm(weighing=rule())
