"""Small models by name. Each is a function `(input_shape, num_classes, **settings) -> nn.Module`."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from steelyard.errors import COUNT, COUNT_OR_ZERO, InputError, check_setting, unknown
from steelyard.nn import variational
from steelyard.nn.bodies import mobilenet, resnet, vgg
from steelyard.nn.recurrent import CharLSTM

__all__ = [
    "assorted",
    "bayesian",
    "char_lstm",
    "hybrid_cnn",
    "light_cnn",
    "linear",
    "logistic",
    "mlp",
    "mobilenet",
    "random_mlp",
    "resnet",
    "vgg",
]


def linear(input_shape: tuple[int, ...], num_classes: int, *, bias: bool = True) -> nn.Module:
    """One linear layer; with the objective squared-error, linear regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes, bias=bias))


def logistic(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer."""
    return linear(input_shape, num_classes)


def mlp(input_shape: tuple[int, ...], num_classes: int, *, hidden: int = 64, layers: int = 1) -> nn.Module:
    """A multilayer perceptron with `layers` hidden ReLU layers of `hidden` units."""
    check_setting("model 'mlp': hidden", hidden, COUNT)
    check_setting("model 'mlp': layers", layers, COUNT_OR_ZERO)
    modules: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for _ in range(layers):
        modules += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*modules, nn.Linear(width, num_classes))


def random_mlp(input_shape: tuple[int, ...], num_classes: int, *, embed: int = 64) -> nn.Module:
    """An MLP of one to three hidden layers with 16 to 64 units, drawn at random, and an embedding (CHFL)."""
    check_setting("model 'random-mlp': embed", embed, COUNT)
    widths = torch.randint(16, 65, (int(torch.randint(1, 4, ())),)).tolist()
    sizes = [math.prod(input_shape), *widths, embed]
    layers = [part for size in pairwise(sizes) for part in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(embed, num_classes))


def light_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two 5×5 convolutions of 10 and 20 channels with pooling, then a hidden layer of 50 (FedBaC)."""
    flat = 20 * _after_two_pooled_convolutions("light-cnn", input_shape)
    return nn.Sequential(
        *_pooled_convolution(input_shape[0], 10),
        *_pooled_convolution(10, 20),
        nn.Flatten(),
        nn.Linear(flat, 50),
        nn.ReLU(),
        nn.Linear(50, num_classes),
    )


def hybrid_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two 5×5 convolutions of 6 and 16 channels with pooling, then three linear layers (BA-BFL)."""
    flat = 16 * _after_two_pooled_convolutions("hybrid-cnn", input_shape)
    return nn.Sequential(
        *_pooled_convolution(input_shape[0], 6),
        *_pooled_convolution(6, 16),
        nn.Flatten(),
        nn.Linear(flat, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_classes),
    )


def char_lstm(
    input_shape: tuple[int, ...], num_classes: int, *, embed: int = 8, hidden: int = 64, layers: int = 1
) -> nn.Module:
    """An LSTM that predicts the next character (McMahan et al., 2017, use hidden 256 and layers 2)."""
    if len(input_shape) != 1:
        raise InputError(
            f"char-lstm needs sequences of characters, not inputs of shape {input_shape}; try mlp."
        )
    for name, value in (("embed", embed), ("hidden", hidden), ("layers", layers)):
        check_setting(f"model 'char-lstm': {name}", value, COUNT)
    return CharLSTM(num_classes, embed, hidden, layers)


def assorted(
    input_shape: tuple[int, ...],
    num_classes: int,
    client: int,
    *,
    of: tuple[str, ...] = ("mobilenet", "resnet", "vgg"),
) -> nn.Module:
    """Different architectures for different clients, with embeddings of the same length (CHFL).

    Clients take the models in turn, and each cycle starts one model later: clients with the same domain of
    `digit-domains` then have different models.
    """
    if not of:
        raise InputError("model 'assorted': of must name at least one model.")
    return _named(of[(client + client // len(of)) % len(of)])(input_shape, num_classes)


def bayesian(
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    base: str = "hybrid-cnn",
    last: int = 3,
    sigma: float = 0.03,
    log_sigma_lr_scale: float = 0.1,
    samples: int = 10,
) -> nn.Module:
    """The model `base` with its `last` linear layers Bayesian; train it with the objective elbo (BA-BFL)."""
    model = _named(base)(input_shape, num_classes)
    return variational.bayesian(model, last, sigma, log_sigma_lr_scale, samples)


def _named(base: str) -> Callable[..., nn.Module]:
    """The model of this name, for use inside another one."""
    wrappers = ("assorted", "bayesian")
    bases = {name.replace("_", "-"): globals()[name] for name in __all__ if name not in wrappers}
    if base not in bases:
        raise unknown("model", base, bases)
    model: Callable[..., nn.Module] = bases[base]
    return model


def _pooled_convolution(channels: int, filters: int) -> tuple[nn.Module, ...]:
    """The pooling comes before the ReLU: the result is the same, for a quarter of the ReLUs."""
    return nn.Conv2d(channels, filters, 5), nn.MaxPool2d(2), nn.ReLU()


def _after_two_pooled_convolutions(name: str, input_shape: tuple[int, ...]) -> int:
    """The number of pixels that remain of an image after two rounds of 5×5 convolution and 2×2 pooling."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise InputError(
            f"{name} needs images of at least 16×16, not inputs of shape {input_shape}; try mlp."
        )
    return math.prod(((side - 4) // 2 - 4) // 2 for side in input_shape[1:])
