"""The negative ELBO: data term + KL / examples, with the gradient that autograd finds for it."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import steelyard as sy
from steelyard import components
from steelyard.client.learner import Learner
from steelyard.client.working_model import working_copy_of, working_model_in
from steelyard.data.examples import examples
from steelyard.engines.joint_training import trial_batch, why_not_stacked
from steelyard.errors import InputError
from steelyard.layout import flatten, layout_of, tensors_of
from steelyard.nn.variational import VariationalConv2d, bayesian, gaussians, kl
from steelyard.objectives import CrossEntropy, Elbo, Objective, Proximal, SquaredError
from steelyard.objectives.base import Local, LocalLoss
from steelyard.settings import Training
from steelyard.sharing import WholeModel
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=RANDOM, dtype=torch.float64), torch.arange(12) % 3
EXAMPLES = 40


def network(last: int = 2, dtype: torch.dtype = torch.float64, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    return bayesian(plain, last, **{"sigma": 0.3, "log_sigma_lr_scale": 0.4, **settings})


def wander(model: nn.Module) -> None:
    """Away from where the objective was bound, each weight in its own way."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))


def bind(objective: Objective, model: nn.Module, examples: int = EXAMPLES) -> LocalLoss:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    broadcast = Broadcast(1, Message(torch.zeros(0)))
    return objective.bind(Local(model, trained, broadcast, examples, layout_of(model)))


def normals(model: nn.Module) -> list[Normal]:
    return [Normal(each.mean, (each.log_sigma_lr_scale * each.log_sigma).exp()) for each in gaussians(model)]


def found(
    model: nn.Module, local_loss: LocalLoss, inputs: Tensor = INPUTS
) -> tuple[Tensor, list[Tensor | None]]:
    """The value and the gradients as a training step has them, with a fixed draw."""
    model.zero_grad()
    torch.manual_seed(7)
    value = local_loss.loss(inputs, TARGETS)
    value.backward()
    local_loss.add_gradient()
    return value.detach(), [None if each.grad is None else each.grad.clone() for each in model.parameters()]


def wanted(
    model: nn.Module, divergence: Tensor, weight: float, inputs: Tensor = INPUTS
) -> tuple[Tensor, Any]:
    """The same by autograd."""
    torch.manual_seed(7)
    value = F.cross_entropy(model(inputs), TARGETS) + weight / EXAMPLES * divergence
    return value.detach(), torch.autograd.grad(value, list(model.parameters()))


@pytest.mark.parametrize("weight", [1.0, 0.05])
@pytest.mark.parametrize("last", [1, 3])
@pytest.mark.parametrize("prior", ["standard", "global"])
def test_value_and_gradient_are_those_of_the_formula(prior: Any, last: int, weight: float) -> None:
    model = network(last).train()
    before = [Normal(each.mean.detach().clone(), each.stddev.detach().clone()) for each in normals(model)]
    local_loss = bind(Elbo(weight, prior), model)
    wander(model)
    priors = before if prior == "global" else [Normal(0.0, 1.0)] * len(before)
    pairs = zip(normals(model), priors, strict=True)
    divergence = torch.stack([kl_divergence(q, p).sum() for q, p in pairs]).sum()
    value, gradients = found(model, local_loss)
    by_formula, by_autograd = wanted(model, divergence, weight)
    torch.testing.assert_close(value, by_formula)
    _, plain = found(model, bind(CrossEntropy(), model))
    bayesian_ones = {id(tensor) for each in gaussians(model) for tensor in each[:2]}
    for parameter, mine, right, without in zip(
        model.parameters(), gradients, by_autograd, plain, strict=True
    ):
        torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-12)
        assert without is not None
        assert torch.allclose(without, right, rtol=1e-3) == (id(parameter) not in bayesian_ones)


def test_a_convolution_in_another_order_of_memory_is_regularised_too() -> None:
    torch.manual_seed(0)
    made = nn.Sequential(VariationalConv2d(2, 3, 2, sigma=0.3), nn.Flatten(), nn.Linear(12, 3)).double()
    images = torch.randn(12, 2, 3, 3, dtype=torch.float64)
    model = working_copy_of(made, torch.channels_last).model
    assert not model[0].weight.is_contiguous()
    local_loss = bind(Elbo(), model)
    wander(model)
    _, gradients = found(model, local_loss, images)
    _, by_autograd = wanted(model, kl(model), 1.0, images)
    for mine, right in zip(gradients, by_autograd, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-12)


def test_where_the_round_began_the_global_prior_adds_nothing() -> None:
    model = network()
    wander(model)
    value, gradients = found(model, bind(Elbo(prior="global"), model))
    plain_value, plain = found(model, bind(CrossEntropy(), model))
    assert value.item() == pytest.approx(plain_value.item(), rel=1e-12)
    for mine, right in zip(gradients, plain, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-14)


def test_without_weight_it_is_the_base_to_the_last_bit() -> None:
    model = network()
    assert torch.equal(found(model, bind(Elbo(0.0), model))[0], found(model, bind(CrossEntropy(), model))[0])
    assert torch.equal(learn(Elbo(0.0)), learn(CrossEntropy()))


