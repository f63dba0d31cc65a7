"""Alignment: its gradients are those of the formula, and without a direction it is what it wraps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.data.examples import examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.errors import InputError
from steelyard.federation import Federation, Result
from steelyard.geometry import Geometry
from steelyard.layout import Layout, flatten, layout_of, tensors_of
from steelyard.learner import Learner, descend
from steelyard.nn.zoo import light_cnn
from steelyard.objectives import Alignment, CrossEntropy, Objective, Proximal, SquaredError
from steelyard.objectives.base import Bound, Local
from steelyard.objectives.twice import QuickTwice
from steelyard.optimizers import Training
from steelyard.registry import build, complete
from steelyard.scratch import scratch_in, scratch_like
from steelyard.sharing import WholeModel
from steelyard.stacked import why_not_stacked
from steelyard.types import Broadcast, Message, RoundInfo, State, Weighed
from steelyard.weighing import Samples, Weigher

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=RANDOM, dtype=torch.float64), torch.arange(12) % 3
IMAGES = torch.randn(12, 2, 12, 12, generator=RANDOM, dtype=torch.float64)
EPSILON = 1e-8
FORMS: list[Any] = ["gradient", "descent", "update"]


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def convolutions(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """Strides, paddings, groups, a convolution without bias, poolings with and without overlap."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), activation(),
        nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.MaxPool2d(3, 1, padding=1), activation(),
        nn.Conv2d(6, 4, 2, stride=2, padding="valid"), nn.Conv2d(4, 3, 1, dilation=2), nn.Flatten(),
        nn.Linear(12, 3),
    ).double()  # fmt: skip


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


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def some_direction(model: nn.Module) -> Tensor:
    size = sum(parameter.numel() for parameter in model.parameters())
    return torch.randn(size, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def bind(
    objective: Objective, model: nn.Module, direction: Tensor | None, layout: Layout | None = None
) -> Bound:
    offers = {} if direction is None else {"direction": direction}
    broadcast = Broadcast(2, Message(torch.zeros(0)), offers)
    return objective.bind(Local(model, trained(model), broadcast, 12, layout or layout_of(model)))


def full(model: nn.Module, bound: Bound, inputs: Tensor = INPUTS) -> Tensor:
    """The gradient of the loss and what the objective adds to it."""
    model.zero_grad()
    bound.loss(inputs, TARGETS).backward()
    bound.add_gradient()
    return torch.cat([parameter.grad.flatten() for parameter in trained(model) if parameter.grad is not None])


def vector(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained(model)])


def put(model: nn.Module, values: Tensor) -> None:
    with torch.no_grad():
        nn.utils.vector_to_parameters(values, trained(model))


def wander(model: nn.Module, by: float = 0.3) -> None:
    random = torch.Generator().manual_seed(3)
    now = vector(model)
    put(model, now + by * torch.randn(len(now), generator=random, dtype=torch.float64))


def penalty(model: nn.Module, form: str, mine: Tensor, start: Tensor, inputs: Tensor = INPUTS) -> Tensor:
    """The term by its formula, λ = 1; differentiable, on the model as it is. `mine`: v̄ of what is trained."""
    parameters = trained(model)
    if form == "update":
        way = torch.cat([parameter.flatten() for parameter in parameters]) - start
        return 1 - F.cosine_similarity(way, mine, dim=0)
    loss = F.cross_entropy(model(inputs), TARGETS)
    parts = torch.autograd.grad(loss, parameters, create_graph=True)
    gradient = torch.cat([part.reshape(-1) for part in parts])
    cosine = (gradient / (gradient.norm() + EPSILON)) @ (mine / (mine.norm() + EPSILON))
    return 1 - cosine if form == "gradient" else 1 + cosine


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


def of_trained(model: nn.Module, direction: Tensor) -> Tensor:
    """The part of a direction that belongs to trained parameters."""
    parts = torch.split(direction, [parameter.numel() for parameter in model.parameters()])
    pairs = zip(model.parameters(), parts, strict=True)
    return torch.cat([part for parameter, part in pairs if parameter.requires_grad])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [network, Tied, partly_frozen])
def test_the_gradient_is_that_of_the_formula_by_differences(make: Any, form: Any) -> None:
    model: nn.Module = make()
    direction, start = some_direction(model), vector(model)
    bound, plain = bind(Alignment(0.7, form), model, direction), bind(CrossEntropy(), model, None)
    wander(model)
    added = full(model, bound) - full(model, plain)
    mine = of_trained(model, direction)
    wanted = 0.7 * by_differences(model, lambda: penalty(model, form, mine, start))
    torch.testing.assert_close(added, wanted, rtol=1e-6, atol=1e-8)
    assert float(wanted.norm()) > 1e-2, "there is something to see"


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_is_the_value_of_the_formula(form: Any) -> None:
    model = network()
    direction, start = some_direction(model), vector(model)
    bound = bind(Alignment(0.7, form), model, direction)
    wander(model)
    wanted = F.cross_entropy(model(INPUTS), TARGETS) + 0.7 * penalty(model, form, direction, start)
    training = Training(lr=0.1)
    steps = descend(bound.loss, [(INPUTS, TARGETS)], trained(model), training, bound.add_gradient)
    assert float(next(steps)) == pytest.approx(float(wanted.detach()), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("scratch", [scratch_in, scratch_like])
def test_convolutions_and_poolings_are_differentiated_twice_as_autograd_does(
    scratch: Any, activation: Any, form: Any
) -> None:
    model = scratch(convolutions(activation)).model
    direction, start = some_direction(model), vector(model)
    bound = bind(Alignment(0.7, form), model, direction)
    wander(model)
    plain = convolutions(activation)
    put(plain, vector(model))
    loss = F.cross_entropy(plain(IMAGES), TARGETS) + 0.7 * penalty(plain, form, direction, start, IMAGES)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(plain))])
    torch.testing.assert_close(full(model, bound, IMAGES), wanted, rtol=1e-9, atol=1e-11)
    without = full(model, bind(CrossEntropy(), model, None), IMAGES)
    assert not torch.allclose(wanted, without, rtol=1e-2)


