"""Does the model fit the data? Checked before the first round."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from steelyard.client.containment import run_contained
from steelyard.client.models import model_of
from steelyard.client.task_fitting import are_labels, fit_task
from steelyard.data.arrays import BYTES_OF_ITEMS
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, ArrayExamples, Examples, StreamExamples
from steelyard.errors import InputError, warn_caller
from steelyard.objectives import Auto, Objective
from steelyard.objectives.wrapper import Wrapper
from steelyard.seeds import seeded
from steelyard.sharing import Sharing
from steelyard.task import FittedTask, Task
from steelyard.texts import kebab
from steelyard.types import ClientId, Failure

T = TypeVar("T")
FITTED = 2  # examples of the batch that shows what a model is for
MANY = 64  # examples of a data set whose targets may be labels or numbers


def check_models(clients: Sequence[Client], model: nn.Module | None, sharing: Sharing) -> None:
    """Refuse clients without a model, and clients with models of their own where whole models travel."""
    for client in clients:
        model_of(client, model)
        if client.model is not None and not sharing.allows_own_models:
            raise InputError(
                f"client {client.id!r} brings a model of its own, but whole models are shared; take the "
                "sharing `head`."
            )
        if client.model is not None and (reason := sharing.why_not_beside(client.model, model)):
            raise InputError(f"client {client.id!r} brings a model of its own, but {reason}.")


def check_fit(
    model: nn.Module | None,
    clients: Sequence[Client],
    test: AnyExamples | None,
    objective: Objective | None = None,
    task: FittedTask | None = None,
) -> int:
    """Refuse models that cannot take the clients' inputs or have too few outputs for their classes.

    An objective must want the targets that there are. Clients with models of their own may have inputs of
    their own. Returns the number of outputs: the classes that the models know.
    """
    shared = [client for client in clients if client.model is None]
    groups = [(model, shared)] if shared else []
    groups += [(client.model, [client]) for client in clients if client.model is not None]
    wanted = Auto() if objective is None else objective
    known = [(each, members) for each, members in groups if each is not None]
    counts = []
    for each, members in known:
        fitted = task if task is not None and task.is_fitted and each is model else None
        if fitted is None:
            fitted = fit_to_clients(Task() if task is None else task.given, each, members, wanted)
        _check_group(members, test, wanted, fitted)
        counts.append(fitted.outputs)
    return counts[0]


def _check_group(
    clients: Sequence[Client], test: AnyExamples | None, objective: Objective, task: FittedTask
) -> None:
    """Check clients that share one model."""
    tests = [(client, own_test(client)) for client in clients]
    sets = [(f"client {client.id!r}", client.train) for client in clients]
    sets += [(f"client {client.id!r}, test", test) for client, test in tests if test]
    sets += [(f"client {client.id!r}, held out", client.held_out) for client in clients if client.held_out]
    if test is not None:
        if len(test) == 0:
            raise InputError("the test set is empty; give it examples or leave it out.")
        sets.append(("the test set", test))
    _check_objective(f"client {clients[0].id!r}", task, objective)
    seen: set[int] = set()
    for name, data in sets:
        _check_shape(name, data.input_shape, clients[0])
        if _lacks_targets(data) and (task.targets != "loss" or not _lacks_targets(clients[0].train)):
            raise InputError(f"{name} has no targets; give (inputs, targets).")
        # Clients that share a table are checked once; a lazy data set is not read for this.
        targets = data.targets if isinstance(data, Examples | ArrayExamples) else None
        if targets is not None and id(targets) not in seen:
            seen.add(id(targets))
            _check_targets(name, targets, task)


def fit_to_clients(
    task: Task, model: nn.Module | None, clients: Iterable[Client], objective: Objective
) -> FittedTask:
    """What a model is for, from a batch of the first client whose data can be read.

    `model` is that of clients that bring none of their own.
    """
    failed: Client | None = None
    rest = iter(clients)
    for client in rest:
        batch = _read(client, partial(first_batch, client.train, FITTED))
        if batch is not None:
            name, own = f"client {client.id!r}", model_of(client, model)
            if isinstance(client.train, StreamExamples) and client.train.had_bytes:
                warn_caller(BYTES_OF_ITEMS)
            values = _read(client, partial(_targets_of_many, client.train, batch[1]))
            seen = _joined_labels(batch[1] if values is None else values, rest)
            fitted = fit_task(task, own, *batch, objective, name, seen)
            if isinstance(batch[1], Tensor) and not isinstance(client.train, Examples | ArrayExamples):
                _check_targets(name, batch[1], fitted)  # arrays are checked as a whole
            return fitted
        failed = failed or client
    assert failed is not None
    found = run_contained(failed.id, "reading", partial(first_batch, failed.train, FITTED))
    reason = found.reason if isinstance(found, Failure) else "it can only be read at times"
    raise InputError(f"client {failed.id!r}: its training data cannot be read: {reason}.")


def _targets_of_many(data: AnyExamples, targets: Any) -> Any:
    """The targets of as many examples as are needed to see what they are; `targets` are those of a few."""
    if not isinstance(targets, Tensor):
        return targets
    if isinstance(data, Examples | ArrayExamples):
        return data.labels
    may_be_labels = targets.is_floating_point() and are_labels(targets)
    return first_batch(data, MANY)[1] if may_be_labels else targets


def _joined_labels(targets: Any, others: Iterable[Client]) -> Any:
    """The targets; if they may be labels, one for each example, with those of other clients in arrays.

    What is a label of one client may be 0 in all of its examples, or a number that others have fractions of.
    """
    may_be = isinstance(targets, Tensor) and targets.is_floating_point() and targets.dim() == 1
    if not may_be or not are_labels(targets):
        return targets
    tables = [client.train for client in others if isinstance(client.train, Examples | ArrayExamples)]
    labels = [table.labels for table in tables if table.targets is not None]
    alike = [each for each in labels if each.is_floating_point() and each.dim() == 1]
    return torch.cat([targets, *(each.to(targets.dtype) for each in alike)])


def fit_to_data(task: Task, model: nn.Module, data: AnyExamples, objective: Objective) -> FittedTask:
    """What a model is for, from a batch of the server's own test set."""
    batch = first_batch(data, FITTED)
    return fit_task(task, model, *batch, objective, "the test set", _targets_of_many(data, batch[1]))


