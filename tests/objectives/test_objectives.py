"""Objectives: their gradients are those that autograd finds for the formula."""

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
from steelyard.engines import Auto, Pool, Serial
from steelyard.errors import InputError
from steelyard.layout import flatten, layout_of, tensors_of
from steelyard.objectives import CrossEntropy, Objective, Proximal, SquaredError
from steelyard.objectives.base import Local, LocalLoss
from steelyard.objectives.cross_entropy import log_excess
from steelyard.settings import Training
from steelyard.sharing import WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(12, 4, generator=RANDOM, dtype=torch.float64), torch.arange(12) % 3


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def bind(objective: Objective, model: nn.Module) -> LocalLoss:
    return objective.bind(
        Local(model, trained(model), Broadcast(1, Message(torch.zeros(0))), len(INPUTS), layout_of(model))
    )


def gradients(model: nn.Module, local_loss: LocalLoss) -> list[Tensor]:
    model.zero_grad()
    local_loss.loss(INPUTS, TARGETS).backward()
    return [parameter.grad.clone() for parameter in trained(model) if parameter.grad is not None]


def wander(model: nn.Module, local_loss: LocalLoss) -> None:
    """A few steps away from where the objective was bound."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        local_loss.loss(INPUTS, TARGETS).backward()
        optimizer.step()


def full(model: nn.Module, local_loss: LocalLoss) -> list[Tensor]:
    """The gradients of the loss and what the objective adds to them."""
    gradients(model, local_loss)
    local_loss.add_gradient()
    return [parameter.grad.clone() for parameter in trained(model) if parameter.grad is not None]


def penalised(model: nn.Module, start: list[Tensor], mu: float) -> list[Tensor]:
    """The gradient of cross-entropy + μ/2 ‖w − w_t‖² by autograd."""
    weights = list(model.parameters())
    distance = sum(((now - then) ** 2).sum() for now, then in zip(weights, start, strict=True))
    loss = F.cross_entropy(model(INPUTS), TARGETS) + mu / 2 * distance
    return list(torch.autograd.grad(loss, weights))


@pytest.mark.parametrize(
    ("objective", "mu"),
    [
        (Proximal(mu=0.7), 0.7),
        (Proximal(mu=0.3, base=Proximal(mu=0.5)), 0.8),
        (Proximal(mu=0.1, base=Proximal(mu=0.1, base=Proximal(mu=0.1))), 0.3),
    ],
)
def test_proximal_adds_the_gradient_of_half_mu_times_the_squared_distance(
    objective: Objective, mu: float
) -> None:
    model = network()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    local_loss = bind(objective, model)
    wander(model, local_loss)
    both = zip(
        full(model, local_loss), penalised(model, start, mu), gradients(model, local_loss), strict=True
    )
    for found, wanted, plain in both:
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        assert not torch.allclose(found, plain, rtol=1e-3), "the test has wandered far enough to tell"


@pytest.mark.parametrize("balance", [0.3, 1.0])
def test_balance_puts_the_mix_of_all_in_the_place_of_the_clients_own(balance: float) -> None:
    """Ten of the first class, two of the second, none of the third; half an example more for each class."""
    model = network()
    labels = torch.tensor([0] * 10 + [1] * 2)
    broadcast = Broadcast(1, Message(torch.zeros(0)), {"classes": torch.tensor([49.5, 29.5, 19.5])})
    local = Local(model, trained(model), broadcast, 12, layout_of(model), lambda: labels)
    local_loss = CrossEntropy(balance=balance).bind(local)
    own = torch.tensor([10.75, 2.45, 0.3], dtype=torch.float64) / 13.5
    excess = own / torch.tensor([0.5, 0.3, 0.2])
    powers = model(INPUTS).exp() * excess**balance
    wanted = -(powers[torch.arange(12), TARGETS] / powers.sum(1)).log().mean()
    torch.testing.assert_close(local_loss.loss(INPUTS, TARGETS), wanted, rtol=1e-6, atol=1e-6)
    assert local_loss.losses is None, "clients have different mixes: one binding cannot serve them all"


def test_balance_changes_nothing_for_a_client_with_the_mix_of_all() -> None:
    counts = torch.tensor([6, 3, 1])
    torch.testing.assert_close(log_excess(counts, 1e6 * counts.float()), torch.zeros(3), atol=1e-4, rtol=0)


def test_a_run_tells_its_clients_what_they_have_together_and_only_if_it_is_needed() -> None:
    torch.manual_seed(0)
    clients = {
        "a": (torch.randn(5, 4), torch.tensor([0, 0, 1, 1, 1])),
        "b": (torch.randn(2, 4), torch.tensor([1, 1])),
    }
    for balance, wanted in ((0.0, None), (1.0, [2, 5, 0])):
        algorithm = Algorithm(objective=CrossEntropy(balance=balance))
        federation = Federation(clients, network(torch.float32), algorithm, rounds=1)
        with federation.open() as sites:
            found = federation.server(sites).announced.get("classes")
        assert (None if found is None else found.tolist()) == wanted
    engines = (Serial(), Pool(workers=2), Auto())
    runs = [
        Federation(clients, network(torch.float32), algorithm, rounds=2, engine=engine)
        .run()
        .model.state_dict()
        for engine in engines
    ]
    assert all(torch.equal(runs[0][name], other[name]) for other in runs[1:] for name in other)


def test_balance_asks_for_the_labels_of_the_client_that_trains() -> None:
    model = network(torch.float32)
    skewed = examples(INPUTS, torch.tensor([0] * 10 + [1, 2]))
    layout = layout_of(model)
    offers = {"classes": torch.full((3,), 1000.0)}
    broadcast = Broadcast(1, Message(flatten(tensors_of(model), layout)), offers)

    def lead(balance: float) -> float:
        """Of the frequent class before the others, on average."""
        objective = CrossEntropy(balance=balance)
        learner = Learner(objective, WholeModel(), layout, Training(lr=0.1, batch_size=12, epochs=100), 0)
        learner.train(worker := working_model_in(model), "a", skewed, broadcast, {})
        logits = worker.model(INPUTS.float()).detach().mean(0)
        return float(logits[0] - logits[1:].mean())

    assert lead(1.0) < lead(0.5) < lead(0.0) - 0.3


@pytest.mark.parametrize("balance", [-0.1, 1.1, float("nan")])
def test_balance_is_a_share(balance: float) -> None:
    with pytest.raises(InputError, match="balance must be from 0 to 1"):
        CrossEntropy(balance=balance)


def test_proximal_adds_nothing_where_the_round_began() -> None:
    model = network()
    local_loss = bind(Proximal(mu=10), model)
    assert all(map(torch.equal, full(model, local_loss), gradients(model, local_loss)))


def learn(objective: Objective, model: nn.Module | None = None) -> Tensor:
    model = model or network(torch.float32)
    layout = layout_of(model)
    learner = Learner(objective, WholeModel(), layout, Training(lr=0.5, batch_size=5, epochs=4), seed=0)
    data = examples(INPUTS, TARGETS)
    broadcast = Broadcast(1, Message(flatten(tensors_of(model), layout)))
    return learner.train(working_model_in(model), "a", data, broadcast, {}).reply.message.mean


def test_proximal_without_mu_is_cross_entropy_to_the_last_bit() -> None:
    assert torch.equal(learn(Proximal(mu=0)), learn(CrossEntropy()))


def test_the_larger_mu_the_shorter_the_update() -> None:
    norms = [float(learn(Proximal(mu=mu)).norm()) for mu in (0, 0.1, 1)]
    assert norms == sorted(norms, reverse=True)
    assert norms[2] < 0.8 * norms[0]


def test_parameters_that_the_loss_does_not_use_or_that_are_frozen_stay_where_they_are() -> None:
    def model(extra: bool) -> nn.Module:
        made = nn.Sequential(network(torch.float32), nn.Identity())
        if extra:
            made[1].unused = nn.Parameter(torch.ones(2))
            made[1].frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        return made

    with_extra, without = learn(Proximal(mu=0.5), model(True)), learn(Proximal(mu=0.5), model(False))
    assert with_extra[-4:].tolist() == [0, 0, 0, 0]
    assert torch.equal(with_extra[:-4], without)


def test_cross_entropy_is_the_mean_over_the_batch() -> None:
    model = network()
    found = bind(CrossEntropy(), model).loss(INPUTS, TARGETS)
    rows = zip(model(INPUTS).tolist(), TARGETS.tolist(), strict=True)
    by_hand = [math.log(sum(math.exp(value) for value in row)) - row[target] for row, target in rows]
    assert found.item() == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-12)


def test_squared_error_is_the_mean_over_the_batch_of_what_each_example_has() -> None:
    model, targets = nn.Linear(4, 1).double(), INPUTS.sum(1).float()
    local_loss = bind(SquaredError(), model)
    assert local_loss.losses is not None
    outputs = [row[0] for row in model(INPUTS).tolist()]
    by_hand = [(output - target) ** 2 for output, target in zip(outputs, targets.tolist(), strict=True)]
    assert local_loss.losses(INPUTS, targets).tolist() == pytest.approx(by_hand, rel=1e-12)
    assert local_loss.loss(INPUTS, targets).item() == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-12)


def test_squared_error_does_not_spread_a_target_over_many_outputs() -> None:
    model = nn.Linear(4, len(INPUTS)).double()  # as many outputs as targets would fit by accident
    with pytest.raises(RuntimeError, match="shape"):
        bind(SquaredError(), model).loss(INPUTS, INPUTS.sum(1))


def test_a_wrapped_objective_wants_the_targets_of_what_it_wraps() -> None:
    assert [CrossEntropy().targets, Proximal().targets] == ["classes", "classes"]
    assert [SquaredError().targets, Proximal(base=SquaredError()).targets] == ["numbers", "numbers"]


@pytest.mark.parametrize("wrap", [lambda base: base, lambda base: Proximal(mu=0.5, base=base)])
def test_label_smoothing_spreads_a_share_over_all_classes_also_when_wrapped(wrap: Any) -> None:
    model = network()
    log_probabilities = model(INPUTS).log_softmax(1)
    plain = -log_probabilities[torch.arange(12), TARGETS].mean()
    spread = -log_probabilities.mean()
    loss = bind(wrap(CrossEntropy(label_smoothing=0.2)), model).loss(INPUTS, TARGETS)
    torch.testing.assert_close(loss, 0.8 * plain + 0.2 * spread)
    assert abs((plain - spread).item()) > 1e-3


def test_what_a_base_objective_adds_is_kept_under_proximal() -> None:
    class Pull(Objective):
        def bind(self, local: Local) -> LocalLoss:
            def add_gradient() -> None:
                for parameter in local.parameters:
                    assert parameter.grad is not None
                    parameter.grad += 100

            return LocalLoss(CrossEntropy().bind(local).loss, add_gradient)

    model = network()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    local_loss = bind(Proximal(mu=0.7, base=Pull()), model)
    wander(model, local_loss)
    for found, wanted in zip(full(model, local_loss), penalised(model, start, 0.7), strict=True):
        torch.testing.assert_close(found, wanted + 100)
