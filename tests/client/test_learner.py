"""The training loop: the same numbers as a loop written by hand, and the same draws for the same key."""

import math
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.client.learner import Learner, Trained, batches
from steelyard.client.working_model import working_model_in
from steelyard.data.examples import Examples, examples
from steelyard.errors import InputError
from steelyard.layout import flatten, layout_of, load, tensors_of
from steelyard.objectives import CrossEntropy
from steelyard.settings import Training
from steelyard.sharing import WholeModel
from steelyard.types import Broadcast, Message

RANDOM = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(10, 4, generator=RANDOM), torch.arange(10) % 3


class Recording(Examples):
    """Examples that keep which positions were asked for."""

    def batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        self.__dict__.setdefault("asked", []).append(positions)
        return super().batch(positions)


def recording(count: int = 10, inputs: Tensor = INPUTS) -> Recording:
    return Recording(inputs, TARGETS, torch.arange(count))


def asked(data: Recording) -> list[Tensor]:
    positions: list[Tensor] = data.__dict__["asked"]
    return positions


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def train(
    model: nn.Module,
    data: Examples,
    *,
    client: str = "a",
    round: int = 1,
    seed: int = 0,
    start: Tensor | None = None,
    **training: Any,
) -> Trained:
    layout = layout_of(model)
    start = flatten(tensors_of(model), layout) if start is None else start
    learner = Learner(CrossEntropy(), WholeModel(), layout, Training(**training), seed)
    return learner.train(working_model_in(model), client, data, Broadcast(round, Message(start)), {})


SETTINGS: list[dict[str, Any]] = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"optimizer": "adam", "lr": 0.01},
    {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
]


def plain_loop(model: nn.Module, data: Recording, settings: dict[str, Any]) -> tuple[Tensor, list[float]]:
    """The update and the losses of torch's own optimisers over the batches that were asked for."""
    layout = layout_of(model)
    before = flatten(tensors_of(model), layout)
    options = {name: value for name, value in settings.items() if name != "optimizer"}
    kind = torch.optim.Adam if settings.get("optimizer") == "adam" else torch.optim.SGD
    optimizer = kind(model.parameters(), **options)
    losses = []
    for positions in asked(data):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.inputs[positions]), TARGETS[positions])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return flatten(tensors_of(model), layout) - before, losses


@pytest.mark.parametrize("settings", SETTINGS)
def test_training_equals_a_plain_loop_over_the_same_batches(settings: dict[str, Any]) -> None:
    data = recording(inputs=INPUTS.double())
    reply = train(linear().double(), data, batch_size=4, epochs=3, **settings).reply
    update, losses = plain_loop(linear().double(), data, settings)
    torch.testing.assert_close(reply.message.mean, update, rtol=1e-9, atol=1e-12)
    assert reply.metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert reply.metrics["steps"] == len(losses) == 9
    assert reply.client == "a"
    assert reply.num_examples == 10


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_the_order_of_channels_in_memory_does_not_change_what_is_learned(
    settings: dict[str, Any], format: torch.memory_format
) -> None:
    def convolutions() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Conv2d(6, 5, 1), nn.Flatten(),
            nn.Linear(20, 3),
        ).double()  # fmt: skip

    images = torch.randn(10, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    data = recording(inputs=images)
    reply = train(convolutions().to(memory_format=format), data, batch_size=4, epochs=2, **settings).reply
    update, _ = plain_loop(convolutions(), data, settings)
    torch.testing.assert_close(reply.message.mean, update, rtol=1e-8, atol=1e-11)


def test_the_update_is_the_model_after_less_what_came_down_whatever_the_scratch_model_held() -> None:
    model = linear()
    layout = layout_of(model)
    start = torch.randn(layout.size, generator=torch.Generator().manual_seed(1))
    kept = start.clone()
    first = train(model, recording(), start=start, lr=0.5).reply
    assert torch.equal(first.message.mean, flatten(tensors_of(model), layout) - start)
    assert float(first.message.mean.abs().max()) > 0
    assert torch.equal(start, kept)
    again = train(model, recording(), start=start, lr=0.5).reply  # the same model, now trained
    assert torch.equal(first.message.mean, again.message.mean)


def test_frozen_parameters_stay_as_they_came_down() -> None:
    model = linear()
    for parameter in model[0].parameters():
        parameter.requires_grad = False
    update = train(model, recording(), weight_decay=0.1).reply.message.mean
    assert update[:40].count_nonzero() == 0
    assert update[40:].count_nonzero() > 0


# Batches


def sizes(count: int, pair: bool = False, **training: Any) -> list[int]:
    order = torch.Generator().manual_seed(0)
    return [len(part) for part in islice(batches(count, Training(**training), order, pair), 1000)]


def test_every_epoch_is_a_new_shuffle_of_all_examples() -> None:
    drawn = list(batches(10, Training(batch_size=4, epochs=3), torch.Generator().manual_seed(0), False))
    assert [len(part) for part in drawn] == [4, 4, 2] * 3
    epochs = [torch.cat(drawn[start : start + 3]).tolist() for start in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 9])
