"""Does the model fit the data? Checked before the first round."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from steelyard.client.containment import run_contained
from steelyard.client.models import model_of
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, Examples
from steelyard.errors import InputError
from steelyard.objectives.base import Objective
from steelyard.seeds import seeded
from steelyard.sharing import Sharing
from steelyard.types import ClientId, Failure

T = TypeVar("T")


def check_models(clients: Sequence[Client], model: nn.Module | None, sharing: Sharing) -> None:
    """Refuse clients without a model, and clients with models of their own where whole models travel."""
    for client in clients:
        model_of(client, model)
        if client.model is not None and not sharing.has_private_layers:
            raise InputError(
                f"client {client.id!r} brings a model of its own, but whole models are shared; take the "
                "sharing `head`."
            )


def check_fit(
    model: nn.Module | None,
    clients: Sequence[Client],
    test: AnyExamples | None,
    objective: Objective | None = None,
) -> int:
    """Refuse models that cannot take the clients' inputs or have too few outputs for their classes.

    Targets are class numbers or, for a model with one output, numbers; an objective must want the same.
    Clients with models of their own may have inputs of their own. Returns the number of outputs: the classes
    that the models know.
    """
    shared = [client for client in clients if client.model is None]
    groups = [(model, shared)] if shared else []
    groups += [(client.model, [client]) for client in clients if client.model is not None]
    outputs = [_check_group(each, members, test, objective) for each, members in groups if each is not None]
    return outputs[0]


def _check_group(
    model: nn.Module,
    clients: Sequence[Client],
    test: AnyExamples | None,
    objective: Objective | None = None,
) -> int:
    """Check clients that share one model."""
    outputs = _outputs(model, clients)
    tests = [(client, _read(client, partial(getattr, client, "test"))) for client in clients]
    sets = [(f"client {client.id!r}", client.train) for client in clients]
    sets += [(f"client {client.id!r}, test", test) for client, test in tests if test]
    sets += [(f"client {client.id!r}, held out", client.held_out) for client in clients if client.held_out]
    if test is not None:
        if len(test) == 0:
            raise InputError("the test set is empty; give it examples or leave it out.")
        sets.append(("the test set", test))
    seen: set[int] = set()
    for name, data in sets:
        _check_shape(name, data.input_shape, clients[0])
        # Clients that share a table are checked once; a lazy data set is not read for this.
        if isinstance(data, Examples) and id(data.targets) not in seen:
            seen.add(id(data.targets))
            _check_targets(name, data.targets, outputs)
            if objective is not None:
                _check_objective(name, data.targets, objective)
    return outputs


def _outputs(model: nn.Module, clients: Sequence[Client]) -> int:
    """The number of outputs of a model, from the inputs of the first client whose data can be read."""
    read = ((client, _read(client, partial(_first_inputs, client))) for client in clients)
    client, inputs = next(((each, found) for each, found in read if found is not None), (clients[0], None))
    if inputs is None:
        failed = run_contained(client.id, "reading", partial(_first_inputs, client))
        reason = failed.reason if isinstance(failed, Failure) else "it can only be read at times"
        raise InputError(f"client {client.id!r}: its training data cannot be read: {reason}.")
    try:
        with torch.inference_mode(), seeded(0, "check"):
            outputs = copy.deepcopy(model).eval()(inputs)
    except Exception as error:
        shape = tuple(inputs.shape[1:])
        raise InputError(
            f"the model cannot take the inputs of client {client.id!r}, of shape {shape}: {error}"
        ) from error
    if not isinstance(outputs, torch.Tensor) or outputs.dim() != 2:
        found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InputError(f"the model must return logits of shape (batch, classes), not {found}.")
    return outputs.shape[1]


def _first_inputs(client: Client) -> torch.Tensor:
    with seeded(0, "check"):
        return client.train.batch(torch.arange(min(2, len(client.train))))[0]


def _read(client: Client, read: Callable[[], T]) -> T | None:
    """What a client's data are, or None if they cannot be read: then the client fails by name in a round.

    Data of the wrong form are refused.
    """

    def attempt() -> T | InputError:
        try:
            return read()
        except InputError as error:
            return error

    found = run_contained(client.id, "reading", attempt)
    if isinstance(found, InputError):
        raise found
    return None if isinstance(found, Failure) else found


def creatable(clients: Mapping[ClientId, Client], ids: Iterable[ClientId]) -> Iterator[Client]:
    """Those of some clients that can be created; the others fail by name in a round.

    If there are none, the first is refused.
    """
    failed: Failure | None = None
    found = False
    for id in ids:
        client = run_contained(id, "reading", partial(clients.__getitem__, id))
        if isinstance(client, Failure):
            failed = failed or client
        else:
            found = True
            yield client
    if failed is not None and not found:
        raise InputError(f"client {failed.client!r} cannot be created: {failed.reason}.")


def _check_shape(name: str, shape: tuple[int, ...], first: Client) -> None:
    if shape != first.train.input_shape:
        raise InputError(
            f"{name} has inputs of shape {shape}, but client {first.id!r} has {first.train.input_shape}; "
            "clients that share a model need the same inputs, and a common test set those of all."
        )


def _check_targets(name: str, targets: torch.Tensor, outputs: int) -> None:
    if targets.is_floating_point() and targets.dim() == 1 and outputs == 1:
        if not bool(targets.isfinite().all()):
            raise InputError(f"{name} has targets that are infinite or not a number; leave those rows out.")
        return
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise InputError(
            f"{name} has targets of {targets.dtype}, shape {tuple(targets.shape)}; class numbers are needed, "
            "or, for a model with one output, a number for each example."
        )
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= outputs:
        raise InputError(f"{name} has classes {low} to {high}, but the model has only {outputs} outputs.")


def _check_objective(name: str, targets: torch.Tensor, objective: Objective) -> None:
    numbers = targets.is_floating_point()
    if objective.targets != "any" and numbers != (objective.targets == "numbers"):
        found, wanted, advice = (
            ("numbers", "class numbers", "squared-error")
            if numbers
            else ("class numbers", "numbers", "cross-entropy")
        )
        raise InputError(
            f"{name} has {found} for targets, but {type(objective).__name__} needs {wanted}; "
            f"take the objective {advice}."
        )
