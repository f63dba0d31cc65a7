"""The posterior on its way: means and variances, and nothing lost or infinite on the way there and back."""

import copy
import math
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.client.evaluation import predict
from steelyard.client.working_model import working_copy_of
from steelyard.combining import Aalv, Combiner, Eaa, Rklb, Wb
from steelyard.data.examples import examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.errors import InputError
from steelyard.layout import flatten, layout_of, tensors_of
from steelyard.nn.variational import VariationalConv2d, bayesian, gaussians
from steelyard.objectives import Elbo
from steelyard.server.result import Result
from steelyard.settings import Training
from steelyard.sharing import Posterior, WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import EMPTY, Message

POSTERIOR = Posterior()


def network(scale: float = 0.1) -> nn.Sequential:
    """A point-valued layer, running statistics and two Bayesian layers, one without biases."""
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3, bias=False), nn.ReLU(), nn.Linear(3, 3)
    )
    model = bayesian(plain, last=2, log_sigma_lr_scale=scale)
    assert isinstance(model, nn.Sequential)
    return model


def read(model: nn.Module) -> Message:
    return POSTERIOR.read(tensors_of(model), POSTERIOR.layout(model))


def write(model: nn.Module, message: Message) -> nn.Module:
    POSTERIOR.write(tensors_of(model), POSTERIOR.layout(model), message, EMPTY)
    return model


def variance_of(message: Message) -> Tensor:
    assert message.variance is not None
    return message.variance


def drawn(size: int, lowest: float = -6.0, highest: float = 6.0) -> Message:
    torch.manual_seed(1)
    return Message(torch.randn(size), 10 ** torch.empty(size).uniform_(lowest, highest))


def test_the_vector_is_that_of_the_point_model() -> None:
    model = network()
    layout = POSTERIOR.layout(model)
    point = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3, bias=False), nn.ReLU(), nn.Linear(3, 3)
    )
    assert [(entry.name, entry.start) for entry in layout.entries] == [
        (entry.name, entry.start) for entry in layout_of(point).entries
    ]
    assert layout.num_parameters == 25 + 10 + 15 + 12
    point.load_state_dict({name: model.state_dict()[name] for name in point.state_dict()})
    assert torch.equal(read(model).mean, flatten(tensors_of(point), layout_of(point)))


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0])
def test_variances_are_those_of_the_layers_and_zero_elsewhere(scale: float) -> None:
    model = network(scale)
    model[2].weight_log_sigma.data.copy_((torch.arange(1.0, 16.0).view(3, 5) / 10).log() / scale)
    model[4].bias_log_sigma.data.fill_(math.log(7) / scale)
    variance = variance_of(read(model))
    assert variance[:35].tolist() == [0.0] * 35
    assert variance[35:50].tolist() == pytest.approx([(k / 10) ** 2 for k in range(1, 16)], rel=1e-5)
    assert variance[50:59].tolist() == pytest.approx([0.03**2] * 9, rel=1e-5)
    assert variance[59:62].tolist() == pytest.approx([49.0] * 3, rel=1e-5)
    assert variance[62:].tolist() == [0.0] * 10, "running statistics"


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_what_is_written_is_read(scale: float) -> None:
    model = network(scale)
    message = drawn(POSTERIOR.layout(model).size, -12, 12)
    found = read(write(model, message))
    assert torch.equal(found.mean, message.mean)
    torch.testing.assert_close(variance_of(found)[35:62], variance_of(message)[35:62], rtol=2e-5, atol=0)
    assert not variance_of(found)[:35].any(), "what is not Bayesian has no variance to be written"
    again = read(write(model, found))
    torch.testing.assert_close(variance_of(again), variance_of(found), rtol=2e-5, atol=0)


def test_a_written_model_draws_with_the_variance_that_came_down() -> None:
    model = network()
    message = read(model)
    variance_of(message)[35:50] = 4.0
    write(model, message)
    with torch.no_grad():
        outputs = model[2](torch.ones(20_000, 5))
    assert outputs.var(0).tolist() == pytest.approx([20.0] * 3, rel=0.05)  # five inputs of 1


@pytest.mark.parametrize("variance", [0.0, 1e-45, 1e-30, 1e30, math.inf])
def test_variances_that_no_layer_can_have_are_held_at_some_that_it_can(variance: float) -> None:
    model = network()
    message = read(model)
    variance_of(message)[35:62] = variance
    write(model, message)
    kept = variance_of(read(model))[35:62]
    assert bool(((kept >= 1e-21) & (kept <= 1e21)).all())
    assert bool((kept < 1).all()) == (variance < 1)
    outputs = model.train()(torch.randn(6, 4))
    outputs.sum().backward()
    gradients = [tensor.grad for each in gaussians(model) for tensor in (each.mean, each.log_sigma)]
    assert all(each is not None and bool(each.isfinite().all()) for each in (outputs, *gradients))


def test_an_extreme_log_sigma_is_sent_as_a_finite_variance() -> None:
    model = network()
    model[2].weight_log_sigma.data.fill_(1e6)
    model[4].weight_log_sigma.data.fill_(-1e6)
    variance = variance_of(read(model))
    assert variance[35:50].tolist() == pytest.approx([1e20] * 15)
    assert variance[50:59].tolist() == pytest.approx([1e-20] * 9)


