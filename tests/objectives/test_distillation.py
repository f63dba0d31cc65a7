"""Distillation from the shared head, and the anchor: values and gradients are those of the definitions."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.client.learner import Learner
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import examples
from steelyard.errors import InputError
from steelyard.layout import tensors_of
from steelyard.nn.variational import bayesian
from steelyard.objectives import Anchor, CrossEntropy, Distillation, Elbo, Objective, Proximal
from steelyard.objectives.base import Local, LocalLoss, Wrapper
from steelyard.objectives.distillation import dkd, temperature
from steelyard.objectives.teacher import Teacher
from steelyard.settings import Training
from steelyard.sharing import Head, Sharing, WholeModel
from steelyard.specs import registry
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(9, 4, generator=RANDOM, dtype=torch.float64), torch.arange(9) % 3
HEAD = torch.randn(18, generator=RANDOM, dtype=torch.float64)
"""The shared head: 3 × 5 weights and 3 biases."""
WITH_TEACHER: list[Any] = [Distillation(), Anchor()]
SHARED = Head()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def local(
    model: nn.Module, round: int = 2, rounds: int = 10, sharing: Sharing = SHARED, head: Tensor = HEAD
) -> Local:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Local(
        model, parameters, Broadcast(round, Message(head), {}, rounds), len(INPUTS), sharing.layout(model)
    )


def loss(objective: Objective, model: nn.Module, **settings: Any) -> Tensor:
    return objective.bind(local(model, **settings)).loss(INPUTS, TARGETS)


def plain(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(INPUTS), TARGETS)


def shared(embedding: Tensor, head: Tensor = HEAD) -> Tensor:
    """The logits of the shared head."""
    return embedding @ head[:15].view(3, 5).T + head[15:]


def slopes(value: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(model.parameters()), materialize_grads=True))


def logits(count: int, classes: int, seed: int) -> Tensor:
    return 3 * torch.randn(count, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The definition


def softened(values: list[float], heat: float) -> list[float]:
    weights = [math.exp(value / heat) for value in values]
    return [weight / sum(weights) for weight in weights]


def divergence(wanted: list[float], given: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(wanted, given, strict=True))


def naive(
    student: Tensor, teacher: Tensor, targets: Tensor, student_heat: float, teacher_heat: float
) -> float:
    """Example by example: KL of (target, not target), and KL of the others among themselves."""
    total = 0.0
    for mine, taught, target in zip(student.tolist(), teacher.tolist(), targets.tolist(), strict=True):
        pairs, others = [], []
        for values, heat in ((taught, teacher_heat), (mine, student_heat)):
            chance = softened(values, 1.0)[target]
            pairs.append([chance, 1 - chance])
            others.append(softened([values[c] for c in range(len(values)) if c != target], heat))
        total += divergence(*pairs) + divergence(*others)
    return total / len(student)


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0, 11.0])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_dkd_is_its_definition(classes: int, heat: float, literal: bool) -> None:
    student, teacher, targets = logits(8, classes, 1), logits(8, classes, 2), torch.arange(8) % classes
    own = 1.0 if literal else heat
    found = float(dkd(student, teacher, targets, own, heat))
    assert found == pytest.approx(naive(student, teacher, targets, own, heat), rel=1e-10)
    assert found > 0.01


@pytest.mark.parametrize("classes", [2, 4])
def test_the_gradient_by_the_students_logits_is_that_of_the_value(classes: int) -> None:
    teacher, targets = logits(5, classes, 2), torch.arange(5) % classes
    student = logits(5, classes, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda mine: dkd(mine, teacher, targets, 2.0, 3.0), (student,))


@pytest.mark.parametrize("heat", [0.5, 1.0, 11.0])
def test_a_student_that_agrees_with_the_teacher_has_no_loss_and_no_gradient(heat: float) -> None:
    student = logits(6, 4, 1).requires_grad_()
    value = dkd(student, student.detach().clone(), torch.arange(6) % 4, heat, heat)
    assert float(value.detach()) == pytest.approx(0, abs=1e-12)
    (gradient,) = torch.autograd.grad(value, student)
    assert float(gradient.abs().max()) < 1e-12


def test_in_the_literal_form_a_student_that_agrees_is_softened_as_well() -> None:
    student = logits(6, 4, 1)
    assert float(dkd(student, student, torch.arange(6) % 4, 1.0, 11.0)) > 0.1


def test_certainty_beyond_all_numbers_has_a_finite_value_and_gradient() -> None:
    student = torch.tensor([[500.0, -500.0, 0.0], [0.0, 500.0, -500.0]], requires_grad=True)
    value = dkd(student, -student.detach(), torch.tensor([0, 2]), 1.0, 1.0)
    value.backward()
    assert bool(value.isfinite())
    assert student.grad is not None
    assert bool(student.grad.isfinite().all())


# With two classes


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_with_two_classes_it_is_cross_entropy_against_a_softer_target(alpha: float) -> None:
    """−log b − α Σ b̄ log(b/b̄) = −(1 + α) Σ q log b − α H(b̄), with q = (t + α b̄)/(1 + α); the teacher's
    entropy is a constant for the student. q is at least 1/(1 + α) for the target, whatever the teacher."""
    student, teacher, targets = logits(8, 2, 1).requires_grad_(), logits(8, 2, 2), torch.arange(8) % 2
    found = F.cross_entropy(student, targets) + alpha * dkd(student, teacher, targets, 1.0, 1.0)
    taught = teacher.softmax(dim=1)
    soft = (F.one_hot(targets, 2) + alpha * taught) / (1 + alpha)
    entropy = -(taught * taught.log()).sum(dim=1).mean()
    wanted = (1 + alpha) * F.cross_entropy(student, soft)
    assert float(found.detach()) == pytest.approx(float((wanted - alpha * entropy).detach()), rel=1e-12)
    mine, theirs = (torch.autograd.grad(value, student)[0] for value in (found, wanted))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)
    assert float(soft.gather(1, targets.unsqueeze(1)).min()) >= 1 / (1 + alpha)


@pytest.mark.parametrize(("own", "heat"), [(11.0, 11.0), (1.0, 11.0), (0.1, 0.1)])
def test_with_two_classes_temperature_changes_nothing(own: float, heat: float) -> None:
    student, teacher, targets = logits(8, 2, 1), logits(8, 2, 2), torch.arange(8) % 2
    found, cold = dkd(student, teacher, targets, own, heat), dkd(student, teacher, targets, 1.0, 1.0)
    assert torch.equal(found, cold)


# The temperature


@pytest.mark.parametrize("beta", [0.0, 1.0, 5.0])
def test_the_temperature_falls_along_a_cosine_to_one(beta: float) -> None:
    heats = [temperature(round, 20, beta) for round in range(21)]
    assert heats[0] == 2 * beta + 1
    assert heats[5] == pytest.approx(beta * (1 + math.sqrt(0.5)) + 1)
    assert heats[10] == pytest.approx(beta + 1)
    assert heats[20] == 1
    assert heats == sorted(heats, reverse=True)


def test_without_a_known_number_of_rounds_the_temperature_is_one() -> None:
    assert temperature(7, 0, 5.0) == 1


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize(("round", "rounds"), [(2, 10), (9, 10), (10, 10), (3, 0)])
def test_the_round_sets_the_temperature(round: int, rounds: int, literal: bool) -> None:
    model = network()
    found = loss(Distillation(0.7, 4.0, literal), model, round=round, rounds=rounds)
    heat = 4 * (1 + math.cos(math.pi * round / rounds)) + 1 if rounds else 1.0
    student, teacher = model(INPUTS), shared(model[:2](INPUTS))
    wanted = plain(model) + 0.7 * naive(student, teacher, TARGETS, 1.0 if literal else heat, heat)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-10)


# In training


def test_the_gradient_reaches_body_and_head_and_the_teacher_is_constant() -> None:
    model = network()
    found = slopes(loss(Distillation(0.7), model), model)
    teacher = shared(model[:2](INPUTS)).detach()  # it hangs on the body, but no gradient goes this way
    heat = temperature(2, 10, 5.0)
    wanted = slopes(plain(model) + 0.7 * dkd(model(INPUTS), teacher, TARGETS, heat, heat), model)
    without = slopes(plain(model), model)
    for mine, theirs, bare in zip(found, wanted, without, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)
        assert float((mine - bare).abs().max()) > 1e-3, "body and head learn from it"


@pytest.mark.parametrize("objective", WITH_TEACHER, ids=lambda each: type(each).__name__)
def test_the_teacher_stays_as_it_came_while_the_client_learns(objective: Any) -> None:
    model, head = network(), HEAD.clone()
    local_loss = objective.bind(local(model, head=head))
    before = local_loss.loss(INPUTS, TARGETS)
    before.backward()
    assert torch.equal(head, HEAD)
    assert head.grad is None
    start = {name: value.clone() for name, value in model[2].state_dict().items()}
    with torch.no_grad():
        for parameter in model[2].parameters():
            parameter.add_(1.0)
    teacher = Teacher(local(model))
    embedding = model[:2](INPUTS)
    torch.testing.assert_close(teacher(embedding), shared(embedding))
    with torch.no_grad():
        for name, value in model[2].named_parameters():
            value.copy_(start[name])
    assert torch.equal(local_loss.loss(INPUTS, TARGETS), before)


@pytest.mark.parametrize("objective", WITH_TEACHER, ids=lambda each: type(each).__name__)
def test_in_the_first_round_there_is_no_teacher(objective: Any) -> None:
    model = network()
    first, second = loss(objective, model, round=1), loss(objective, model, round=2)
    assert torch.equal(first, plain(model))
    assert float(second.detach()) > float(first.detach()) + 0.01


def test_a_scale_multiplies_the_teachers_logits() -> None:
    model = network()
    scaled = loss(Distillation(scale=4.0), model)
    torch.testing.assert_close(scaled, loss(Distillation(), model, head=4 * HEAD), rtol=1e-12, atol=0)
    assert not torch.equal(scaled, loss(Distillation(), model))


def test_without_alpha_it_is_the_base() -> None:
    model = network()
    assert torch.equal(loss(Distillation(alpha=0), model), plain(model))


def test_it_wraps_others_and_others_wrap_it() -> None:
    model = network()
    found = slopes(loss(Distillation(0.7, base=Anchor(0.3)), model), model)
    apart = slopes(loss(Distillation(0.7), model) + loss(Anchor(0.3), model) - plain(model), model)
    for mine, theirs in zip(found, apart, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)
    within = Proximal(0.5, base=Distillation(base=CrossEntropy(0.1)))
    torch.testing.assert_close(
        loss(within, model) - loss(Distillation(), model),
        F.cross_entropy(model(INPUTS), TARGETS, label_smoothing=0.1) - plain(model),
    )


class FailingError(Exception):
    """Something goes wrong in the middle of a loss."""


class Failing(Wrapper):
    """An objective that breaks, after the model has run."""

    base: Objective = CrossEntropy()

    def bind(self, local: Local) -> LocalLoss:
        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            local.model(inputs)
            raise FailingError

        return LocalLoss(loss)


@pytest.mark.parametrize("make", [Distillation, Anchor])
def test_no_hook_is_left_on_the_model(make: Any) -> None:
    model = network()
    loss(make(), model)
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(FailingError):
        loss(make(base=Failing()), model)
    assert not any(module._forward_hooks for module in model.modules())


# What is refused


@pytest.mark.parametrize("objective", WITH_TEACHER, ids=lambda each: type(each).__name__)
def test_sharing_without_a_head_is_refused(objective: Any) -> None:
    with pytest.raises(InputError, match=r"needs a shared head, .* use the sharing `head`"):
        Algorithm(objective=objective)
    with pytest.raises(InputError, match="needs a shared head"):
        Algorithm(objective=Proximal(base=objective), sharing=WholeModel())


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
@pytest.mark.parametrize(
    ("make", "setting"),
    [(Distillation, "alpha"), (Distillation, "beta"), (Distillation, "scale"), (Anchor, "strength")],
)
def test_settings_below_zero_or_without_an_end_are_refused(make: Any, setting: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{setting} must be a finite number, at least 0"):
        make(**{setting: value})


@pytest.mark.parametrize("name", ["distillation", "anchor"])
def test_a_spec_can_name_them(name: str) -> None:
    objective = registry.build("objectives", {"name": name, "base": {"name": "cross-entropy"}})
    assert objective in WITH_TEACHER
    assert objective.targets == "classes"


# Bayesian heads


@pytest.mark.parametrize("posterior", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_bayesian_head_teaches_with_its_means(dtype: torch.dtype, posterior: bool) -> None:
    model, sharing = bayesian(network().to(dtype), last=1, sigma=0.5), Head(posterior=posterior)
    layout = sharing.layout(model)
    broadcast = Broadcast(2, sharing.read(tensors_of(model), layout), {}, 10)
    teacher = Teacher(Local(model, list(model.parameters()), broadcast, 9, layout))
    embedding = torch.randn(9, 5, generator=torch.Generator().manual_seed(3), dtype=dtype)
    found = teacher(embedding)
    assert torch.equal(found, teacher(embedding))
    head: Any = model.get_submodule("2")
    assert torch.equal(found, F.linear(embedding, head.weight, head.bias))
    assert not torch.equal(head(embedding), head(embedding)), "the client's own goes on drawing"


def test_a_bayesian_client_is_taught_on_its_draw() -> None:
    model, sharing = bayesian(network().float(), last=1, sigma=0.5), Head(posterior=True)
    layout = sharing.layout(model)
    message = sharing.read(tensors_of(model), layout)
    message = message._replace(mean=HEAD.float())
    objective = Distillation(0.7, base=Elbo(kl_weight=0))
    local_loss = objective.bind(
        Local(model, list(model.parameters()), Broadcast(2, message, {}, 10), 9, layout)
    )
    body: Any = model[:2]  # type: ignore[index]
    torch.manual_seed(5)
    found = local_loss.loss(INPUTS.float(), TARGETS)
    torch.manual_seed(5)
    student, heat = model(INPUTS.float()), temperature(2, 10, 5.0)
    teacher = shared(body(INPUTS.float()), HEAD.float()).detach()
    wanted = F.cross_entropy(student, TARGETS) + 0.7 * dkd(student, teacher, TARGETS, heat, heat)
    torch.testing.assert_close(found, wanted)


# The anchor


def test_the_anchor_moves_the_body_alone() -> None:
    model = network()
    term = loss(Anchor(0.7), model) - loss(CrossEntropy(), model)
    found = slopes(term, model)
    wanted = slopes(0.7 * F.cross_entropy(shared(model[:2](INPUTS)), TARGETS), model)
    for mine, theirs in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)
        assert float(mine.abs().max()) > 1e-3
    assert float(torch.cat([each.flatten() for each in found[2:]]).abs().max()) < 1e-15


def test_the_anchors_head_is_neither_trained_nor_changed() -> None:
    model = network()
    teacher = Teacher(local(model))
    teacher(model[:2](INPUTS)).sum().backward()
    assert not any(
        parameter.requires_grad or parameter.grad is not None for parameter in teacher.head.parameters()
    )
    assert model[2].weight.grad is None
    assert float(model[0].weight.grad.abs().max()) > 0
    assert torch.equal(torch.cat([each.flatten() for each in teacher.head.parameters()]), HEAD)


def learn(objective: Objective, round: int = 2) -> tuple[Tensor, Tensor, float]:
    """Head and body after a client's round, and its loss."""
    model, sharing = network().float(), Head(adopt=False)
    layout = sharing.layout(model)
    learner = Learner(objective, sharing, layout, Training(lr=0.5, batch_size=4, epochs=2), seed=0)
    broadcast = Broadcast(round, Message(HEAD.float()), {}, 10)
    start = sharing.keep(tensors_of(model), layout)
    data = examples(INPUTS.float(), TARGETS)
    reply = learner.train(working_model_in(model), "a", data, broadcast, start).reply
    return reply.message.mean, model[0].weight.detach(), reply.metrics["loss"]


@pytest.mark.parametrize("nothing", [Anchor(0.0), Distillation(0.0)], ids=lambda each: type(each).__name__)
def test_without_strength_the_training_is_that_of_the_base_to_the_last_bit(nothing: Any) -> None:
    found, wanted = learn(nothing), learn(CrossEntropy())
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    assert found[2] == wanted[2]


@pytest.mark.parametrize("objective", WITH_TEACHER, ids=lambda each: type(each).__name__)
def test_a_client_trains_otherwise_from_its_second_round_on(objective: Any) -> None:
    assert torch.equal(learn(objective, round=1)[0], learn(CrossEntropy(), round=1)[0])
    assert not torch.equal(learn(objective)[1], learn(CrossEntropy())[1])
