"""Alignment: its gradients are those of the formula, and without a direction it is what it wraps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from aligning import (
    FORMS,
    INPUTS,
    TARGETS,
    bind,
    full,
    network,
    of_trained,
    penalty,
    put,
    some_direction,
    trained,
    vector,
    wander,
)
from torch import Tensor, nn

from steelyard.client.learner import Learner, descend
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import examples
from steelyard.layout import flatten, layout_of, tensors_of
from steelyard.objectives import Alignment, CrossEntropy, Objective, Proximal
from steelyard.settings import Training
from steelyard.sharing import WholeModel
from steelyard.types import Broadcast, Message


class Tied(nn.Module):
    """One weight used twice, under two names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.again, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.again.weight = self.first.weight
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.tanh(self.again(torch.tanh(self.first(inputs)))))
        return outputs


def partly_frozen() -> nn.Module:
    model = network()
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def by_differences(model: nn.Module, value: Callable[[], Tensor], by: float = 1e-5) -> Tensor:
    now, slopes = vector(model), []
    for place in range(len(now)):
        step = torch.zeros_like(now)
        step[place] = by
        ends = []
        for side in (now + step, now - step):
            put(model, side)
            ends.append(float(value().detach()))
        slopes.append((ends[0] - ends[1]) / (2 * by))
    put(model, now)
    return torch.tensor(slopes, dtype=torch.float64)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [network, Tied, partly_frozen])
def test_the_gradient_is_that_of_the_formula_by_differences(make: Any, form: Any) -> None:
    model: nn.Module = make()
    direction, start = some_direction(model), vector(model)
    local_loss, plain = bind(Alignment(0.7, form), model, direction), bind(CrossEntropy(), model, None)
    wander(model)
    added = full(model, local_loss) - full(model, plain)
    mine = of_trained(model, direction)
    wanted = 0.7 * by_differences(model, lambda: penalty(model, form, mine, start))
    torch.testing.assert_close(added, wanted, rtol=1e-6, atol=1e-8)
    assert float(wanted.norm()) > 1e-2, "there is something to see"


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_is_the_value_of_the_formula(form: Any) -> None:
    model = network()
    direction, start = some_direction(model), vector(model)
    local_loss = bind(Alignment(0.7, form), model, direction)
    wander(model)
    wanted = F.cross_entropy(model(INPUTS), TARGETS) + 0.7 * penalty(model, form, direction, start)
    training = Training(lr=0.1)
    steps = descend(local_loss.loss, [(INPUTS, TARGETS)], trained(model), training, local_loss.add_gradient)
    assert float(next(steps)) == pytest.approx(float(wanted.detach()), rel=1e-12)


# What is shared


@pytest.mark.parametrize("form", FORMS)
def test_the_direction_of_frozen_parameters_does_not_matter(form: Any) -> None:
    model = partly_frozen()
    changed, direction = some_direction(model), some_direction(model)
    changed[:20] = 100.0
    changed[-3:] = 0.0
    found = []
    for each in (direction, changed):
        model = partly_frozen()
        local_loss = bind(Alignment(0.7, form), model, each)
        wander(model)
        found.append(full(model, local_loss))
    assert torch.equal(*found)


@pytest.mark.parametrize("form", FORMS)
def test_trained_parameters_that_do_not_travel_have_no_part_in_the_cosine(form: Any) -> None:
    """Only the last layer travels: its gradient, or way, is compared, though all of the model learns."""
    model = network()
    body, head = list(model[0].parameters()), list(model[2].parameters())
    layout = layout_of(nn.Sequential(nn.Identity(), nn.Identity(), model[2]))
    direction, start = some_direction(model[2]), [parameter.detach().clone() for parameter in head]
    local_loss = bind(Alignment(0.7, form), model, direction, layout)
    wander(model)
    if form == "update":
        compared = torch.cat([(now - then).flatten() for now, then in zip(head, start, strict=True)])
    else:
        loss = F.cross_entropy(model(INPUTS), TARGETS)
        parts = torch.autograd.grad(loss, head, create_graph=True)
        compared = torch.cat([part.flatten() for part in parts]) * (1 if form == "gradient" else -1)
    term = 0.7 * (1 - F.cosine_similarity(compared, direction, dim=0))
    whole = F.cross_entropy(model(INPUTS), TARGETS) + term
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(whole, [*body, *head])])
    torch.testing.assert_close(full(model, local_loss), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_a_tied_parameter_is_found_by_whichever_name_it_travels_under(form: Any) -> None:
    found = []
    for name in ("first.weight", "again.weight"):
        model = Tied()
        layout, direction = layout_of(model), some_direction(model)
        entries = tuple(
            replace(entry, name=name) if entry.name == "first.weight" else entry
            for entry in layout.parameters
        )
        local_loss = bind(Alignment(0.7, form), model, direction, replace(layout, parameters=entries))
        wander(model)
        found.append(full(model, local_loss))
    assert torch.equal(*found)


def test_a_multiple_of_the_loss_has_a_multiple_of_the_gradient() -> None:
    model = network()
    loss = bind(Alignment(0.7), model, some_direction(model)).loss
    once = torch.autograd.grad(loss(INPUTS, TARGETS), trained(model))
    for found, wanted in zip(
        torch.autograd.grad(3 * loss(INPUTS, TARGETS), trained(model)), once, strict=True
    ):
        torch.testing.assert_close(found, 3 * wanted)


@pytest.mark.parametrize("form", FORMS)
def test_what_the_direction_says_of_buffers_is_not_read(form: Any) -> None:
    model = network()
    direction = some_direction(model)
    longer = torch.cat([direction, torch.full((9,), 1e9, dtype=torch.float64)])
    found = []
    for each in (direction, longer, 1e6 * direction):
        model = network()
        local_loss = bind(Alignment(0.7, form), model, each)
        wander(model)
        found.append(full(model, local_loss))
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[2], found[0], rtol=1e-6, atol=1e-7)  # nor how long it is


