"""Distillation from the shared head, and the anchor, in training, and what is refused."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from distilling import HEAD, INPUTS, TARGETS, WITH_TEACHER, local, loss, network, plain, shared, slopes
from torch import Tensor

from steelyard import components
from steelyard.algorithm import Algorithm
from steelyard.errors import InputError
from steelyard.layout import tensors_of
from steelyard.nn.variational import bayesian
from steelyard.objectives import Anchor, CrossEntropy, Distillation, Elbo, Objective, Proximal
from steelyard.objectives.base import Local, LocalLoss
from steelyard.objectives.distillation import dkd, temperature
from steelyard.objectives.teacher import Teacher
from steelyard.objectives.wrapper import Wrapper
from steelyard.sharing import Head, WholeModel
from steelyard.types import Broadcast

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
    objective = components.build("objectives", {"name": name, "base": {"name": "cross-entropy"}})
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
