"""Alignment beside other objectives, in a spec, and in a federation."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aligning import (
    FORMS,
    INPUTS,
    TARGETS,
    bind,
    convolutions,
    full,
    network,
    penalty,
    some_direction,
    trained,
    vector,
    wander,
)
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.client.learner import Learner
from steelyard.components import build, complete
from steelyard.data.examples import examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.engines.joint_training import trial_batch, why_not_stacked
from steelyard.errors import InputError
from steelyard.layout import flatten, layout_of, tensors_of
from steelyard.objectives import Alignment, CrossEntropy, Objective, Proximal, SquaredError
from steelyard.server.result import Result
from steelyard.settings import Training
from steelyard.sharing import WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Samples, Weigher
from steelyard.weighing.geometry import Geometry

# Among others


@pytest.mark.parametrize("form", FORMS)
def test_it_goes_together_with_proximal_in_either_order(form: Any) -> None:
    found = []
    for objective in (Alignment(0.7, form, Proximal(0.3)), Proximal(0.3, Alignment(0.7, form))):
        model = network()
        direction, start = some_direction(model), vector(model)
        local_loss = bind(objective, model, direction)
        wander(model)
        found.append(full(model, local_loss))
    loss = F.cross_entropy(model(INPUTS), TARGETS) + 0.7 * penalty(model, form, direction, start)
    parts = torch.autograd.grad(loss, trained(model))
    wanted = torch.cat([part.flatten() for part in parts]) + 0.3 * (vector(model) - start)
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=1e-9, atol=1e-11)


def test_it_wants_a_direction_and_what_its_base_wants() -> None:
    class Greedy(CrossEntropy):
        needs = frozenset({"variates"})

    assert Alignment().needs == {"direction"}
    assert Alignment(base=Greedy()).needs == {"direction", "variates"}
    assert [Alignment().targets, Alignment(base=SquaredError()).targets] == ["classes", "numbers"]


@pytest.mark.parametrize("strength", [-1e-9, float("inf"), float("nan")])
def test_a_strength_that_has_no_meaning_is_named(strength: float) -> None:
    with pytest.raises(InputError, match=rf"'alignment': strength must be .* at least 0, not {strength}\."):
        Alignment(strength)


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(InputError, match=r"unknown form 'descend' of objective 'alignment': .*'descent'"):
        Alignment(form="descend")  # type: ignore[arg-type]


def test_a_spec_can_ask_for_it() -> None:
    choice = {"name": "alignment", "form": "update", "base": {"name": "proximal", "mu": 0.5}}
    assert complete("objectives", {"name": "alignment"})["strength"] == 1e-6
    assert build("objectives", choice) == Alignment(form="update", base=Proximal(0.5))
    with pytest.raises(InputError, match="form"):
        complete("objectives", {"name": "alignment", "form": "sideways"})


# In a federation


class Compass(Weigher):
    """Equal weights; offers the mean update of the round before, and nothing in the first."""

    offers = frozenset({"direction"})

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
        return Weighed(weights, {"last": geometry.mix(weights)})

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["last"]} if state else {}


def federation(objective: Objective, engine: Engine, rounds: int = 3) -> Federation:
    random = torch.Generator().manual_seed(0)
    clients = {
        name: (torch.randn(20, 2, 12, 12, generator=random), torch.randint(0, 3, (20,), generator=random))
        for name in ("oslo", "porto", "turin")
    }
    torch.manual_seed(0)
    model = nn.Sequential(convolutions(nn.ReLU).float(), nn.BatchNorm1d(3))
    algorithm = Algorithm(objective, weighing=Compass(), training=Training(lr=0.1, batch_size=8))
    return Federation(clients, model, algorithm, rounds=rounds, engine=engine)


def weights(result: Result) -> Tensor:
    return flatten(tensors_of(result.model), layout_of(result.model))


@pytest.mark.parametrize("form", FORMS)
def test_serial_and_pool_give_the_same_bits_and_the_first_round_is_plain(form: Any) -> None:
    objective = Alignment(0.1, form)
    alone, together = (federation(objective, engine).run() for engine in (Serial(), Pool(workers=2)))
    assert torch.equal(weights(alone), weights(together))
    assert alone.clients == together.clients
    plain = federation(CrossEntropy(), Serial()).run()
    assert not torch.equal(weights(alone), weights(plain))
    first, usual = (federation(each, Serial(), rounds=1).run() for each in (objective, CrossEntropy()))
    assert torch.equal(weights(first), weights(usual))


def test_a_rule_that_offers_no_direction_is_refused() -> None:
    with pytest.raises(InputError, match=r"objective Alignment needs direction .* Samples does not offer it"):
        Algorithm(Alignment(), weighing=Samples())
    with pytest.raises(InputError, match="direction"):
        Algorithm(Proximal(base=Alignment()))
    Algorithm(Proximal(base=Alignment()), weighing=Compass())


@pytest.mark.parametrize("form", FORMS)
def test_clients_are_not_trained_together_by_it_and_the_reason_is_said(form: Any) -> None:
    model = network(torch.float32)
    learner = Learner(Alignment(form=form), WholeModel(), layout_of(model), Training(), seed=0)
    data = examples(INPUTS.float(), TARGETS)
    assert why_not_stacked(learner, model, *trial_batch(data)) == "Alignment has no loss for each example"
