"""Where a client's model trains and predicts: on the CPU, or on a device such as a GPU.

Data, models and what comes from the server are put on the device once. Batches are drawn on the CPU, so they
are the same on every device; what a model draws itself (dropout, Bayesian layers), it draws on its device.
Updates, private states and predictions come back to the CPU.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.data.examples import AnyExamples
from steelyard.data.on_device import Tables, put
from steelyard.devices import CPU, WITHOUT_DOUBLE, checked_device
from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.objectives.base import Objective
from steelyard.objectives.own_loss import OwnLoss
from steelyard.objectives.wrapper import Wrapper
from steelyard.task import FittedTask
from steelyard.types import Broadcast, Message, State


class Placement:
    """A device, and what has been put there. On the CPU, everything stays what it is."""

    def __init__(self, device: str = "cpu") -> None:
        self.name, self.device = device, CPU if device == "cpu" else checked_device(device)
        self.is_cpu = self.device.type == "cpu"
        self._tables = Tables(self.device)
        self._broadcast: tuple[Broadcast, Broadcast] | None = None
        self._message: tuple[Message, Message] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self.name}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def examples(self, data: AnyExamples) -> AnyExamples:
        """The same examples, with batches on the device."""
        return data if self.is_cpu else self._tables.examples(data)

    def broadcast(self, broadcast: Broadcast) -> Broadcast:
        """The model to train from and the offers on the device; kept for the other clients of the round."""
        if self.is_cpu:
            return broadcast
        if self._broadcast is None or self._broadcast[0] is not broadcast:
            offers = put(dict(broadcast.offers), self.device)
            moved = replace(broadcast, message=self.message(broadcast.message), offers=offers)
            self._broadcast = broadcast, moved
        return self._broadcast[1]

    def message(self, message: Message) -> Message:
        """A message on the device; kept for the other clients that read it."""
        if self.is_cpu or message.mean.device == self.device:
            return message
        if self._message is None or self._message[0] is not message:
            self._message = message, message.map(lambda vector: vector.to(self.device))
        return self._message[1]

    def layout(self, layout: Layout) -> Layout:
        """A layout whose constants are on the device."""
        return layout if self.is_cpu else replace(layout, constants=put(dict(layout.constants), self.device))

    def state(self, state: State) -> State:
        """A private state on the CPU, where states are kept."""
        return state if self.is_cpu else {name: value.cpu() for name, value in state.items()}

    def numbers(self, values: Iterable[Tensor]) -> list[float]:
        """Single values as Python has them. Those on a device are read at the end: to read one waits."""
        if self.is_cpu:
            return [float(value) for value in values]
        found = [value.reshape(()) for value in values]
        numbers: list[float] = torch.stack(found).cpu().tolist() if found else []
        return numbers

    def objective(self, objective: Objective) -> Objective:
        """An objective whose loss is on the device, if it is a module of the user's own."""
        if self.is_cpu:
            return objective
        if isinstance(objective, OwnLoss):
            return replace(objective, function=self._loss(objective.function))
        if isinstance(objective, Wrapper):
            base = self.objective(objective.base)
            return objective if base is objective.base else replace(objective, base=base)  # type: ignore[type-var]
        return objective

    def task(self, task: FittedTask) -> FittedTask:
        """A task whose loss is on the device, if it is a module of the user's own."""
        return task if self.is_cpu else replace(task, loss=self._loss(task.loss))

    def check(self, dtype: torch.dtype) -> None:
        """Refuse models of a type that the device does not have."""
        if dtype == torch.float64 and self.device.type in WITHOUT_DOUBLE:
            raise InputError(
                f"the model has parameters of float64, which engine.device {self.name!r} does not have; "
                "convert it with model.float()."
            )

    def _loss(self, function: Any) -> Any:
        return copy.deepcopy(function).to(self.device) if isinstance(function, nn.Module) else function