def test_the_light_cnn_in_its_scratch_agrees_with_autograd_on_the_plain_model() -> None:
    torch.manual_seed(0)
    plain, images = light_cnn((1, 28, 28), 3), torch.randn(12, 1, 28, 28)
    model = scratch_like(plain).model
    direction = some_direction(plain).float()
    found = full(model, bind(Alignment(0.7), model, direction), images)
    loss = F.cross_entropy(plain(images), TARGETS)
    loss = loss + 0.7 * penalty(plain, "gradient", direction, direction, images)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(plain))])
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


ODD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "keywords": lambda images, weight: F.conv2d(images, weight, stride=2, padding=1),
    "a word for the padding": lambda images, weight: F.conv2d(images, weight, None, 1, "same"),
    "one image": lambda images, weight: F.conv2d(images[0], weight, None, (1, 1), (0, 0), (1, 1), 1),
    "pooling one image": lambda images, weight: F.max_pool2d(F.conv2d(images, weight)[0], 2),
    "pooling with places": lambda images, weight: F.max_pool2d_with_indices(F.conv2d(images, weight), 2)[0],
    "ragged pooling": lambda images, weight: F.max_pool2d(F.conv2d(images, weight), 3, 2, ceil_mode=True),
    "dilated pooling": lambda images, weight: F.max_pool2d(F.conv2d(images, weight), (2, 1), dilation=2),
    "a weight that does not learn": lambda images, weight: F.conv2d(
        F.conv2d(images, weight), weight.detach(), None, (1, 1), (0, 0), (1, 1), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", list(ODD))
def test_odd_convolutions_and_poolings_are_differentiated_twice_too(odd: str) -> None:
    images = IMAGES[:3].clone().requires_grad_()
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight.requires_grad_()

    def second() -> list[Tensor]:
        value = ODD[odd](images, weight).tanh().square().sum()
        first = torch.autograd.grad(value, [images, weight], create_graph=True)
        return [value, *torch.autograd.grad(sum(part.tanh().sum() for part in first), [images, weight])]

    with QuickTwice():
        found = second()
    for mine, wanted in zip(found, second(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-12)


def test_a_convolution_with_a_bias_alone_to_learn_is_left_to_torch() -> None:
    model = convolutions()
    for layer in (0, 6):
        model[layer].weight.requires_grad_(False)
    model[7].bias.requires_grad_(False)
    direction = some_direction(model)
    found = full(model, bind(Alignment(0.7), model, direction), IMAGES)
    mine = of_trained(model, direction)
    loss = F.cross_entropy(model(IMAGES), TARGETS) + 0.7 * penalty(model, "gradient", mine, mine, IMAGES)
    wanted = torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained(model))])
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


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
        bound = bind(Alignment(0.7, form), model, each)
        wander(model)
        found.append(full(model, bound))
    assert torch.equal(*found)


@pytest.mark.parametrize("form", FORMS)
def test_trained_parameters_that_do_not_travel_have_no_part_in_the_cosine(form: Any) -> None:
    """Only the last layer travels: its gradient, or way, is compared, though all of the model learns."""
    model = network()
    body, head = list(model[0].parameters()), list(model[2].parameters())
    layout = layout_of(nn.Sequential(nn.Identity(), nn.Identity(), model[2]))
    direction, start = some_direction(model[2]), [parameter.detach().clone() for parameter in head]
    bound = bind(Alignment(0.7, form), model, direction, layout)
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
    torch.testing.assert_close(full(model, bound), wanted, rtol=1e-6, atol=1e-7)


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
        bound = bind(Alignment(0.7, form), model, direction, replace(layout, parameters=entries))
        wander(model)
        found.append(full(model, bound))
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
        bound = bind(Alignment(0.7, form), model, each)
        wander(model)
        found.append(full(model, bound))
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
    reply = learner.train(scratch_in(model), "a", examples(INPUTS, TARGETS), broadcast, {}).reply
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
    bound, plain = (
        bind(Alignment(10.0, "update"), model, some_direction(model)),
        bind(CrossEntropy(), model, None),
    )
    assert torch.equal(full(model, bound), full(model, plain))
    assert torch.equal(bound.loss(INPUTS, TARGETS), plain.loss(INPUTS, TARGETS))


@pytest.mark.parametrize("form", ["gradient", "descent"])
def test_a_gradient_that_is_zero_has_no_direction_either(form: Any) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 3)).double()  # with inputs below 0 and equal classes
    with torch.no_grad():
        model[1].weight.zero_(), model[1].bias.zero_()
    bound = bind(Alignment(0.7, form), model, some_direction(model))
    loss = bound.loss(-INPUTS.abs(), TARGETS)
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


# Among others


@pytest.mark.parametrize("form", FORMS)
def test_it_goes_together_with_proximal_in_either_order(form: Any) -> None:
    found = []
    for objective in (Alignment(0.7, form, Proximal(0.3)), Proximal(0.3, Alignment(0.7, form))):
        model = network()
        direction, start = some_direction(model), vector(model)
        bound = bind(objective, model, direction)
        wander(model)
        found.append(full(model, bound))
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
    assert why_not_stacked(learner, model, data) == "Alignment has no loss for each example"
