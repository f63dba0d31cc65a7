"""Working models: a copy of a model in which clients are trained and evaluated, one after the other."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.client.own_code import has_own_layers
from steelyard.devices import CPU
from steelyard.layout import Layout, tensors_of
from steelyard.nn.pooling import quicken_pooling
from steelyard.types import State

Place = tuple[dict[str, Any], str, Tensor, Tensor]
"""Where a module keeps a tensor: its dict of parameters or buffers, the name, the tensor, and that in
`WorkingModel.tensors`."""


class FrozenParameters:
    """Parameters that are neither trained nor sent: every client begins with their first values.

    Some models change them whenever they are called: the codebook of a VQ-VAE, the teacher of MoCo.
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]] = ()) -> None:
        """Pairs of a parameter and a tensor with its first values."""
        self.pairs = pairs
        self.versions = [parameter._version for parameter, _ in pairs]
        self.hidden: set[int] | None = None
        """Parameters that change without a new version, by their places; None: not known before training."""

    def reset(self) -> None:
        """Restore the parameters that have been changed, which torch counts in their versions."""
        for place, (parameter, first) in enumerate(self.pairs):
            if parameter._version != self.versions[place] or (self.hidden and place in self.hidden):
                with torch.no_grad():
                    parameter.copy_(first)
                self.versions[place] = parameter._version

    def find_hidden(self) -> None:
        """After the first training: find the parameters that the model changes through `.data`."""
        if self.hidden is None:
            self.hidden = {
                place
                for place, (parameter, first) in enumerate(self.pairs)
                if parameter._version == self.versions[place] and not torch.equal(parameter, first)
            }


def frozen_parameters(copied: nn.Module, model: nn.Module, layout: Layout) -> FrozenParameters:
    """The parameters of a copy of a model that are neither trained nor in the layout of what travels."""
    named, known = dict(copied.named_parameters()), {entry.name for entry in layout.entries}
    known |= layout.constants.keys()
    return FrozenParameters(
        [
            (named[name], first.detach().to(named[name].device))
            for name, first in model.named_parameters()
            if not first.requires_grad and name not in known
        ]
    )


@dataclass(frozen=True, eq=False)
class WorkingModel:
    """A model to train and predict in, with its tensors and layout looked up once."""

    model: nn.Module
    tensors: dict[str, Tensor]
    parameters: list[nn.Parameter]
    """The trainable ones."""
    normalises_batches: bool
    places: Sequence[Place] = ()
    """All tensors of a model with layers of the user's own, which may put others in their places."""
    layout: Layout | None = None
    """The layout of what travels, where models differ between clients."""
    start: State = field(default_factory=dict)
    """The private state of a client before its first round."""
    frozen: FrozenParameters = field(default_factory=FrozenParameters)

    def put_back(self) -> None:
        """Copy tensors that the model has put in the places of others, and put the others back.

        A `forward` with `self.ema = 0.9 * self.ema + 0.1 * x` does so, and one that sets `parameter.data`.
        """
        for owner, name, tensor, alias in self.places:
            found = owner.get(name)
            if found is tensor and tensor.data_ptr() == alias.data_ptr():
                continue
            if isinstance(found, Tensor) and found.shape == alias.shape:
                alias.copy_(found.detach())
            tensor.data, owner[name] = alias, tensor

    def free_gradients(self) -> None:
        """Give up the memory of the gradients, as large as the model, until the next client trains."""
        for parameter in self.parameters:
            parameter.grad = None

    def settle(self) -> None:
        """After training: put tensors in their places, and find frozen parameters that were changed."""
        self.put_back()
        self.frozen.find_hidden()


def working_model_in(model: nn.Module) -> WorkingModel:
    """A working model that uses this module itself."""
    tensors = tensors_of(model)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    aliases = {id(named[name]): alias for name, alias in tensors.items()}
    places = [
        (owner, name, tensor, aliases[id(tensor)])
        for module in (model.modules() if has_own_layers(model) else ())
        for owner in (module._parameters, module._buffers)
        for name, tensor in owner.items()
        if tensor is not None
    ]
    return WorkingModel(
        model,
        tensors,
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
        places,
    )


def working_copy_of(
    model: nn.Module,
    memory_format: torch.memory_format = torch.contiguous_format,
    device: torch.device = CPU,
) -> WorkingModel:
    """A working model in a copy on a device, with layers that are faster on CPUs and weights in this order.

    It computes the same as the model, up to rounding.
    """
    copied = quicken_pooling(copy.deepcopy(model)).to(device)
    if memory_format == torch.channels_last:
        copied = copied.to(memory_format=memory_format)  # type: ignore[call-overload]
    return working_model_in(copied)
