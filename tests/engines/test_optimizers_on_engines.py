"""Optimisers and schedules give the same bits on all engines, and are refused where they cannot work."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.schedules import Cosine, Linear, Progress
from steelyard.settings import Training


def groups(model: nn.Module) -> torch.optim.Optimizer:
    """Biases without weight decay, as many papers have it."""
    weights = [each for each in model.parameters() if each.dim() > 1]
    biases = [each for each in model.parameters() if each.dim() == 1]
    return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": biases}], lr=0.01)


def decaying(progress: Progress) -> float:
    return 1 / (progress.round + progress.step / progress.steps)


def clients(count: int = 4) -> dict[str, tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    sizes = [(7 * number) % 11 + 5 for number in range(count)]
    return {
        f"c{number:02d}": (torch.randn(size, 4, generator=random), torch.arange(size) % 3)
        for number, size in enumerate(sizes)
    }


def trained(
    training: Training, engine: Engine | None = None, data: Mapping[str, Any] | None = None
) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    settings: dict[str, Any] = {} if engine is None else {"engine": engine}
    algorithm = sy.Algorithm(training=training)
    result = sy.Federation(clients() if data is None else data, model, algorithm, rounds=3, **settings).run()
    assert all(row["used"] == len(data or clients()) for row in result.history)
    state: dict[str, Tensor] = result.model.state_dict()
    return state


TRAININGS = [
    Training(optimizer="adamw", lr=0.01, batch_size=4, options={"betas": (0.9, 0.95)}, schedule="cosine"),
    Training(optimizer=groups, batch_size=4, schedule=decaying),
    Training(batch_size=2, clip_norm=0.1, accumulate=2, schedule=Linear(warmup=1, changes="step")),
    Training(batch_size=4, precision="bfloat16"),
]


@pytest.mark.parametrize("training", TRAININGS, ids=["adamw", "own", "clip", "bfloat16"])
def test_serial_and_pool_give_the_same_bits(training: Training) -> None:
    serial, pool = trained(training, Serial()), trained(training, Pool(2))
    assert all(torch.equal(serial[name], pool[name]) for name in serial)


@pytest.mark.parametrize(
    "training",
    [
        Training(batch_size=4, schedule=Cosine(warmup=1)),
        Training(optimizer="adamw", lr=0.01, batch_size=4, weight_decay=0.1, schedule="linear"),
        Training(optimizer="rmsprop", lr=0.01, batch_size=4, momentum=0.5),
    ],
    ids=["cosine", "adamw", "rmsprop"],
)
def test_what_is_the_same_for_all_clients_can_be_trained_together(training: Training) -> None:
    serial, together = trained(training, Serial()), trained(training, Vectorized(1))
    for name, value in serial.items():
        torch.testing.assert_close(together[name], value, rtol=1e-3, atol=1e-4)


def test_the_vectorized_engine_says_what_it_cannot_train() -> None:
    sentence = r"^the vectorized engine cannot train this: training\.clip_norm needs .*\. Take another"
    with pytest.raises(InputError, match=sentence):
        trained(Training(clip_norm=1.0), Vectorized(1))


def test_auto_takes_another_engine_then() -> None:
    many = clients(40)
    training = Training(batch_size=4, clip_norm=0.1)
    auto, serial = trained(training, data=many), trained(training, Serial(), many)
    assert all(torch.equal(auto[name], serial[name]) for name in auto)


def test_a_schedule_by_rounds_is_that_of_a_run_with_the_rates_of_each_round() -> None:
    inputs, targets = clients()["c01"]
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    training = Training(lr=0.5, batch_size=100, schedule="cosine")
    federation = sy.Federation({"a": (inputs, targets)}, model, sy.Algorithm(training=training), rounds=4)
    found = federation.run().model.state_dict()
    for round in range(4):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.5 * (1 + math.cos(math.pi * round / 4)) / 2 * gradient
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_an_optimiser_that_does_not_work_is_refused_before_the_run() -> None:
    with pytest.raises(InputError, match=r"must return a torch\.optim\.Optimizer, not None"):
        trained(Training(optimizer=lambda parameters: None))  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="must be at least 0, not -1"):
        trained(Training(schedule=lambda progress: -1))


def test_a_partial_keeps_what_it_was_given() -> None:
    own = trained(Training(optimizer=partial(torch.optim.SGD, lr=0.1), batch_size=4), Serial())
    plain = trained(Training(batch_size=4), Serial())
    for name, value in plain.items():
        torch.testing.assert_close(own[name], value, rtol=1e-5, atol=1e-6)
