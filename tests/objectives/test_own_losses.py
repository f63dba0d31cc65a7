"""Losses of the user's own, of torch and of the model train as in a loop written by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steelyard as sy
from steelyard.client.own_code import has_own_terms
from steelyard.errors import InputError
from steelyard.nn.variational import bayesian
from steelyard.objectives import (
    Alignment,
    Anchor,
    BinaryCrossEntropy,
    CrossEntropy,
    Distillation,
    Elbo,
    Focal,
    ModelLoss,
    Objective,
    Proximal,
)
from steelyard.objectives.own_loss import OwnLoss, as_objective
from steelyard.seeds import generator

COUNT, SIZE, EPOCHS, ROUNDS = 21, 8, 2, 2
DRAW = torch.Generator().manual_seed(0)
X, CLASSES, NUMBERS = torch.randn(COUNT, 4, generator=DRAW), torch.arange(COUNT) % 3, torch.randn(COUNT)
LABELS = torch.randint(2, (COUNT, 3), generator=DRAW)
TOKENS, TAGS = torch.randn(COUNT, 5, 4, generator=DRAW), torch.randint(3, (COUNT, 5), generator=DRAW)
TAGS[:, 0] = -100
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])


def linear(width: int, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, width, **settings)


def federated(objective: Any, model: nn.Module, *data: Any, **settings: Any) -> nn.Module:
    training = sy.Training(lr=0.1, momentum=0.9, batch_size=SIZE, epochs=EPOCHS)
    algorithm = sy.Algorithm(objective=objective, training=training)
    settings = {"rounds": ROUNDS, "engine": "serial", "seed": 3, **settings}
    return sy.Federation({"oslo": data}, model, algorithm, **settings).run().model


def by_hand(loss: Callable[..., Tensor], model: nn.Module, inputs: Tensor, targets: Tensor) -> nn.Module:
    """One client's rounds, as in a tutorial of torch."""
    for round in range(1, ROUNDS + 1):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        start = [parameter.detach().clone() for parameter in model.parameters()]
        order = generator(3, round, "oslo", "train", "order")
        for _ in range(EPOCHS):
            for rows in torch.randperm(COUNT, generator=order).split(SIZE):
                optimizer.zero_grad()
                loss(model(inputs[rows]), targets[rows]).backward()
                optimizer.step()
        with torch.no_grad():  # the server adds the update to what it sent
            for parameter, before in zip(model.parameters(), start, strict=True):
                parameter.copy_(before + (parameter - before))
    return model


def assert_same(found: nn.Module, wanted: nn.Module) -> None:
    for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(one, other)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square().mean()


def each_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square()


