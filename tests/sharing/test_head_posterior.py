"""A Bayesian head: its means and variances travel."""

import copy
import math
from typing import Any

import pytest
import torch
from test_head import learn, network, read
from torch import nn

from steelyard.layout import tensors_of
from steelyard.nn.variational import bayesian
from steelyard.objectives import Elbo
from steelyard.sharing import Head
from steelyard.types import EMPTY, Message


def bayes(last: int = 1) -> nn.Sequential:
    model = bayesian(network(), last=last, sigma=0.5, log_sigma_lr_scale=0.2)
    assert isinstance(model, nn.Sequential)
    return model


def test_a_posterior_has_variances_and_a_layout_without_log_sigmas() -> None:
    sharing = Head(posterior=True)
    message = read(bayes(), sharing)
    assert sharing.slots == {"mean", "variance"}
    assert [entry.name for entry in sharing.layout(bayes()).entries] == ["4.weight", "4.bias"]
    assert torch.equal(message.mean, read(network()).mean)
    assert message.variance is not None
    assert message.variance.tolist() == pytest.approx([0.25] * 9)


def test_without_it_log_sigmas_are_shared_like_any_other_parameter() -> None:
    assert [entry.name for entry in Head().layout(bayes()).entries] == [
        "4.weight",
        "4.bias",
        "4.weight_log_sigma",
        "4.bias_log_sigma",
    ]


def test_variances_that_came_down_are_put_back_as_log_sigmas() -> None:
    model, sharing = bayes(), Head(posterior=True)
    message = Message(torch.arange(9.0), torch.arange(1.0, 10.0))
    sharing.write(tensors_of(model), sharing.layout(model), message, EMPTY)
    found = read(model, sharing)
    assert torch.equal(found.mean, message.mean)
    assert found.variance is not None
    assert found.variance.tolist() == pytest.approx(list(range(1, 10)), rel=1e-5)
    head: Any = model[4]
    wanted = [math.log(variance) / (2 * 0.2) for variance in range(1, 7)]
    assert head.weight_log_sigma.flatten().tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("adopt", [True, False])
def test_log_sigmas_of_the_head_are_kept_only_by_clients_that_keep_their_head(adopt: bool) -> None:
    model, sharing = bayes(last=2), Head(adopt=adopt, posterior=True)
    (done,) = learn(model, sharing, [EMPTY], Elbo())
    assert "body.3.weight_log_sigma" in done.state, "what is Bayesian in a body stays, too"
    assert ("head.4.weight_log_sigma" in done.state) == (not adopt)
    message = Message(torch.arange(9.0), torch.full((9,), 4.0))
    other = copy.deepcopy(model)
    sharing.write(tensors_of(other), sharing.layout(other), message, done.state)
    head: Any = other[4]
    if adopt:
        assert head.bias_log_sigma.tolist() == pytest.approx([math.log(2) / 0.2] * 3, rel=1e-5)
    else:
        assert torch.equal(head.bias_log_sigma, done.state["head.4.bias_log_sigma"])
    body: Any = other[3]
    assert torch.equal(body.weight_log_sigma, done.state["body.3.weight_log_sigma"])
