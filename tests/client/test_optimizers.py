"""Any optimiser of torch, clipping, accumulation, precision and schedules: as loops written by hand."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.client.learner import batches_per_epoch, count_steps, descend
from steelyard.client.optimizers import check_training, is_fused, why_not_together
from steelyard.errors import InputError
from steelyard.schedules import Cosine, Linear, Progress
from steelyard.settings import TORCH_OPTIMIZERS, Training

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(22, 4, generator=RANDOM, dtype=torch.float64)
TARGETS = torch.arange(22) % 3
START = Progress()
BATCHES = [(INPUTS[start : start + 4], TARGETS[start : start + 4]) for start in range(0, 22, 4)]


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False)).to(dtype)


def loss_of(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda inputs, targets: F.cross_entropy(model(inputs), targets)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def descended(
    start: Progress = START, batches: Sequence[Any] = BATCHES, **settings: Any
) -> tuple[Tensor, list[float]]:
    """The parameters after the batches, and the losses."""
    model, training = network(), Training(**settings)
    steps = descend(loss_of(model), batches, list(model.parameters()), training, start=start, model=model)
    losses = [float(loss) for loss in steps]
    return flat(model), losses


def by_hand(make: Callable[[nn.Module], torch.optim.Optimizer], clip: float | None = None) -> Tensor:
    model = network()
    optimizer, loss = make(model), loss_of(model)
    for batch in BATCHES:

        def closure(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            optimizer.zero_grad()
            value = loss(*batch)
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            return value

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return flat(model)


ZEROS = {"muon": {"momentum": 0.0, "weight_decay": 0.0}, "adamw": {"weight_decay": 0.0}}


@pytest.mark.parametrize("name", sorted(set(TORCH_OPTIMIZERS) - {"sparseadam"}))
def test_every_optimiser_of_torch_steps_as_in_a_loop_by_hand(name: str) -> None:
    kind: Any = TORCH_OPTIMIZERS[name]
    wanted = by_hand(lambda model: kind(model.parameters(), lr=0.05, **ZEROS.get(name, {})))
    found, losses = descended(optimizer=name, lr=0.05)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert len(losses) == len(BATCHES)
    assert not torch.equal(found, flat(network()))


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_parameter_may_have_its_first_gradient_in_a_later_step(name: str) -> None:
    def used(model: nn.Module, batch: int) -> nn.Module:
        return model if batch % 2 else model[2:]  # type: ignore[index]

    inputs = [torch.randn(4, 8 if place % 2 == 0 else 4, dtype=torch.float64) for place in range(6)]
    more = {"momentum": 0.9} if name == "sgd" else {}
    model, by_hand_model = network(), network()
    optimizer = TORCH_OPTIMIZERS[name](by_hand_model.parameters(), lr=0.05, **more)  # type: ignore[call-arg]
    for place, batch in enumerate(inputs):
        optimizer.zero_grad()
        used(by_hand_model, place)(batch).square().sum().backward()
        optimizer.step()
    places = iter(range(6))
    steps = descend(
        lambda batch, _: used(model, next(places))(batch).square().sum(),
        [(batch, batch) for batch in inputs],
        list(model.parameters()),
        Training(optimizer=name, lr=0.05, **more),
    )
    assert len(list(steps)) == 6
    torch.testing.assert_close(flat(model), flat(by_hand_model), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "fused"),
    [
        ("sgd", {"nesterov": True}, True),
        ("sgd", {"dampening": 0.5}, False),
        ("adam", {"betas": [0.5, 0.9], "eps": 1e-3}, True),
        ("adam", {"amsgrad": True}, False),
        ("adamw", {"betas": [0.5, 0.9], "weight_decay": 0.3}, False),
    ],
)
def test_options_reach_the_optimiser(name: str, options: dict[str, Any], fused: bool) -> None:
    kind: Any = TORCH_OPTIMIZERS[name]
    more = {"momentum": 0.9} if name == "sgd" else {}
    wanted = by_hand(lambda model: kind(model.parameters(), lr=0.05, **more, **options))
    assert is_fused(Training(optimizer=name, options=options, **more)) is fused
    found, _ = descended(optimizer=name, lr=0.05, options=options, **more)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(found, descended(optimizer=name, lr=0.05, **more)[0])


def test_a_class_a_partial_and_a_function_are_optimisers_too() -> None:
    wanted = by_hand(lambda model: torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0))
    partials = partial(torch.optim.AdamW, lr=0.1, weight_decay=0.0)
    for optimizer in (torch.optim.AdamW, partials, lambda parameters: partials(parameters)):
        found, _ = descended(optimizer=optimizer)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_a_function_of_the_model_makes_groups_with_weight_decays_of_their_own() -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        first, last = model.parameters()
        return torch.optim.SGD([{"params": [first], "weight_decay": 0.5}, {"params": [last]}], lr=0.1)

    found, _ = descended(optimizer=make)
    torch.testing.assert_close(found, by_hand(make), rtol=0, atol=0)
    assert not torch.allclose(found, descended()[0])


def test_the_state_of_an_optimiser_is_new_in_every_round() -> None:
    made = []

    def make(parameters: list[Tensor]) -> torch.optim.Optimizer:
        made.append(torch.optim.Adam(parameters))
        return made[-1]

    for _ in range(2):
        descended(optimizer=make)
    assert len(made) == 2
    assert made[0].state is not made[1].state


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", torch.optim.NAdam])
@pytest.mark.parametrize("schedule", [Cosine(changes="step"), lambda progress: 1 / (1 + progress.step)])
def test_a_schedule_multiplies_the_learning_rate_of_every_step(optimizer: Any, schedule: Any) -> None:
    model, start = network(), Progress(2, 3, steps=len(BATCHES))
    kind: Any = Training(optimizer=optimizer).optimizer_class
    plain = kind(model.parameters(), lr=0.05, weight_decay=0.0)
    for step, batch in enumerate(BATCHES):
        plain.param_groups[0]["lr"] = 0.05 * schedule(Progress(2, 3, step, len(BATCHES)))
        plain.zero_grad()
        loss_of(model)(*batch).backward()
        plain.step()
    found, _ = descended(start, optimizer=optimizer, lr=0.05, schedule=schedule)
    torch.testing.assert_close(found, flat(model), rtol=1e-9, atol=1e-12)


def test_a_schedule_multiplies_the_learning_rates_of_all_groups() -> None:
    rates = []

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            rates.append([group["lr"] for group in self.param_groups])

    def make(model: nn.Module) -> torch.optim.Optimizer:
        first, last = model.parameters()
        return Watched([{"params": [first], "lr": 1.0}, {"params": [last], "lr": 0.1}])

    descended(Progress(2, 4, steps=6), optimizer=make, schedule=Linear())
    assert rates == [[0.75, pytest.approx(0.075)]] * len(BATCHES)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gradients_are_clipped_by_their_norm_over_all_parameters(optimizer: str) -> None:
    kind: Any = TORCH_OPTIMIZERS[optimizer]
    wanted = by_hand(lambda model: kind(model.parameters(), lr=0.1, weight_decay=0.0), clip=0.1)
    found, _ = descended(optimizer=optimizer, clip_norm=0.1)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(found, descended(optimizer=optimizer)[0])


def test_a_sparse_gradient_is_clipped() -> None:
    model = nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Flatten())
    batch = (torch.arange(3).view(3, 1), torch.arange(3))
    before = flat(model)
    list(descend(loss_of(model), [batch], list(model.parameters()), Training(lr=1.0, clip_norm=0.01)))
    assert float((flat(model) - before).norm()) == pytest.approx(0.01, rel=1e-3)


def test_closed_form_gradients_are_added_once_and_clipped_too() -> None:
    model = network()
    first, last = model.parameters()

    def add() -> None:
        assert first.grad is not None
        first.grad += 100.0

    settings = Training(lr=1.0, clip_norm=0.5, accumulate=2)
    before = flat(model)
    list(descend(loss_of(model), BATCHES[:2], [first, last], settings, add))
    change = before - flat(model)
    assert float(change.norm()) == pytest.approx(0.5, rel=1e-4)
    assert change[0] == pytest.approx(0.5 / 32**0.5, rel=0.02)


def test_accumulated_batches_are_one_batch_with_all_their_examples() -> None:
    joined = [
        (INPUTS[:12], TARGETS[:12]),
        (INPUTS[12:], TARGETS[12:]),
    ]  # the last batch has 2 examples, not 4
    found, losses = descended(accumulate=3, momentum=0.9)
    wanted, wanted_losses = descended(batches=joined, momentum=0.9)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert losses == pytest.approx(wanted_losses, rel=1e-12)


def test_the_last_step_may_have_fewer_batches_and_one_step_may_have_them_all() -> None:
    assert len(descended(accumulate=4)[1]) == 2
    assert len(descended(accumulate=100)[1]) == 1
    assert count_steps(Training(accumulate=4), lambda: 6) == 2
    assert count_steps(Training(accumulate=4, steps=9), lambda: 6) == 3
    assert count_steps(Training(epochs=2), lambda: batches_per_epoch(9, 4, pair=True)) == 4


def test_accumulated_batches_may_be_dicts_without_targets() -> None:
    model = network()
    batches = [({"x": {"deep": inputs}, "y": targets}, None) for inputs, targets in BATCHES]

    def loss(inputs: Any, targets: None) -> Tensor:
        return F.cross_entropy(model(inputs["x"]["deep"]), inputs["y"])

    list(descend(loss, batches, list(model.parameters()), Training(accumulate=3)))
    torch.testing.assert_close(flat(model), descended(accumulate=3)[0], rtol=0, atol=0)


def test_in_bfloat16_products_are_rounded_and_parameters_stay_float32() -> None:
    model, seen = network(torch.float32), []

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = model(inputs)
        seen.append(outputs.dtype)
        return F.cross_entropy(outputs, targets)

    batches = [(inputs.float(), targets) for inputs, targets in BATCHES]
    found = list(descend(loss, batches, list(model.parameters()), Training(precision="bfloat16")))
    assert set(seen) == {torch.bfloat16}
    assert {loss.dtype for loss in found} == {torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    wanted, _ = descended()
    torch.testing.assert_close(flat(model).double(), wanted, rtol=0.05, atol=0.01)
    assert not torch.allclose(flat(model).double(), wanted, rtol=1e-5, atol=1e-6)


def test_bfloat16_is_refused_where_autocast_has_no_effect() -> None:
    with pytest.raises(
        InputError, match=r"^training\.precision is bfloat16, but the model has parameters that"
    ):
        descended(precision="bfloat16")


# What is refused before the first round


@pytest.mark.parametrize("returned", [None, {"lr": 1}, torch.optim.SGD])
def test_a_function_that_returns_no_optimiser_is_named(returned: Any) -> None:
    def make(parameters: list[Tensor]) -> Any:
        return returned

    sentence = r"^the function make in training\.optimizer must return a torch\.optim\.Optimizer, not "
    with pytest.raises(InputError, match=sentence):
        descended(optimizer=make)
    with pytest.raises(InputError, match=sentence):
        check_training(Training(optimizer=make), network(), 3)


def test_an_optimiser_that_cannot_be_made_for_the_model_is_named() -> None:
    def make(parameters: list[Tensor]) -> torch.optim.Optimizer:
        raise KeyError("encoder")

    with pytest.raises(
        InputError, match=r"optimizer make cannot be made for this model: KeyError: 'encoder'\.$"
    ):
        check_training(Training(optimizer=make), network(), 3)
    with pytest.raises(
        InputError, match=r"optimizer muon cannot be made for this model: ValueError: Muon only"
    ):
        check_training(Training(optimizer="muon"), nn.Linear(2, 2), 3)


def test_a_schedule_for_an_optimiser_without_learning_rate_is_refused() -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

    check_training(Training(optimizer=Plain), network(), 3)
    with pytest.raises(InputError, match=r"^training\.schedule has no effect: Plain has no learning rate"):
        check_training(Training(optimizer=Plain, schedule="linear"), network(), 3)


def test_a_schedule_that_returns_no_factor_is_refused_before_the_first_round() -> None:
    with pytest.raises(InputError, match=r"the factor that training\.schedule returns must be a number"):
        check_training(Training(schedule=lambda progress: None), network(), 3)  # type: ignore[arg-type,return-value]


# Clients that train together


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"optimizer": "adamw", "options": {"betas": (0.9, 0.95)}, "weight_decay": 0.1}, None),
        ({"schedule": "cosine"}, None),
        ({"optimizer": "muon"}, "the optimiser muon may mix the parameters of clients"),
        ({"optimizer": torch.optim.AdamW}, "the optimiser AdamW may mix the parameters of clients"),
        ({"clip_norm": 1.0}, "training.clip_norm needs the gradient of each client by itself"),
        ({"accumulate": 2}, "training.accumulate is more than 1"),
        ({"precision": "bfloat16"}, "training.precision is bfloat16"),
        ({"schedule": Cosine(changes="step")}, "training.schedule may change within a round, in which"),
        ({"schedule": lambda progress: 1.0}, "training.schedule may change within a round, in which"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else str(value),
)
def test_what_clients_cannot_do_together_has_a_reason(settings: dict[str, Any], reason: str | None) -> None:
    found = why_not_together(Training(**settings))
    assert found is None if reason is None else str(found).startswith(reason)