def column(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda outputs, targets: loss(outputs.squeeze(1), targets)


@pytest.mark.parametrize(
    ("objective", "width", "inputs", "targets", "hand"),
    [
        pytest.param(squared, 1, X, NUMBERS, squared, id="function"),
        pytest.param(each_squared, 1, X, NUMBERS, squared, id="of-each-example"),
        pytest.param(F.mse_loss, 1, X, NUMBERS, column(F.mse_loss), id="functional"),
        pytest.param(
            partial(F.huber_loss, delta=0.1),
            1,
            X,
            NUMBERS,
            column(partial(F.huber_loss, delta=0.1)),
            id="partial",
        ),
        pytest.param(nn.HuberLoss(), 1, X, NUMBERS, column(nn.HuberLoss()), id="huber"),
        pytest.param(nn.L1Loss(reduction="sum"), 1, X, NUMBERS, column(nn.L1Loss(reduction="sum")), id="sum"),
        pytest.param(nn.L1Loss(reduction="none"), 1, X, NUMBERS, column(nn.L1Loss()), id="none"),
        pytest.param(nn.CrossEntropyLoss(), 3, X, CLASSES, nn.CrossEntropyLoss(), id="classes"),
        pytest.param(F.cross_entropy, 3, X, CLASSES, F.cross_entropy, id="functional-classes"),
        pytest.param(
            nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1),
            3,
            X,
            CLASSES,
            nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1),
            id="weight",
        ),
        pytest.param(
            CrossEntropy(class_weights=(0.5, 1.0, 3.0)),
            3,
            X,
            CLASSES,
            nn.CrossEntropyLoss(WEIGHTS),
            id="ours",
        ),
        pytest.param(
            nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0)),
            3,
            X,
            LABELS,
            lambda outputs, targets: F.binary_cross_entropy_with_logits(
                outputs, targets.float(), pos_weight=torch.tensor(2.0)
            ),
            id="labels",
        ),
        pytest.param(
            BinaryCrossEntropy(positive_weight=2.0),
            3,
            X,
            LABELS,
            lambda outputs, targets: F.binary_cross_entropy_with_logits(
                outputs, targets.float(), pos_weight=torch.tensor(2.0)
            ),
            id="our-labels",
        ),
        pytest.param(
            nn.CrossEntropyLoss(),
            3,
            TOKENS,
            TAGS,
            lambda outputs, targets: F.cross_entropy(outputs.movedim(-1, 1), targets),
            id="tokens",
        ),
        pytest.param(
            F.cross_entropy,
            3,
            TOKENS,
            TAGS,
            lambda outputs, targets: F.cross_entropy(outputs.movedim(-1, 1), targets),
            id="functional-tokens",
        ),
        pytest.param(
            "auto",
            3,
            TOKENS,
            TAGS,
            lambda outputs, targets: F.cross_entropy(outputs.movedim(-1, 1), targets),
            id="auto-tokens",
        ),
        pytest.param("torch.nn:HuberLoss", 1, X, NUMBERS, column(nn.HuberLoss()), id="named"),
        pytest.param(
            {"name": "torch.nn:HuberLoss", "delta": 0.1},
            1,
            X,
            NUMBERS,
            column(nn.HuberLoss(delta=0.1)),
            id="set",
        ),
    ],
)
def test_a_loss_trains_as_in_a_loop_written_by_hand(
    objective: Any, width: int, inputs: Tensor, targets: Tensor, hand: Callable[..., Tensor]
) -> None:
    found = federated(objective, linear(width), inputs, targets)
    assert_same(found, by_hand(hand, linear(width), inputs, targets))


def focal(outputs: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Lin et al. (2017), equation 4."""
    p = outputs.softmax(1).gather(1, targets.unsqueeze(1)).squeeze(1)
    return (-((1 - p) ** gamma) * p.log()).mean()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_is_its_formula(gamma: float) -> None:
    found = federated(Focal(gamma), linear(3), X, CLASSES)
    wanted = by_hand(partial(focal, gamma=gamma), linear(3), X, CLASSES)
    for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_focal_loss_is_the_mean_over_tokens_that_count() -> None:
    def hand(outputs: Tensor, targets: Tensor) -> Tensor:
        return focal(outputs[targets != -100], targets[targets != -100])

    found = federated(Focal(), linear(3), TOKENS, TAGS)
    for one, other in zip(
        found.parameters(), by_hand(hand, linear(3), TOKENS, TAGS).parameters(), strict=True
    ):
        torch.testing.assert_close(one, other)


class WithLoss(nn.Module):
    """Returns its loss with the labels that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear(3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.layer(x)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return {"logits": logits, "loss": loss}


@pytest.mark.parametrize("objective", ["auto", ModelLoss(), CrossEntropy()], ids=str)
def test_the_loss_of_a_model_trains_as_in_a_loop_written_by_hand(objective: Any) -> None:
    torch.manual_seed(0)
    data = {"x": X, "labels": CLASSES}
    training = sy.Training(lr=0.1, momentum=0.9, batch_size=SIZE, epochs=EPOCHS)
    algorithm = sy.Algorithm(objective=objective, training=training)
    run = sy.Federation({"oslo": data}, WithLoss(), algorithm, rounds=ROUNDS, engine="serial", seed=3).run
    assert_same(run().model, by_hand(F.cross_entropy, linear(3), X, CLASSES))


def test_a_model_without_a_loss_is_refused_where_its_loss_is_the_objective() -> None:
    with pytest.raises(sy.SteelyardError, match="the model returns no loss; take the objective 'auto'"):
        federated(ModelLoss(), linear(3), X, CLASSES)


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) + outputs.abs().mean()


def changed(before: nn.Module, after: nn.Module) -> bool:
    return any(not torch.equal(*pair) for pair in zip(before.parameters(), after.parameters(), strict=True))


@pytest.mark.parametrize(
    "own",
    [absolute, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=WEIGHTS)],
    ids=["own", "classes", "weight"],
)
@pytest.mark.parametrize("wrap", [Proximal, Alignment, Elbo])
def test_terms_are_added_to_a_loss_of_ones_own(wrap: Any, own: Any) -> None:
    objective: Objective = wrap(base=own)
    assert isinstance(objective.base, OwnLoss)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    settings: dict[str, Any] = {}
    if wrap is Elbo:
        model, settings = bayesian(model, last=1), {"sharing": "posterior", "combining": "rklb"}
    if "direction" in objective.needs:
        settings = {"weighing": "consensus"}
    algorithm = sy.Algorithm(objective=objective, training={"batch_size": 8}, **settings)
    clients = {name: (X.roll(place, 0), CLASSES.roll(place)) for place, name in enumerate(("a", "b", "c"))}
    result = sy.Federation(clients, model, algorithm, test=(X, CLASSES), rounds=3, engine="serial").run()
    assert [row["used"] for row in result.history] == [3, 3, 3]
    assert changed(model, result.model)


