"""Load from a recorded run: its model, its test set, and the model's predictions on it."""

from pathlib import Path
from typing import NamedTuple

import safetensors.torch
from torch import Tensor, nn

from steelyard.client.evaluation import predict
from steelyard.data import Dataset
from steelyard.data.examples import Examples
from steelyard.errors import InputError, unknown
from steelyard.runs.folder import MODEL, SPEC
from steelyard.runs.reader import Run
from steelyard.runs.resuming import last_state
from steelyard.specs import registry
from steelyard.specs.building import build, build_algorithm
from steelyard.specs.gate import Permission
from steelyard.specs.schema import Spec, load_spec
from steelyard.tensor_files import check_file
from steelyard.types import ClientId


class Predictions(NamedTuple):
    """Predictions on the common test set."""

    log_probabilities: Tensor
    """[N, classes]."""
    labels: Tensor
    """[N]."""


def load_model(run: str | Path | Run, client: ClientId | None = None, trust: Permission = False) -> nn.Module:
    """The model of a recorded run. If only heads are shared: the shared head, or the model of `client`.

    The run of somebody else, if it names code of its own, is loaded only with `trust`.
    """
    if client is None and not (_path(run) / MODEL).is_file():
        raise InputError(f"{_path(run)} has no {MODEL}.")
    return _model(_path(run), _spec(run, trust), client)


def _model(path: Path, spec: Spec, client: ClientId | None = None) -> nn.Module:
    federation = build(spec)
    if client is not None:
        if client not in federation.clients:
            raise unknown("client", client, federation.ids)
        state, _ = last_state(Run(path), lambda state: federation.read_states(state, path))
        if state is None:
            raise InputError(f"{path} has no saved state to take the model of {client!r} from.")
        return federation.model_of(state, client, federation.read_states(state, path))
    check_file(path / MODEL)
    model = federation.shared_model()
    safetensors.torch.load_model(model, path / MODEL)
    return model.eval()


def load_test(run: str | Path | Run, trust: Permission = False) -> Examples:
    """The common test set of a recorded run."""
    return _test(_path(run), _spec(run, trust))


def _test(path: Path, spec: Spec) -> Examples:
    dataset = registry.build("datasets", spec.data.dataset)
    if not isinstance(dataset, Dataset):
        raise InputError(f"{path} has no common test set: each of its clients has inputs of its own.")
    return dataset.test


def load_predictions(run: str | Path | Run, trust: Permission = False) -> Predictions:
    """Predictions of a recorded run's model on the common test set, bit-identical to those the run scored."""
    spec = _spec(run, trust)
    test = _test(_path(run), spec)
    if build_algorithm(spec).sharing.has_private_layers:
        raise InputError(f"the clients of {_path(run)} share only a head: there is no global model to load.")
    if test.labels.is_floating_point():
        raise InputError(f"{_path(run)} predicts numbers, not classes: there are no probabilities.")
    return Predictions(predict(_model(_path(run), spec), test, spec.seed), test.labels)


def _spec(run: str | Path | Run, trust: Permission) -> Spec:
    path = _path(run)
    if not (path / SPEC).is_file():
        raise InputError(f"{path} has no {SPEC}: only a run that was made from a spec can be loaded.")
    return load_spec(path / SPEC, trust=trust)


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)
