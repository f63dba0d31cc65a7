"""What a record keeps of its model, so that the model can be loaded without the data of the run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.runs.reader import Run
from steelyard.types import ClientId

KEY = "model"
"""Under which the record keeps it, as JSON."""


class Inputs(NamedTuple):
    """What a model of a spec is built for."""

    shape: tuple[int, ...]
    """Of one example."""
    num_classes: int
    client: int = 0
    """The number of the client, where clients have inputs and models of their own."""


@dataclass(frozen=True)
class RecordedModel:
    """How the tensors of a run become a model."""

    prefix: str
    """Of the names of the shared tensors in the whole model: "head.", or "" if all are shared."""
    sharing: Mapping[str, Any] | None
    """The sharing rule as a spec names it; None: code of the user's own."""
    spill: bool = False
    """Whether each client's private state is a file of its own."""
    inputs: Inputs | None = None
    """Of a spec's common model."""
    clients: Mapping[ClientId, Inputs] = field(default_factory=dict)
    """Of a spec's clients that have models of their own."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "clients": dict(self.clients)})


def recorded_model(run: Run) -> RecordedModel:
    """What the record of a run says of its model."""
    text = run.meta.get(KEY)
    if text is None:
        raise InputError(f"{run.path} does not say how its model is built: it has not begun, or is too old.")
    try:
        values = json.loads(text)
        inputs = values.pop("inputs")
        clients = {str(client): _inputs(each) for client, each in values.pop("clients").items()}
        return RecordedModel(**values, inputs=None if inputs is None else _inputs(inputs), clients=clients)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"cannot read the record of {run.path}: its model is wrong ({error}).") from None


def _inputs(values: Any) -> Inputs:
    shape, num_classes, client = values
    return Inputs(tuple(int(size) for size in shape), int(num_classes), int(client))


def check_fit(model: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise an error that names the first tensor of a file that does not fit a model, or is missing."""
    own = model.state_dict()
    tied = {own[name].data_ptr() for name in tensors if name in own and own[name].numel()}
    for name, tensor in own.items():
        if name not in tensors and tensor.data_ptr() not in tied:
            raise InputError(f"the model has a tensor {name!r}, and {what} has none of this name.")
        if name in tensors and tensors[name].shape != tensor.shape:
            raise InputError(
                f"the model has {name!r} with the shape {list(tensor.shape)}, and {what} with "
                f"{list(tensors[name].shape)}."
            )
    if extra := sorted(tensors.keys() - own.keys()):
        raise InputError(f"{what} has a tensor {extra[0]!r}, and the model has none of this name.")