# Nothing to align with


def learn(
    objective: Objective, direction: Tensor | None = None, model: nn.Module | None = None
) -> tuple[Tensor, float]:
    model = model or network(torch.float32)
    layout = layout_of(model)
    learner = Learner(objective, WholeModel(), layout, Training(lr=0.5, batch_size=5, epochs=4), seed=0)
    offers = {} if direction is None else {"direction": direction}
    broadcast = Broadcast(1, Message(flatten(tensors_of(model), layout)), offers)
    reply = learner.train(working_model_in(model), "a", examples(INPUTS, TARGETS), broadcast, {}).reply
    return reply.message.mean, reply.metrics["loss"]


def same(found: tuple[Tensor, float], wanted: tuple[Tensor, float]) -> bool:
    return torch.equal(found[0], wanted[0]) and found[1] == wanted[1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("direction", [None, torch.zeros(43), torch.zeros(50, dtype=torch.float64)])
@pytest.mark.parametrize("base", [CrossEntropy(0.1), Proximal(0.5)])
def test_without_a_direction_it_is_the_base_to_the_last_bit(
    base: Objective, direction: Tensor | None, form: Any
) -> None:
    assert same(learn(Alignment(10.0, form, base), direction), learn(base))


@pytest.mark.parametrize("form", FORMS)
def test_without_strength_it_is_the_base_to_the_last_bit(form: Any) -> None:
    direction = some_direction(network())
    assert same(learn(Alignment(0, form), direction), learn(CrossEntropy()))
    assert not same(learn(Alignment(0.1, form), direction), learn(CrossEntropy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_direction_comes_in_either_precision(dtype: torch.dtype) -> None:
    direction = some_direction(network()).float()
    found, wanted = learn(Alignment(0.1), direction.to(dtype)), learn(Alignment(0.1), direction)
    torch.testing.assert_close(found[0], wanted[0])


def test_where_the_round_began_the_update_has_no_direction_and_the_term_is_nothing() -> None:
    model = network()
    local_loss, plain = (
        bind(Alignment(10.0, "update"), model, some_direction(model)),
        bind(CrossEntropy(), model, None),
    )
    assert torch.equal(full(model, local_loss), full(model, plain))
    assert torch.equal(local_loss.loss(INPUTS, TARGETS), plain.loss(INPUTS, TARGETS))


@pytest.mark.parametrize("form", ["gradient", "descent"])
def test_a_gradient_that_is_zero_has_no_direction_either(form: Any) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 3)).double()  # with inputs below 0 and equal classes
    with torch.no_grad():
        model[1].weight.zero_(), model[1].bias.zero_()
    local_loss = bind(Alignment(0.7, form), model, some_direction(model))
    loss = local_loss.loss(-INPUTS.abs(), TARGETS)
    loss.backward()
    assert bool(torch.cat([parameter.grad.flatten() for parameter in trained(model)]).isfinite().all())  # type: ignore[union-attr]


@pytest.mark.parametrize("form", FORMS)
def test_parameters_that_the_loss_does_not_use_stay_where_they_are(form: Any) -> None:
    def model() -> nn.Module:
        made = nn.Sequential(network(torch.float32), nn.Identity())
        made[1].unused = nn.Parameter(torch.ones(2))
        return made

    update, _ = learn(Alignment(0.5, form), torch.ones(45), model())
    assert update[-2:].tolist() == [0, 0]
    assert update[:-2].count_nonzero() == 43


# What it is for


@pytest.mark.parametrize("form", FORMS)
def test_the_stronger_the_better_aligned_is_what_is_to_be(form: Any) -> None:
    direction = some_direction(network()).float()

    def cosine(strength: float) -> float:
        model = network(torch.float32)
        update, _ = learn(Alignment(strength, form), direction, model)
        loss = F.cross_entropy(model(INPUTS.float()), TARGETS)
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(model))])
        aligned = {"gradient": gradient, "descent": -gradient, "update": update}[form]
        return float(F.cosine_similarity(aligned, direction, dim=0))

    cosines = [cosine(strength) for strength in (0, 0.1, 0.3, 1)]
    assert cosines == sorted(cosines)
    assert cosines[-1] > cosines[0] + 0.1


@pytest.mark.parametrize(("form", "sign"), [("gradient", 1), ("descent", -1)])
def test_in_a_convex_loss_the_published_term_itself_steps_along_the_direction(form: Any, sign: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    direction = some_direction(model)
    plain = full(model, bind(CrossEntropy(), model, None))
    step = plain - full(model, bind(Alignment(0.7, form), model, direction))
    sideways = direction - plain * (direction @ plain) / (plain @ plain)
    assert sign * float(step @ sideways) > 1e-2
