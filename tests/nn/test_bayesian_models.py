"""Models with Bayesian layers: predictions average over draws, and any model can be made Bayesian."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from variational_models import network, random, scatter

import steelyard as sy
from steelyard.client.evaluation import predict
from steelyard.data.examples import examples
from steelyard.errors import InputError
from steelyard.layout import layout_of
from steelyard.nn import zoo
from steelyard.nn.variational import VariationalConv2d, VariationalLinear, averaged, bayesian, gaussians

# Prediction


def logits_by_hand(model: nn.Sequential, inputs: Tensor, samples: int) -> list[Tensor]:
    """Of a network with two Bayesian layers, the logits of each draw; noise is drawn in the model's order."""
    first, second = model[2], model[4]
    hidden = model[1](model[0](inputs))
    first_noise = torch.randn(samples, len(inputs), 5)
    second_noise = torch.randn(samples * len(inputs), 3).view(samples, len(inputs), 3)

    def draw(layer: Any, values: Tensor, noise: Tensor) -> Tensor:
        variance = values**2 @ layer.weight_log_sigma.mul(2 * layer.log_sigma_lr_scale).exp().T
        variance = variance + layer.bias_log_sigma.mul(2 * layer.log_sigma_lr_scale).exp()
        return values @ layer.weight.T + layer.bias + variance.sqrt() * noise

    return [
        draw(second, torch.tanh(draw(first, hidden, first_noise[place])), second_noise[place])
        for place in range(samples)
    ]


def two_bayesian(samples: int = 7) -> nn.Sequential:
    model = scatter(bayesian(network(), last=2, samples=samples), center=0.8)
    assert isinstance(model, nn.Sequential)
    return model


@torch.no_grad()
def test_a_prediction_is_the_log_of_the_mean_probability_over_draws() -> None:
    model, inputs = two_bayesian().eval(), torch.randn(9, 4, generator=random())
    torch.manual_seed(5)
    found = model(inputs)
    torch.manual_seed(5)
    drawn = logits_by_hand(model, inputs, 7)
    wanted = sum(logits.softmax(1) for logits in drawn) / 7
    torch.testing.assert_close(found.exp(), wanted)
    assert not torch.allclose(found, torch.stack(drawn).mean(0).log_softmax(1), atol=1e-2)


@torch.no_grad()
def test_in_training_the_logits_of_one_draw_come_out() -> None:
    model, inputs = two_bayesian().train(), torch.randn(9, 4, generator=random())
    torch.manual_seed(5)
    found = model(inputs)
    torch.manual_seed(5)
    torch.testing.assert_close(found, logits_by_hand(model, inputs, 1)[0])


@pytest.mark.parametrize("samples", [1, 10])
def test_what_comes_before_the_first_bayesian_layer_runs_once(samples: int) -> None:
    rows: dict[int, list[int]] = {}
    model = bayesian(network(), last=2, samples=samples).eval()
    assert isinstance(model, nn.Sequential)
    for place in range(5):
        model[place].register_forward_pre_hook(
            lambda _, inputs, place=place: rows.setdefault(place, []).append(len(inputs[0]))
        )
    for _ in range(2):
        rows.clear()
        assert model(torch.randn(8, 4)).shape == (8, 3)
        assert rows == {0: [8], 1: [8], 2: [8], 3: [8 * samples], 4: [8 * samples]}


def test_predictions_depend_on_the_seed_alone() -> None:
    model = two_bayesian()
    data = examples(torch.randn(600, 4, generator=random()), torch.arange(600) % 3)
    first = predict(model, data, seed=1)
    torch.randn(3)
    model.train()(torch.randn(2, 4))
    assert torch.equal(predict(model, data, seed=1), first)
    assert torch.equal(predict(copy.deepcopy(model), data, seed=1), first)
    assert torch.equal(predict(pickle.loads(pickle.dumps(model)), data, seed=1), first)
    assert torch.equal(predict(model, data, seed=1, rows=slice(256, 600)), first[256:])
    assert not torch.allclose(predict(model, data, seed=2), first, atol=1e-2)
    torch.testing.assert_close(first.exp().sum(1), torch.ones(600))


def test_a_copy_counts_its_draws_for_itself() -> None:
    model = two_bayesian().eval()
    copied = copy.deepcopy(model)
    model[0].register_forward_hook(lambda *_: copied.train()(torch.randn(2, 4)).new_empty(4, 6))
    assert model(torch.randn(4, 4)).shape == (4, 3)
    assert copied.eval()(torch.randn(4, 4)).shape == (4, 3)


