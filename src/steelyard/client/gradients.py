"""The loss of a step and its gradients: of one batch or of several, clipped, in float32 or bfloat16."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steelyard.data.batches import Batch, size_of
from steelyard.errors import InputError
from steelyard.settings import Training

Loss = Callable[[Any, Any], Tensor]


def make_gradients(
    loss: Loss, parameters: Sequence[Tensor], training: Training, add_gradient: Callable[[], None]
) -> Callable[[Any], Tensor]:
    """A function that sets the gradients of the parameters from a batch, and returns the loss.

    With `accumulate`, it takes a list of batches. Closed-form terms are added once, then the norm is clipped.
    """
    if training.precision == "bfloat16":
        loss = _in_bfloat16(loss, parameters)

    def gradients(batch: Batch) -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        value = loss(*batch)
        torch.autograd.backward(value if value.dim() == 0 else value.sum())
        add_gradient()
        return value

    def gradients_of_several(batches: Sequence[Batch]) -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        counts = [size_of(inputs) for inputs, _ in batches]
        parts = []
        for batch, count in zip(batches, counts, strict=True):
            part = loss(*batch) * (count / sum(counts))
            torch.autograd.backward(part)
            parts.append(part.detach())
        add_gradient()
        return torch.stack(parts).sum()

    found = gradients if training.accumulate == 1 else gradients_of_several
    return found if training.clip_norm is None else _clipped(found, parameters, training.clip_norm)


def grouped(batches: Iterable[Batch], size: int) -> Iterable[Any]:
    """Batches, or lists of `size` batches if that is more than 1; the last list may be shorter."""
    return batches if size == 1 else _lists(iter(batches), size)


def _lists(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    while group := list(itertools.islice(batches, size)):
        yield group


def _in_bfloat16(loss: Loss, parameters: Sequence[Tensor]) -> Loss:
    """The loss under `torch.autocast`, which leaves float64 as it is: such parameters are refused."""
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise InputError("training.precision is bfloat16, but the model has parameters that are not float32.")
    # Without the cache, a forward pass without gradients cannot leave casts behind for one that needs them.
    device = parameters[0].device.type if parameters else "cpu"
    context = torch.autocast(device, torch.bfloat16, cache_enabled=False)

    def cast_loss(inputs: Any, targets: Any) -> Tensor:
        with context:
            return loss(inputs, targets).float()

    return cast_loss


def _clipped(
    gradients: Callable[[Any], Tensor], parameters: Sequence[Tensor], limit: float
) -> Callable[[Any], Tensor]:
    def clipped(batch: Any) -> Tensor:
        value = gradients(batch)
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        torch.nn.utils.clip_grad_norm_(parameters, limit)
        return value

    return clipped
