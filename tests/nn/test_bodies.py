"""Three families of networks: each ends in an embedding and one linear head, and each learns."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.nn.bodies import mobilenet, resnet, vgg

MNIST, COLOUR = (1, 28, 28), (3, 32, 32)
Factory = Callable[..., nn.Sequential]

families = pytest.mark.parametrize("factory", [mobilenet, resnet, vgg])


def made(factory: Factory, shape: tuple[int, ...], classes: int = 10, **settings: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return factory(shape, classes, **settings)


def images(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


@families
@pytest.mark.parametrize("shape", [MNIST, COLOUR, (1, 16, 16), (2, 17, 30)])
def test_an_image_becomes_an_embedding_and_that_a_number_per_class(
    factory: Factory, shape: tuple[int, ...]
) -> None:
    model = made(factory, shape, 7)
    embeddings = model[0](images(2, shape))
    assert embeddings.shape == (2, 64)
    assert float(embeddings.detach().min()) >= 0
    assert model(images(2, shape)).shape == (2, 7)


@families
def test_the_head_is_the_last_module_and_linear(factory: Factory) -> None:
    model = made(factory, COLOUR, 7, embed=20)
    *_, last = model.modules()
    assert last is model[-1]
    assert isinstance(last, nn.Linear)
    assert (last.in_features, last.out_features) == (20, 7)
    assert list(model.state_dict())[-2:] == ["1.weight", "1.bias"]


@families
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_gradients_reach_every_parameter(factory: Factory, norm: str) -> None:
    model = made(factory, COLOUR, norm=norm)
    F.cross_entropy(model(images(8, COLOUR)), torch.arange(8)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


@families
def test_only_batch_normalisation_keeps_running_statistics(factory: Factory) -> None:
    assert list(made(factory, MNIST).buffers()) == []
    kept = [name for name, _ in made(factory, MNIST, norm="batch").named_buffers()]
    assert any(name.endswith("running_mean") for name in kept)


@families
def test_by_default_an_example_does_not_depend_on_those_beside_it(factory: Factory) -> None:
    model, batch = made(factory, MNIST), images(4, MNIST)
    torch.testing.assert_close(model(batch)[:1], model(batch[:1]))


@families
def test_they_are_small_and_width_is_theirs_to_choose(factory: Factory) -> None:
    sizes = [
        sum(each.numel() for each in made(factory, COLOUR, width=width).parameters()) for width in (5, 8, 24)
    ]
    assert sizes == sorted(sizes)
    assert 5_000 < sizes[1] < 30_000


@families
def test_each_learns_small_digits(factory: Factory) -> None:
    from sklearn.datasets import load_digits

    levels, classes = load_digits(return_X_y=True)
    small = torch.from_numpy(levels[:64]).float().view(-1, 1, 8, 8) / 8 - 1
    inputs, labels = F.interpolate(small, size=(16, 16)), torch.from_numpy(classes[:64]).long()
    model = made(factory, (1, 16, 16))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 3


@families
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 15, 28), (1, 28, 15), (784,), (28, 28)])
def test_what_is_not_an_image_of_some_size_is_refused(factory: Factory, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"{factory.__name__} needs images of at least 16×16"):
        factory(shape, 10)


@families
def test_settings_that_make_no_sense(factory: Factory) -> None:
    with pytest.raises(InputError, match="embed and width must be at least 1, not 0 and 8"):
        factory(COLOUR, 10, embed=0)
    with pytest.raises(InputError, match=r"unknown normalisation 'bach' of \w+: did you mean 'batch'\?"):
        factory(COLOUR, 10, norm="bach")
