"""Load from a recorded run: its model, its test set, and the model's predictions on it."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
from torch import Tensor, nn

from steelyard.client.evaluation import predict
from steelyard.client.models import as_trained
from steelyard.client.private_state import MemoryStates, StateFiles
from steelyard.components import build, component
from steelyard.data import Dataset
from steelyard.data.dealing import client_names
from steelyard.data.examples import Examples
from steelyard.errors import InputError, unknown
from steelyard.layout import tensors_of
from steelyard.runs.folder import BEST, MODEL, PRIVATE, SPEC
from steelyard.runs.reader import Run
from steelyard.runs.recorded_model import check_fit, recorded_model
from steelyard.runs.resuming import last_state
from steelyard.server.result import Result
from steelyard.sharing import Sharing
from steelyard.specs import gate
from steelyard.specs.building import build_algorithm, make_client_model, make_model
from steelyard.specs.gate import Permission
from steelyard.specs.schema import Spec, load_spec
from steelyard.tensor_files import check_file
from steelyard.texts import shown
from steelyard.types import ClientId, State

Recorded = str | Path | Run | Result
"""A recorded run: its folder, or what was made of it."""


class Predictions(NamedTuple):
    """Predictions on the common test set."""

    log_probabilities: Tensor
    """[N, classes]."""
    labels: Tensor
    """[N]."""


def load_model(
    run: Recorded,
    client: ClientId | None = None,
    trust: Permission = False,
    best: bool = False,
    *,
    model: nn.Module | None = None,
) -> nn.Module:
    """The model of a recorded run. If only heads are shared: the shared head, or the whole model of `client`.

    `run` is its folder, or its result. The data are not needed. A run of a spec knows how its model is built;
    the weights of any other run are loaded into `model`, a whole model of the same kind, and it or its head
    is returned. With `best`, the model of the best round instead of the last one, if the run had
    `validation`, `monitor` or `patience`. The run of somebody else, if it names code of its own, is loaded
    only with `trust`.

    >>> load_model("runs/20261115-220936-federation-s0", model=Net())
    """
    if model is not None:
        _check_model(model)
    recorded, spec = Run(_path(run)), _spec(run, trust) if model is None else None
    if best and client is not None:
        raise InputError("the best model is what all clients share; leave out `client`, or `best`.")
    if client is None:
        return _shared(recorded, _new_model(recorded, spec) if model is None else model, best)
    known = _clients(recorded, spec)
    if client not in known:
        raise unknown("client", client, known)
    whole = _new_model(recorded, spec, client) if model is None else model
    return _own(recorded, client, whole, _sharing(recorded, spec), is_given=model is not None)


def _new_model(run: Run, spec: Spec | None, client: ClientId | None = None) -> nn.Module:
    """The model of a spec, of one client or of all, as it was before the first round."""
    assert spec is not None
    about = recorded_model(run)
    if about.clients:
        name = next(iter(about.clients)) if client is None else client
        return make_client_model(spec, name, about.clients[name])
    if about.inputs is None:
        raise InputError(f"{run.path} does not say what its model is built for; pass it as `model=`.")
    return make_model(spec, about.inputs.shape, about.inputs.num_classes)


def _shared(run: Run, model: nn.Module, best: bool) -> nn.Module:
    """What is shared of a model, with the weights of a run."""
    path = run.path / (BEST if best else MODEL)
    if not path.is_file():
        why = ": it looked for no best round; set validation, monitor or patience" if best else ""
        raise InputError(f"{run.path} has no {path.name}{why}.")
    part = _fitting_part(run, model, path)
    safetensors.torch.load_model(part, path)
    return part.eval()


def _fitting_part(run: Run, model: nn.Module, path: Path) -> nn.Module:
    """The part of a model that the run shares; refused if the tensors of the run do not fit it."""
    name = recorded_model(run).prefix.removesuffix(".")
    try:
        part = model.get_submodule(name)
    except AttributeError:
        raise InputError(f"{run.path} shares the layer {name!r}, which the model does not have.") from None
    check_file(path)
    check_fit(part, safetensors.torch.load_file(path), str(path))
    return part


def _sharing(run: Run, spec: Spec | None) -> Sharing:
    """The sharing rule of a run. A record may come from somebody else: it must not lead to code."""
    choice = recorded_model(run).sharing if spec is None else spec.sharing
    if choice is None or (spec is None and gate.code_names(choice)):
        raise InputError(
            f"{run.path} was made with a sharing rule of its own; in the program that made it, "
            "`federation.resume(...)` has the models of its clients."
        )
    rule: Sharing = component("sharing", "sharing", Sharing, choice)
    return rule


def _own(run: Run, client: ClientId, model: nn.Module, sharing: Sharing, is_given: bool) -> nn.Module:
    """The whole model of a client: what is shared, and its private layers."""
    folder = run.path / PRIVATE
    states = (StateFiles if recorded_model(run).spill else MemoryStates)(folder)
    state, _ = last_state(run, lambda state: states.read(state.round))
    if state is None:
        raise InputError(f"{run.path} has no saved state to take the model of {client!r} from.")
    if sharing.has_private_layers and state.round and not folder.is_dir():
        raise InputError(
            f"{run.path} has no folder {PRIVATE!r}: the private layers of its clients are elsewhere."
        )
    private = states.get(client)
    if is_given:
        _fitting_part(run, model, run.path / MODEL)
    if is_given and sharing.has_private_layers:
        _check_private(run, client, sharing.keep(tensors_of(model), sharing.layout(model)), private)
    return as_trained(model, sharing, state.server.evaluated_model, private)


def _check_private(run: Run, client: ClientId, wanted: State, found: State) -> None:
    """Refuse a model whose private layers are not those of the client."""
    if not found:
        raise InputError(f"client {client!r} has not trained in {run.path}: it has no private layers there.")
    for name in {**wanted, **found}:
        shapes = [list(state[name].shape) if name in state else "missing" for state in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"{name.partition('.')[2]!r} of client {client!r} is {shapes[0]} in {run.path}, and "
                f"{shapes[1]} in the model."
            )


def _clients(run: Run, spec: Spec | None) -> Collection[ClientId]:
    """The clients of a run: all those of a spec, or those that were invited to a round."""
    if found := recorded_model(run).clients:
        return found.keys()
    if spec is None:
        return run.client_ids()
    return client_names(spec.data.clients + (spec.adversaries.count if spec.adversaries.extra else 0))


def load_test(run: Recorded, trust: Permission = False) -> Examples:
    """The common test set of a recorded run."""
    return _test(_path(run), _spec(run, trust))


def _test(path: Path, spec: Spec) -> Examples:
    dataset = build("datasets", spec.data.dataset)
    if not isinstance(dataset, Dataset):
        raise InputError(f"{path} has no common test set: each of its clients has inputs of its own.")
    return dataset.test


def load_predictions(run: Recorded, trust: Permission = False) -> Predictions:
    """Predictions of a recorded run's model on the common test set, bit-identical to those the run scored."""
    spec = _spec(run, trust)
    test = _test(_path(run), spec)
    if build_algorithm(spec).sharing.has_private_layers:
        raise InputError(f"the clients of {_path(run)} share only a head: there is no global model to load.")
    if test.labels.is_floating_point():
        raise InputError(f"{_path(run)} predicts numbers, not classes: there are no probabilities.")
    model = load_model(run, trust=trust)
    return Predictions(predict(model, test, spec.seed), test.labels)


def _spec(run: Recorded, trust: Permission) -> Spec:
    path = _path(run)
    if not (path / SPEC).is_file():
        raise InputError(
            f"{path} has no {SPEC}: a program made it, so pass the model to load it into (`model=Net()`)."
        )
    return load_spec(path / SPEC, trust=trust)


def _path(run: Recorded) -> Path:
    path = run.path if isinstance(run, Run | Result) else run
    if not isinstance(path, str | Path):
        if isinstance(run, Result):
            raise InputError(
                "the result is of a run that was not recorded, and its model is `result.model`; to load it "
                "later, record the run with `federation.run(out='runs')`."
            )
        raise InputError(f"run must be the folder of a run, a Run or a Result, not {shown(run)}.")
    return Path(path)


def _check_model(model: object) -> None:
    if isinstance(model, type):
        name = model.__name__
        raise InputError(f"model is the class {name}, not an object of it: write model={name}().")
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, such as Net(), not {shown(model)}.")
