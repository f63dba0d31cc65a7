"""Stacked copies of a model: one call, and one kernel for each layer, for many clients."""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from steelyard.client.own_code import has_own_layers
from steelyard.devices import CPU

ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.LeakyReLU, nn.Softplus, nn.Identity)


class StackedModel(nn.Module):
    """Stacked copies of a model, called like one model: each copy gets its part of a batch."""

    def __init__(self, model: nn.Module, width: int, device: torch.device = CPU) -> None:
        super().__init__()
        self.base = copy.deepcopy(model).to(device).train()
        self.layers = perceptron_layers(self.base)
        for module in self.base.modules():
            if type(module) is nn.Linear:
                module.__class__ = _Linear
        parameters, self.constants = dict(self.base.named_parameters()), dict(self.base.named_buffers())
        self.stacks = {
            name: parameter.detach().expand(width, *parameter.shape).clone()
            for name, parameter in parameters.items()
        }
        self.rows = [
            {**{name: stack[row] for name, stack in self.stacks.items()}, **self.constants}
            for row in range(width)
        ]
        self.trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self.use(width)

    def use(self, count: int) -> list[Tensor]:
        """Use the first few copies; returns the parameters that are trained, [count, ...] each."""
        self.leaves = {name: stack[:count].detach() for name, stack in self.stacks.items()}
        return [self.leaves[name].requires_grad_() for name in self.trained]

    def stack(self, name: str) -> Tensor:
        """A tensor of all copies, [width, ...]."""
        if name in self.stacks:
            return self.stacks[name]
        constant = self.constants[name]
        return constant.expand(len(self.rows), *constant.shape)

    def changes_itself(self) -> bool:
        """Whether a call has changed frozen parameters, or put other tensors in the places of buffers."""
        named, buffers = dict(self.base.named_parameters()), dict(self.base.named_buffers())
        frozen = {name: stack for name, stack in self.stacks.items() if name not in self.trained}
        return any(buffers.get(name) is not buffer for name, buffer in self.constants.items()) or any(
            not torch.equal(stack, named[name].expand_as(stack)) for name, stack in frozen.items()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [J·B, ...] and outputs [J·B, C], client by client."""
        count = len(self.leaves[self.trained[0]])
        outputs = inputs.view(count, -1, *inputs.shape[1:])
        if self.layers is None:
            outputs = vmap(self._one)(self.leaves, outputs)
        else:
            for layer in self.layers:
                outputs = layer(outputs, self.leaves)
        return outputs.flatten(0, 1)

    def _one(self, tensors: dict[str, Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self.base, tensors, (inputs,))
        return outputs


class StackedLayer(NamedTuple):
    """A layer on the inputs [J, B, ...] of J clients, each with its own weights."""

    module: nn.Module
    name: str

    def __call__(self, inputs: Tensor, stacks: Mapping[str, Tensor]) -> Tensor:
        if isinstance(self.module, nn.Flatten):
            return inputs.flatten(2)
        if not isinstance(self.module, nn.Linear):
            outputs: Tensor = self.module(inputs)
            return outputs
        # A transposed product is faster for many small layers.
        rows = inputs.flatten(1, -2).transpose(1, 2)
        outputs = torch.bmm(stacks[f"{self.name}.weight"], rows).transpose(1, 2)
        if self.module.bias is not None:
            outputs = outputs + stacks[f"{self.name}.bias"].unsqueeze(1)
        return outputs.reshape(*inputs.shape[:-1], -1)


def perceptron_layers(model: nn.Module) -> list[StackedLayer] | None:
    """The layers of a model that is a sequence of linear ones and elementwise functions, if it is one.

    Called on all clients' weights at once, they take half of the time that they take under `vmap`.
    """
    if type(model) is not nn.Sequential or has_own_layers(model):
        return None
    found = [StackedLayer(module, name) for name, module in model.named_children()]
    own = sum(len(list(layer.module.parameters())) for layer in found)
    is_tied = len(found) < len(model) or own > len(list(model.parameters()))
    return None if is_tied or not all(_is_plain(layer.module) for layer in found) else found


def _is_plain(module: nn.Module) -> bool:
    if type(module) is nn.Flatten:
        return (module.start_dim, module.end_dim) == (1, -1)
    return type(module) is nn.Linear or type(module) in ELEMENTWISE


class _Linear(nn.Linear):
    """`nn.Linear` as a transposed product, which is twice as fast for many small layers under `vmap`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 2:
            return super().forward(input)
        outputs = (self.weight @ input.T).T
        return outputs if self.bias is None else outputs + self.bias