def test_steps_are_counted_exactly_across_epochs_and_win_over_epochs(steps: int) -> None:
    assert sizes(10, batch_size=4, epochs=2, steps=steps) == ([4, 4, 2] * 3)[:steps]
    data = recording()
    reply = train(linear(), data, batch_size=4, steps=steps).reply
    assert reply.metrics["steps"] == len(asked(data)) == steps


def test_steps_across_epochs_still_shuffle_anew() -> None:
    drawn = list(batches(6, Training(batch_size=3, steps=4), torch.Generator().manual_seed(0), False))
    epochs = [torch.cat(drawn[:2]).tolist(), torch.cat(drawn[2:]).tolist()]
    assert [sorted(epoch) for epoch in epochs] == [list(range(6))] * 2
    assert epochs[0] != epochs[1]


def test_a_single_left_over_example_joins_the_batch_before_it_only_where_it_must() -> None:
    assert sizes(9, batch_size=4) == [4, 4, 1]
    assert sizes(9, pair=True, batch_size=4) == [4, 5]
    assert sizes(10, pair=True, batch_size=4) == [4, 4, 2]
    assert sizes(1, pair=True, batch_size=4) == [1]
    assert sizes(9, pair=True, batch_size=4, steps=3) == [4, 5, 4]


def test_batch_norm_trains_with_one_example_left_over() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    data = recording(9)
    update = train(model, data, batch_size=4).reply.message.mean
    assert [len(part) for part in asked(data)] == [4, 5]
    assert bool(torch.isfinite(update).all())
    assert update[-10:].count_nonzero() == 10, "the running statistics travel too"


# Randomness


def test_shuffles_differ_by_round_client_and_seed_and_repeat_for_the_same() -> None:
    def order(**key: Any) -> tuple[int, ...]:
        data = recording()
        train(linear(), data, **key)
        return tuple(torch.cat(asked(data)).tolist())

    keys: list[dict[str, Any]] = [{}, {"round": 2}, {"client": "b"}, {"seed": 1}]
    assert len({order(**key) for key in keys}) == 4
    assert all(order(**key) == order(**key) for key in keys)


def dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3))


def test_dropout_draws_the_same_whatever_was_drawn_before_and_leaves_no_trace() -> None:
    model = dropout()
    start = flatten(tensors_of(model), layout_of(model))
    updates = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        updates.append(train(model, recording(), start=start).reply.message.mean)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*updates)
    other = train(model, recording(), start=start, round=2).reply.message.mean
    assert not torch.equal(other, updates[0])


def test_dropout_is_on_in_training_even_if_the_model_was_left_in_evaluation_mode() -> None:
    model = dropout()
    start = flatten(tensors_of(model), layout_of(model))
    trained = train(model, recording(), start=start, batch_size=10).reply.message.mean
    model.eval()
    again = train(model, recording(), start=start, batch_size=10).reply.message.mean
    assert torch.equal(trained, again)
    load(tensors_of(model), start, layout_of(model))
    F.cross_entropy(model.eval()(INPUTS), TARGETS).backward()
    first = model[0].weight
    assert first.grad is not None
    without = (-0.1 * first.grad).flatten()
    assert not torch.allclose(trained[: first.numel()], without, atol=1e-4)


# Settings


@pytest.mark.parametrize("name", ["lr", "batch_size", "epochs"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_setting_that_trains_nothing_is_named(name: str, value: int) -> None:
    with pytest.raises(InputError, match=rf"training\.{name} must be greater than 0, not {value}"):
        Training(**{name: value})


def test_steps_are_not_negative() -> None:
    with pytest.raises(InputError, match=r"training\.steps must be at least 0, not -1"):
        Training(steps=-1)


def test_a_loss_that_is_not_finite_is_reported_as_it_is() -> None:
    data = examples((torch.full((4, 4), math.nan), torch.zeros(4, dtype=torch.int64)))
    assert isinstance(data, Examples)
    reply = train(linear(), data).reply
    assert math.isnan(reply.metrics["loss"])
    assert bool(reply.message.mean.isnan().any())


def test_without_steps_a_client_replies_and_nothing_moves() -> None:
    reply = train(linear(), recording(), steps=0).reply
    assert not reply.message.mean.any()
    assert reply.metrics == {"steps": 0.0}
    assert reply.num_examples == 10