def test_nothing_of_the_last_client_is_left() -> None:
    model = network()
    layout, message = POSTERIOR.layout(model), read(model)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(1)
    POSTERIOR.write(tensors_of(model), layout, message, EMPTY)
    for name, value in before.items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-6, atol=0)
    assert float(model[2].log_sigma_lr_scale) == pytest.approx(0.1)
    assert POSTERIOR.keep(tensors_of(model), layout) == {}


def test_a_convolution_in_another_order_of_memory_reads_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(VariationalConv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 3))
    layout = POSTERIOR.layout(model)
    message = drawn(layout.size)
    turned = working_copy_of(model, torch.channels_last)
    assert not turned.model[0].weight_log_sigma.is_contiguous()
    POSTERIOR.write(turned.tensors, layout, message, EMPTY)
    found, plain = POSTERIOR.read(turned.tensors, layout), read(write(model, message))
    assert torch.equal(found.mean, plain.mean)
    assert torch.equal(variance_of(found), variance_of(plain))


def test_a_model_that_is_one_layer_has_a_posterior() -> None:
    model = bayesian(nn.Linear(2, 3), last=1, sigma=0.5)
    message = read(model)
    assert variance_of(message).tolist() == pytest.approx([0.25] * 9)
    found = read(write(model, message._replace(variance=4 * variance_of(message))))
    assert variance_of(found).tolist() == pytest.approx([1.0] * 9)


def test_a_point_model_has_no_variance() -> None:
    model = nn.Linear(2, 3)
    assert not variance_of(read(model)).any()


def test_tied_means_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(4, 6))
    model[0].weight = model[2].weight
    with pytest.raises(InputError, match=r"'2\.weight' is Bayesian and tied"):
        POSTERIOR.layout(bayesian(model, last=1))


# In a federation


def parties(count: int = 4) -> dict[str, tuple[Tensor, Tensor]]:
    """Three clouds that overlap."""
    made = {}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        targets = torch.randint(0, 3, (30 + 9 * number,), generator=generator)
        centers = 2 * torch.eye(3, 4)[targets]
        made[f"c{number}"] = (centers + torch.randn(len(targets), 4, generator=generator), targets)
    return made


def run(engine: Engine, combining: Combiner, **settings: Any) -> Result:
    algorithm = Algorithm(
        objective=Elbo(),
        sharing=Posterior(),
        combining=combining,
        training=Training(optimizer="adam", lr=0.01, batch_size=8, epochs=2),
    )
    test = parties(5)["c4"]
    return Federation(parties(), network(), algorithm, test=test, rounds=3, engine=engine, **settings).run()


@pytest.mark.parametrize("combining", [Rklb(), Eaa(), Wb(), Aalv()], ids=lambda rule: type(rule).__name__)
def test_a_federation_of_posteriors_learns_and_any_engine_gives_the_same_bits(combining: Combiner) -> None:
    serial, pool = run(Serial(), combining), run(Pool(2), combining)
    assert serial.history == pool.history
    assert serial.clients == pool.clients
    for name, value in serial.model.state_dict().items():
        assert torch.equal(pool.model.state_dict()[name], value), name
    assert serial.accuracy > 0.6
    losses = [float(row["loss"]) for row in serial.clients if row["client"] == "c0"]  # type: ignore[arg-type]
    assert losses[2] < losses[0]
    sigmas = torch.cat([each.log_variance.detach().flatten() for each in gaussians(serial.model)])
    moves = sigmas - 2 * math.log(0.03)
    assert bool((moves.abs() > 0.01).all()), "variances are learnt"
    assert float(moves.abs().max()) < 0.2, "no faster than log_sigma_lr_scale allows"


def test_where_processes_cannot_fork_the_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = run(Serial(), Rklb())
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert run(Pool(2), Rklb()).history == wanted.history


def test_equal_posteriors_stay_where_they_are() -> None:
    algorithm = Algorithm(Elbo(), Posterior(), combining=Rklb(), training=Training(steps=0))
    federation = Federation(parties(), network(), algorithm, rounds=2, engine=Serial())
    before, after = read(network()), read(federation.run().model)
    assert torch.equal(after.mean, before.mean)
    torch.testing.assert_close(variance_of(after), variance_of(before), rtol=1e-5, atol=0)


def test_whole_model_can_share_a_bayesian_model_too() -> None:
    algorithm = Algorithm(Elbo(), WholeModel(), training=Training(optimizer="adam", lr=0.01))
    assert Federation(parties(), network(), algorithm, rounds=1, engine=Serial()).run().history


def test_a_spec_runs_and_its_record_has_the_posterior(tmp_path: Path) -> None:
    spec = {
        "model": {"name": "bayesian", "base": "mlp", "last": 2, "samples": 5},
        "objective": "elbo",
        "sharing": "posterior",
        "combining": "rklb",
        "engine": "serial",
        "rounds": 4,
        "data": {"clients": 3},
        "training": {"optimizer": "adam", "lr": 0.01, "epochs": 2},
    }
    result = sy.run(spec, out=tmp_path)
    assert result.accuracy > 0.8
    assert result.path is not None
    loaded = sy.load_model(result.path)
    for name, value in result.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    data = examples(torch.rand(300, 1, 8, 8), torch.zeros(300, dtype=torch.int64))
    assert torch.equal(predict(loaded, data), predict(result.model, data))


def test_a_rule_that_would_lose_the_variances_is_refused() -> None:
    with pytest.raises(InputError, match="would lose it"):
        Algorithm(sharing=Posterior())