def test_more_draws_come_closer_to_the_posterior_mean() -> None:
    inputs = torch.randn(50, 4, generator=random())
    torch.manual_seed(0)
    with torch.no_grad():
        few, many, truth = (two_bayesian(samples).eval()(inputs).exp() for samples in (2, 50, 5000))
    assert float((many - truth).norm()) < 0.5 * float((few - truth).norm())


def test_ones_own_model_with_a_bayesian_convolution_can_average() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        VariationalConv2d(1, 2, 3, sigma=0.5), nn.ReLU(), nn.Flatten(), VariationalLinear(8, 3, sigma=0.5)
    )
    inputs = torch.randn(6, 1, 4, 4)
    assert model.eval()(inputs).shape == (6, 3)
    assert averaged(model, samples=4)(inputs).exp().sum(1).tolist() == pytest.approx([1.0] * 6)


# Conversion


def test_names_and_means_stay_and_the_original_is_not_touched() -> None:
    plain = network()
    before = copy.deepcopy(plain.state_dict())
    model = sy.bayesian(plain, last=2, sigma=0.05, log_sigma_lr_scale=0.2)
    added = {f"{layer}.{name}_log_sigma" for layer in (2, 4) for name in ("weight", "bias")}
    assert set(model.state_dict()) == set(before) | added
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(torch.equal(plain.state_dict()[name], value) for name, value in before.items())
    assert {type(module) for module in plain.modules()} == {nn.Sequential, nn.Linear, nn.Tanh}
    for each in gaussians(model):
        torch.testing.assert_close(each.log_variance, torch.full_like(each.mean, 2 * math.log(0.05)))
        assert each.mean.data_ptr() not in {tensor.data_ptr() for tensor in plain.parameters()}


@pytest.mark.parametrize("last", [0, 1, 3])
def test_with_a_tiny_sigma_a_model_computes_what_it_did(last: int) -> None:
    plain, inputs = network().eval(), torch.randn(6, 4, generator=random())
    model = bayesian(plain, last, sigma=1e-7)
    torch.testing.assert_close(model.train()(inputs), plain(inputs), rtol=0, atol=1e-5)
    torch.testing.assert_close(model.eval()(inputs).log_softmax(1), plain(inputs).log_softmax(1))
    assert sum(isinstance(module, VariationalLinear) for module in model.modules()) == last
    assert layout_of(model).num_parameters > layout_of(plain).num_parameters or last == 0


def test_a_single_linear_layer_can_be_the_model() -> None:
    model = bayesian(nn.Linear(4, 3, bias=False), last=1).eval()
    assert set(model.state_dict()) == {"weight", "weight_log_sigma"}
    assert model(torch.randn(5, 4)).shape == (5, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"last": 4}, "the last 4 linear layers .* has 3"),
        ({"last": -1}, "not -1"),
        ({"sigma": 0.0}, r"sigma .* not 0\.0"),
        ({"sigma": math.inf}, "sigma .* not inf"),
        ({"log_sigma_lr_scale": -0.5}, r"log_sigma_lr_scale .* not -0\.5"),
        ({"samples": 0}, "samples .* not 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bayesian(network(), **settings)


def test_a_model_is_not_made_bayesian_twice() -> None:
    with pytest.raises(InputError, match="already"):
        bayesian(bayesian(network(), last=1), last=1)


# By name


def test_the_zoo_makes_any_of_its_models_bayesian() -> None:
    torch.manual_seed(0)
    plain = zoo.hybrid_cnn((1, 28, 28), 10)
    torch.manual_seed(0)
    model = zoo.bayesian((1, 28, 28), 10)
    log_sigmas = [name for name in model.state_dict() if name.endswith("_log_sigma")]
    assert len(log_sigmas) == 6
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.state_dict().items())
    assert len(gaussians(zoo.bayesian((1, 8, 8), 10, base="mlp", last=1))) == 2


@pytest.mark.parametrize(
    ("base", "message"),
    [("hybrid-cn", "unknown model .* did you mean 'hybrid-cnn'"), ("bayesian", "unknown model 'bayesian'")],
)
def test_the_zoo_knows_what_can_be_made_bayesian(base: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.bayesian((1, 28, 28), 10, base=base)
