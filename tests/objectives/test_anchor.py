"""The anchor moves the body alone; without strength, training is that of the base."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from distilling import HEAD, INPUTS, TARGETS, WITH_TEACHER, local, loss, network, shared, slopes
from torch import Tensor

from steelyard.client.learner import Learner
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import examples
from steelyard.layout import tensors_of
from steelyard.objectives import Anchor, CrossEntropy, Distillation, Objective
from steelyard.objectives.teacher import Teacher
from steelyard.settings import Training
from steelyard.sharing import Head
from steelyard.types import Broadcast, Message


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
