"""Load from a recorded run: its model, its test set, and the model's predictions on it."""

from pathlib import Path
from typing import NamedTuple

import safetensors.torch
from torch import Tensor, nn

from steelyard.client.evaluation import predict
from steelyard.data import Dataset
from steelyard.data.examples import Examples
from steelyard.errors import InputError, unknown
from steelyard.runs.reader import MODEL, SPEC, STATE, Run
from steelyard.runs.state_file import load_state
from steelyard.specs import registry
from steelyard.specs.building import build, build_algorithm
from steelyard.specs.schema import Spec, load_spec
from steelyard.types import ClientId


class Predictions(NamedTuple):
    """Predictions on the common test set."""

    log_probabilities: Tensor
    """[N, classes]."""
    labels: Tensor
    """[N]."""


def load_model(run: str | Path | Run, client: ClientId | None = None) -> nn.Module:
    """The model of a recorded run. If only heads are shared: the shared head, or the model of `client`."""
    path = _path(run)
    if client is not None:
        federation = build(load_spec(path / SPEC))
        if client not in federation.clients:
            raise unknown("client", client, federation.ids)
        state, states = load_state(path / STATE), federation.recorded_states(path)
        states.rewind(state.round)
        return federation.model_of(state, client, states)
    if not (path / MODEL).is_file():
        raise InputError(f"{path} has no {MODEL}.")
    federation = build(load_spec(path / SPEC))
    model = federation.shared_model()
    safetensors.torch.load_model(model, path / MODEL)
    return model.eval()


def load_test(run: str | Path | Run) -> Examples:
    """The common test set of a recorded run."""
    dataset = registry.build("datasets", _spec(run).data.dataset)
    if not isinstance(dataset, Dataset):
        raise InputError(f"{_path(run)} has no common test set: each of its clients has inputs of its own.")
    return dataset.test


def load_predictions(run: str | Path | Run) -> Predictions:
    """Predictions of a recorded run's model on the common test set, bit-identical to those the run scored."""
    spec, test = _spec(run), load_test(run)
    if build_algorithm(spec).sharing.has_private_layers:
        raise InputError(f"the clients of {_path(run)} share only a head: there is no global model to load.")
    if test.labels.is_floating_point():
        raise InputError(f"{_path(run)} predicts numbers, not classes: there are no probabilities.")
    return Predictions(predict(load_model(run), test, spec.seed), test.labels)


def _spec(run: str | Path | Run) -> Spec:
    path = _path(run)
    if not (path / SPEC).is_file():
        raise InputError(f"{path} has no {SPEC}: only a run that was made from a spec can be loaded.")
    return load_spec(path / SPEC)


def _path(run: str | Path | Run) -> Path:
    return run.path if isinstance(run, Run) else Path(run)
