"""Images are kept in the order that is faster for a model, if the model works with it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.client.memory_format import memory_format_of
from steelyard.nn import zoo
from steelyard.task import FittedTask

IMAGES = (3, 16, 16)
FIRST, LAST = torch.contiguous_format, torch.channels_last
EXAMPLE = torch.randn(2, *IMAGES, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])


class Own(nn.Module):
    """A network as many tutorials write it."""

    def __init__(self, flatten: str = "reshape") -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head, self.flatten = nn.Linear(4 * 7 * 7, 3), flatten

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = getattr(self.features(images), self.flatten)(len(images), -1)
        return self.head(found)


class OnlyTrainsInOrder(Own):
    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)
        return self.head(features.view(len(images), -1) if self.training else features.flatten(1))


class OnlyDifferentiatesInOrder(Own):
    def forward(self, images: Tensor) -> Tensor:
        features = self.features[0](images)
        features.register_hook(lambda gradient: gradient.view(-1).view_as(gradient))
        return self.head(self.features[2](features.relu()).flatten(1))


RULE: dict[str, tuple[nn.Module, torch.memory_format]] = {
    "no convolution": (zoo.mlp(IMAGES, 3), FIRST),
    "convolutions": (zoo.light_cnn(IMAGES, 3), LAST),
    "small groups": (zoo.resnet(IMAGES, 3, width=8), FIRST),
    "large groups": (zoo.resnet(IMAGES, 3, width=64), LAST),
    "batch norm": (zoo.resnet(IMAGES, 3, norm="batch"), LAST),
    "own layers that work": (Own(), LAST),
    "own layers that do not": (Own("view"), FIRST),
    "own layers that do not train": (OnlyTrainsInOrder(), FIRST),
    "own layers that do not differentiate": (OnlyDifferentiatesInOrder(), FIRST),
}


@pytest.mark.parametrize("case", list(RULE))
def test_a_rule_chooses_the_order(case: str) -> None:
    model, wanted = RULE[case]
    before = {name: (value.clone(), value.stride()) for name, value in model.state_dict().items()}
    assert memory_format_of(model, FittedTask(example=EXAMPLE), "auto") == wanted
    for name, value in model.state_dict().items():  # the trial leaves the model alone
        assert torch.equal(value, before[name][0])
        assert value.stride() == before[name][1]


def test_own_layers_that_cannot_be_tried_stay_in_order() -> None:
    assert memory_format_of(Own(), FittedTask(), "auto") == FIRST


def test_a_setting_decides() -> None:
    task = FittedTask(example=EXAMPLE)
    assert memory_format_of(zoo.light_cnn(IMAGES, 3), task, "contiguous") == FIRST
    assert memory_format_of(zoo.resnet(IMAGES, 3), task, "channels-last") == LAST
    assert memory_format_of(zoo.mlp(IMAGES, 3), task, "channels-last") == FIRST
    with pytest.raises(sy.InputError, match="unknown memory format 'nhwc' of training: choose from auto"):
        sy.Training(memory_format="nhwc")  # type: ignore[arg-type]


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(count, *IMAGES, generator=draws), torch.randint(0, 3, (count,), generator=draws)


def run(model: nn.Module, memory_format: Any, **settings: Any) -> sy.Result:
    algorithm = sy.Algorithm(training=sy.Training(batch_size=8, memory_format=memory_format))
    clients = {"oslo": data(20, 1), "turin": data(24, 2)}
    return sy.Federation(clients, model, algorithm, test=data(30, 3), rounds=2, seed=4, **settings).run()


def test_both_orders_give_the_same_model_up_to_rounding() -> None:
    torch.manual_seed(0)
    model = zoo.light_cnn(IMAGES, 3)
    found, wanted = (run(model, name).model for name in ("channels-last", "contiguous"))
    for name, value in wanted.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, rtol=1e-3, atol=1e-5)
        assert found.state_dict()[name].is_contiguous()


@pytest.mark.parametrize("model", [Own("view"), OnlyTrainsInOrder()])
def test_models_that_need_contiguous_images_train(model: nn.Module) -> None:
    assert run(model, "auto", engine="serial").accuracy >= 0


def test_the_order_is_recorded_and_compared(tmp_path: Any) -> None:
    clients = {"oslo": data(20, 1), "turin": data(24, 2)}
    federation = sy.Federation(clients, zoo.light_cnn(IMAGES, 3), rounds=1)
    assert federation.settings()["memory format"] == "channels-last"
    federation.run(recorder=tmp_path / "run")
    assert sy.Run(tmp_path / "run").meta["memory_format"] == "channels-last"
