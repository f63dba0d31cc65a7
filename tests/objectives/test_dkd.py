"""The distillation term: values and gradients of its definition, and the temperature that the round sets."""

import math

import pytest
import torch
import torch.nn.functional as F
from distilling import INPUTS, TARGETS, loss, network, plain, shared
from torch import Tensor

from steelyard.objectives import Distillation
from steelyard.objectives.distillation import dkd, temperature


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