@pytest.mark.parametrize("wrap", [Distillation, Anchor])
def test_heads_are_taught_beside_a_loss_of_ones_own(wrap: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    algorithm = sy.Algorithm(objective=wrap(base=absolute), sharing="head", training={"batch_size": 8})
    clients = {name: (X.roll(place, 0), CLASSES.roll(place)) for place, name in enumerate(("a", "b", "c"))}
    result = sy.Federation(clients, model, algorithm, rounds=2, engine="serial").run()
    assert [row["used"] for row in result.history] == [3, 3]


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (nn.CrossEntropyLoss, r"give an instance as the objective: CrossEntropyLoss\(\)"),
        (3, "objective"),
    ],
)
def test_what_is_no_loss_is_refused(objective: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        sy.Algorithm(objective=objective)
    with pytest.raises(InputError):
        Proximal(base=objective)


def test_a_loss_that_is_no_tensor_is_refused() -> None:
    def no_tensor(outputs: Tensor, targets: Tensor) -> float:
        return 0.5

    with pytest.raises(sy.SteelyardError, match="the loss no_tensor returned float; return a tensor"):
        federated(no_tensor, linear(3), X, CLASSES)


@pytest.mark.parametrize(
    ("weights", "words"),
    [((1.0, 2.0), "there are 2 class_weights, but the model has 3"), ((-1.0,), "at least 0")],
)
def test_class_weights_that_do_not_fit_are_refused(weights: tuple[float, ...], words: str) -> None:
    with pytest.raises(sy.SteelyardError, match=words):
        federated(CrossEntropy(class_weights=weights), linear(3), X, CLASSES)


def test_code_of_ones_own_is_known_wherever_it_is() -> None:
    class Mine(nn.Module):
        pass

    for own in (absolute, partial(absolute), Mine()):
        assert has_own_terms(Proximal(base=own))
    for ours in (nn.HuberLoss(), F.mse_loss, CrossEntropy()):
        assert not has_own_terms(as_objective(ours))  # type: ignore[arg-type]


def random_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs + torch.rand(1), targets) * (1 + torch.rand(()))


def test_a_loss_that_draws_random_numbers_has_the_same_bits_every_time() -> None:
    found = federated(random_loss, linear(3), X, CLASSES)
    torch.rand(7)
    assert_same(federated(random_loss, linear(3), X, CLASSES, engine="pool"), found)