def first_batch(data: AnyExamples, count: int) -> tuple[Any, Any]:
    with seeded(0, "check"):
        if isinstance(data, StreamExamples):
            return next(iter(data.passes(count)))
        return data.batch(torch.arange(min(count, len(data))))


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


def _check_shape(name: str, shape: tuple[int, ...] | None, first: Client) -> None:
    wanted = first.train.input_shape
    if shape is not None and wanted is not None and shape != wanted:
        raise InputError(
            f"{name} has inputs of shape {shape}, but client {first.id!r} has {wanted}; "
            "clients that share a model need the same inputs, and a common test set those of all."
        )


def _check_targets(name: str, targets: Tensor, task: FittedTask) -> None:
    """Refuse targets that are not what those of the first client are."""
    if task.targets == "loss":
        return
    numbers = targets.is_floating_point()
    if numbers and not bool(targets.isfinite().all()):
        raise InputError(f"{name} has targets that are infinite or not a number; leave those rows out.")
    if task.targets == "labels" and not bool(((targets == 0) | (targets == 1)).all()):
        raise InputError(
            f"{name} has labels that are neither 0 nor 1; change them to 0 and 1, or give "
            "sy.Task(targets='numbers') if they are numbers."
        )
    if task.targets == "numbers" and not numbers and task.plain:
        raise InputError(f"{name} has class numbers for targets, but the first client has numbers.")
    if task.targets != "classes":
        return
    if numbers or (task.plain and targets.dim() != 1):
        raise InputError(
            f"{name} has targets of {targets.dtype}, shape {tuple(targets.shape)}; class numbers (integers "
            "of shape [N]) are needed or, for a model with one output, a number for each example."
        )
    classes = targets if task.plain else targets[targets != task.ignore_index]
    low, high = (int(classes.min()), int(classes.max())) if classes.numel() else (0, 0)
    if low < 0:
        raise InputError(
            f"{name} has the class {low}, but classes start at 0; if {low} stands for padding or an unknown "
            f"class, give sy.Task(ignore_index={low})."
        )
    if high >= task.outputs:
        raise InputError(
            f"{name} has classes {low} to {high}, but the model has only {task.outputs} outputs, for classes "
            f"from 0 to {task.outputs - 1}{_advice_to_ignore(classes, task.outputs)}."
        )


def _advice_to_ignore(classes: Tensor, outputs: int) -> str:
    """What to do about one class number that may mark places without a class, such as 255 or -1."""
    others = set(classes[(classes < 0) | (classes >= outputs)].tolist())
    if len(others) != 1 or outputs in others:  # one class too many is more likely
        return ""
    [mark] = others
    return f"; if {mark} marks what has no class, give sy.Task(ignore_index={mark})"


def own_test(client: Client) -> AnyExamples | None:
    """A client's test data, or None if they cannot be read."""
    return _read(client, partial(getattr, client, "test"))


def _lacks_targets(data: AnyExamples) -> bool:
    """Whether data are known to have no targets; a lazy data set is not read for this."""
    return isinstance(data, ArrayExamples) and data.targets is None


def _check_objective(name: str, task: FittedTask, objective: Objective) -> None:
    """Refuse an objective that wants other targets than there are."""
    if task.targets == "loss" or objective.targets in ("any", task.targets):
        return
    words = {"numbers": "numbers", "classes": "class numbers", "labels": "labels of 0 and 1"}
    fitting = {"numbers": "squared-error", "classes": "cross-entropy", "labels": "binary-cross-entropy"}
    kind, advice = type(objective).__name__, f"take the objective {fitting[task.targets]}"
    if isinstance(objective, Wrapper):
        named = f'{{"name": "{kebab(kind)}", "base": "{fitting[task.targets]}"}}'
        advice = f"give it another base, as in {named}"
    raise InputError(
        f"{name} has {words[task.targets]} for targets, but {kind} needs {words[objective.targets]}; "
        f"{advice}."
    )
