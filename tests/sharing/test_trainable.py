"""Only what is trained travels: frozen parameters are never sent, and the result is the whole model."""

import pytest
import torch
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.engines import Engine, Pool, Serial
from steelyard.errors import InputError
from steelyard.layout import LARGE, Layout, flatten, layout_of, tensors_of
from steelyard.settings import Training
from steelyard.sharing import Trainable, WholeModel
from steelyard.sharing.base import Tensors
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Message


def network() -> nn.Sequential:
    """A frozen layer, a layer with running statistics, and a trained layer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


def clients() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    return {
        name: (torch.randn(12, 3, generator=random) + place, torch.arange(12) % 2)
        for place, name in enumerate(("oslo", "turin", "lagos"))
    }


def names(sharing: WholeModel, model: nn.Module) -> list[str]:
    return [entry.name for entry in sharing.layout(model).entries]


def test_frozen_parameters_do_not_travel() -> None:
    trained = ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert names(Trainable(), network()) == [*trained, "1.running_mean", "1.running_var"]
    assert names(Trainable(buffers="fixed"), network()) == trained


def test_fixed_buffers_return_to_the_values_that_came_with_the_model() -> None:
    model, sharing = network(), Trainable(buffers="fixed")
    layout = sharing.layout(model)
    message = sharing.read(tensors_of(model), layout)
    model.train()(torch.randn(8, 3))
    assert bool(model[1].running_mean.any())
    sharing.write(tensors_of(model), layout, message, {})
    assert not bool(model[1].running_mean.any())
    assert model[1].num_batches_tracked == 0


def test_a_tied_weight_travels_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    assert names(Trainable(), model) == ["0.weight"]
    model[0].weight.requires_grad_(False)
    model[1].requires_grad_(True)
    assert names(Trainable(), model) == ["1.weight", "1.bias"]


@pytest.mark.parametrize("engine", [Serial(), Pool(workers=2)])
def test_a_run_ends_with_the_whole_model_that_sharing_everything_gives(engine: Engine) -> None:
    algorithm = {sharing: Algorithm(sharing=sharing, training=Training(lr=0.1, batch_size=4))
                 for sharing in (WholeModel(), Trainable())}  # fmt: skip
    whole, part = (
        Federation(clients(), network(), each, rounds=3, engine=engine).run() for each in algorithm.values()
    )
    layout = WholeModel().layout(network())
    found = flatten(tensors_of(part.model), layout)
    assert torch.equal(found, flatten(tensors_of(whole.model), layout))
    assert not torch.equal(found, flatten(tensors_of(network()), layout))
    assert part.history[-1]["bytes"] == 2 * 3 * 4 * (8 + 10 + 8)
    assert part.history[-1]["bytes_of_whole_models"] == whole.history[-1]["bytes"] == 2 * 3 * 4 * (16 + 26)


def test_a_model_in_which_all_is_frozen_is_refused() -> None:
    with pytest.raises(InputError, match="has no parameters to train"):
        Trainable().layout(network().requires_grad_(False))


def test_a_wrong_choice_of_buffers_is_refused() -> None:
    with pytest.raises(InputError, match="buffers"):
        Trainable(buffers="kept")  # type: ignore[arg-type]


class Doubled(WholeModel):
    """Sends twice what it has."""

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return Message(2 * flatten(tensors, layout))


def test_a_rule_with_a_form_of_its_own_sends_that_of_large_models_too() -> None:
    model = nn.Linear(LARGE, 1)
    tensors, layout = tensors_of(model), layout_of(model)
    came_down = Message(torch.ones(layout.size))
    row = Message(torch.empty(layout.size))
    for sharing, times in ((WholeModel(), 1), (Doubled(), 2)):
        sharing.update(tensors, layout, came_down, row)
        assert torch.equal(row.mean, times * flatten(tensors, layout) - 1)