def test_what_the_base_adds_is_kept() -> None:
    model = network()
    local_loss, plain = bind(Elbo(base=Proximal(mu=3.0)), model), bind(Elbo(), model)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    wander(model)
    both = zip(found(model, local_loss)[1], found(model, plain)[1], model.parameters(), start, strict=True)
    for mine, without, now, then in both:
        assert without is not None
        torch.testing.assert_close(mine, without + 3.0 * (now.detach() - then))


def test_frozen_means_and_layers_that_the_loss_does_not_use_stay() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = network()
            self.unused = bayesian(nn.Linear(4, 4), last=1)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.used(inputs)
            return outputs

    model = Net().float()
    frozen = gaussians(model)[0].mean.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learn(Elbo(), model)
    after = model.state_dict()
    assert frozen.grad is None
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {name for name in after if name.startswith("used.")} - {"used.2.weight"}


def learn(objective: Objective, model: nn.Module | None = None, **settings: Any) -> Tensor:
    model = (model or network()).float()
    layout = layout_of(model)
    training = Training(**{"lr": 0.1, "batch_size": 5, "epochs": 4, **settings})
    learner = Learner(objective, WholeModel(), layout, training, seed=0)
    broadcast = Broadcast(1, Message(flatten(tensors_of(model), layout)))
    return learner.train(
        working_model_in(model), "a", examples(INPUTS, TARGETS), broadcast, {}
    ).reply.message.mean


def test_training_draws_from_the_clients_seed() -> None:
    first = learn(Elbo())
    torch.randn(5)
    assert torch.equal(learn(Elbo()), first)


def test_the_more_the_kl_weighs_the_nearer_the_posterior_comes_to_the_prior() -> None:
    distances = []
    for weight in (0.0, 1.0, 10.0):
        model = network().float()
        learn(Elbo(weight), model, optimizer="adam", lr=0.05, epochs=20)
        distances.append(kl(model).item())
    assert distances == sorted(distances, reverse=True)
    assert distances[2] < 0.7 * distances[0]


def test_with_adam_log_sigma_moves_at_its_share_of_the_learning_rate() -> None:
    moves = []
    for scale in (0.1, 1.0):
        model = network(log_sigma_lr_scale=scale).float()
        before = gaussians(model)[0].log_variance.detach().clone()
        learn(Elbo(10.0), model, optimizer="adam", lr=0.01, steps=5)
        moves.append(float((gaussians(model)[0].log_variance.detach() - before).abs().median()))
    assert moves[1] == pytest.approx(10 * moves[0], rel=0.3)


@pytest.mark.parametrize("variance", [1e-12, 1e12])
@pytest.mark.parametrize("prior", ["standard", "global"])
def test_extreme_variances_stay_finite_in_float32(prior: Any, variance: float) -> None:
    model = network(3, torch.float32, sigma=math.sqrt(variance), log_sigma_lr_scale=0.1)
    local_loss = bind(Elbo(prior=prior), model)
    wander(model)
    value, gradients = found(model, local_loss, INPUTS.float())
    assert value.isfinite()
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


def test_a_model_without_bayesian_layers_is_told_how_to_get_them() -> None:
    with pytest.raises(InputError, match=r"sy\.bayesian\(model, last=n\)"):
        bind(Elbo(), nn.Linear(4, 3))


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_weights_that_cannot_be_are_refused(weight: float) -> None:
    with pytest.raises(InputError, match=f"kl_weight must be .* not {weight}"):
        Elbo(kl_weight=weight)


def test_priors_that_do_not_exist_are_refused() -> None:
    prior: Any = "globe"
    with pytest.raises(InputError, match="unknown prior 'globe' of objective 'elbo': did you mean 'global'"):
        Elbo(prior=prior)


def test_needs_and_targets_are_those_of_the_base() -> None:
    assert Elbo().targets == "classes"
    assert Elbo(base=SquaredError()).targets == "numbers"
    assert Elbo(base=sy.Algorithm().objective).needs == frozenset()
    base = components.build("objectives", {"name": "alignment"})
    assert Elbo(base=base).needs == {"direction"}


def test_a_spec_can_name_it_and_its_base() -> None:
    choice = {"name": "elbo", "prior": "global", "base": {"name": "proximal", "mu": 0.5}}
    assert components.build("objectives", choice) == Elbo(prior="global", base=Proximal(mu=0.5))


@pytest.mark.parametrize(
    ("objective", "reason"), [(Elbo(), "Elbo has no loss for each example"), (CrossEntropy(), "random")]
)
def test_clients_with_bayesian_layers_are_trained_one_by_one(objective: Objective, reason: str) -> None:
    model = network(dtype=torch.float32)
    learner = Learner(objective, WholeModel(), layout_of(model), Training(), seed=0)
    why = why_not_stacked(learner, model, *trial_batch(examples(INPUTS.float(), TARGETS)))
    assert why is not None
    assert reason in why
