"""From a deployment to its two sides: the server's federation, and one site."""

import copy
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from steelyard import components
from steelyard.client.checks import fit_to_data
from steelyard.client.learner import Learner
from steelyard.client.private_state import ClientStates, MemoryStates
from steelyard.client.site import Site
from steelyard.client.unusable_data import warn_of_unusable
from steelyard.components import choice_of
from steelyard.data.clients import Client, as_clients, in_order_of, input_dtype
from steelyard.data.examples import AnyExamples, Examples, examples
from steelyard.data.validation import validation_data, with_held_out
from steelyard.engines.own_set import server_set
from steelyard.engines.runner import SiteRunner
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.workload import Workload, workload_of
from steelyard.errors import InputError, unknown
from steelyard.flower.deployment import Invitation, Settings, spec_hash
from steelyard.metrics.own import OwnMetrics
from steelyard.nn.module_checks import check_initialised
from steelyard.runs.recorded_model import Inputs, RecordedModel
from steelyard.seeds import seeded
from steelyard.server.federation import Federation
from steelyard.server.selection import Selection, mode_of
from steelyard.server.selection import check as check_selection
from steelyard.simulation import SimulatedFederation
from steelyard.sites import Sites
from steelyard.specs import gate
from steelyard.specs.building import build, build_algorithm, build_task, make_model
from steelyard.specs.schema import Spec, load_spec
from steelyard.task import FittedTask, Task
from steelyard.types import ClientId

T = TypeVar("T")
Load = Callable[[str], Any]
"""The data of a site: a `Client`, or (inputs, targets)."""


def build_server(spec: Spec, settings: Settings, sites: Sites) -> Federation:
    """The server of a deployment; it holds no client's data, but a test set of its own if it has one."""
    round_seconds = spec.round_seconds or settings.round_seconds
    if settings.dealt:
        federation = build(spec)
        _check_dealt(federation, settings)
        federation.round_seconds = round_seconds
        return federation.server_for(sites, SerialSites(federation.workload, MemoryStates()).test)
    if spec.adversaries.count:
        raise InputError("adversaries.count must be 0: only a trial (`deploy try`) can simulate attacks.")
    algorithm, model = build_algorithm(spec), _model_of(spec, settings.input_shape, settings.classes)
    learner = Learner(
        algorithm.objective, algorithm.sharing, algorithm.sharing.layout(model), algorithm.training, spec.seed
    )
    task, dtype = build_task(spec, settings.classes or 0), input_dtype(model)
    test_data = _test_data(settings, task, dtype)
    given = spec.validation
    if settings.validation is not None:
        given = gate.load("validation set", settings.validation)()
    validation = validation_data(given, dtype, algorithm.sharing.has_private_layers)
    validation = _in_order(task, validation, "the validation set")
    example_data = test_data if test_data is not None or isinstance(validation, float) else validation
    if example_data is None:
        metrics = _metrics_without_data(task, model, settings)
    else:
        learner = replace(learner, task=fit_to_data(task, model, example_data, algorithm.objective))
        metrics = learner.task.metrics
    validation_set = validation if isinstance(validation, float) else server_set(model, learner, validation)
    return Federation(
        sites,
        algorithm,
        model,
        test=server_set(model, learner, test_data),
        rounds=spec.rounds,
        clients_per_round=spec.clients_per_round,
        evaluate_every=spec.evaluate_every,
        selection=Selection(spec.monitor, _mode(spec, task), spec.patience, validation_set),
        round_seconds=round_seconds,
        seed=spec.seed,
        classes=settings.classes if algorithm.objective.targets == "classes" else None,
        metrics=metrics,
    )


def recorded_model_of(spec: Spec, settings: Settings) -> RecordedModel:
    """What the record of a deployment keeps of its model."""
    if settings.dealt:
        return build(spec).recorded_model()
    model, rule = _model_of(spec, settings.input_shape, settings.classes), build_algorithm(spec).sharing
    assert settings.input_shape is not None
    assert settings.classes is not None
    inputs = Inputs(tuple(settings.input_shape), settings.classes)
    return RecordedModel(rule.layout(model).prefix, choice_of("sharing", rule), inputs=inputs)


def check_server(spec: Spec, settings: Settings) -> None:
    """Refuse, before anything is started, a deployment that could not run."""
    if settings.dealt:
        _check_dealt(build(spec), settings)
    else:
        if settings.validation is not None and spec.validation is not None:
            raise InputError("validation is set in the deployment and in the spec; take one of them out.")
        task = build_task(spec, settings.classes or 0)
        mode = _mode(spec, task)
        check_selection(spec.monitor, mode, (settings.validation or spec.validation) is not None)
        build_algorithm(spec).check_metrics(task.own_metrics)
        model = _model_of(spec, settings.input_shape, settings.classes)
        if settings.test is None and settings.validation is None:
            _metrics_without_data(task, model, settings)
    if (spec.clients_per_round or 1) > len(settings.sites):
        raise InputError(
            f"clients_per_round is {spec.clients_per_round}, but there are {len(settings.sites)} sites."
        )
    if not settings.dealt:
        build_algorithm(spec).weighing.check(spec.clients_per_round or len(settings.sites))


def _metrics_without_data(task: Task, model: nn.Module, settings: Settings) -> OwnMetrics:
    """The user's own metrics, for a server that has no batch to see the shapes of their states.

    Some have a number for each output of the model. The server counts these on inputs that are all zero.
    """
    metrics = task.own_metrics
    wide = [name for name, metric in metrics.metrics.items() if metric.sized(torch.zeros(3, 2)) is not metric]
    if not wide:
        return metrics
    with suppress(Exception), torch.inference_mode(), seeded(0, "check"):
        if settings.input_shape is not None:
            inputs = torch.zeros(3, *settings.input_shape, dtype=input_dtype(model))
            found = FittedTask(call=task.call, predictions=task.predictions)
            return metrics.sized(found.seen(found.raw(copy.deepcopy(model).eval(), inputs)))
    raise InputError(
        f"metric {wide[0]!r} has sums for each output of the model, and the server cannot count these; set "
        "input_shape, or name a test set, in deployment.toml."
    )


def _mode(spec: Spec, task: Task) -> str | None:
    """Whether the monitored metric is better when it is larger or smaller, where spec or metric says it."""
    return mode_of(spec.monitor, spec.mode, task.own_metrics)


def _check_dealt(federation: SimulatedFederation, settings: Settings) -> None:
    if list(federation.ids) != settings.sites:
        raise InputError(
            f"the spec deals its data to {', '.join(federation.ids)}, but the sites are "
            f"{', '.join(settings.sites)}; `dealt` is for trials (`steelyard deploy try`)."
        )


def load_invited_spec(invitation: Invitation, home: Path, trust: gate.Permission) -> Spec:
    """The spec of an invitation. If it names code, that code must be at the site, and the site trust it."""
    file = home / "spec.toml"
    if not file.is_file() or file.read_text("utf-8") != invitation.spec:
        file.write_text(invitation.spec, "utf-8")
    spec = load_spec(file, trust=trust)
    if spec_hash(spec, invitation.input_shape, invitation.classes) != invitation.hash:
        raise InputError(
            f"the invitation for {invitation.site} does not fit its own spec: it was edited, or made with "
            "another version of steelyard; ask for a new one."
        )
    return spec


def build_site(invitation: Invitation, spec: Spec, load: Load | None, states: ClientStates) -> Site:
    """The site that was invited, with its data; a model that does not fit them is refused."""
    name = invitation.site
    if invitation.dealt:
        federation = build(spec)
        if name not in federation.clients:
            raise unknown("client", name, federation.ids)
        workload = federation.workload
    elif load is None:
        raise InputError("say where the data are: --data module:function, which is called with the name.")
    else:
        workload = _own_workload(invitation, spec, _client(name, load(name)))
    found = SiteRunner(workload).site(name)
    return Site(found.client, found.learner, found.working, found.common, states)


def _own_workload(invitation: Invitation, spec: Spec, client: Client) -> Workload:
    """How a site learns from data of its own. What concerns all sites together is checked by the server."""
    algorithm, task = build_algorithm(spec), build_task(spec, invitation.classes or 0)
    model, dtype = None, torch.float32
    if client.model is None or not algorithm.sharing.has_private_layers:
        model = _model_of(spec, invitation.input_shape, invitation.classes)
        check_initialised(model)
        dtype = input_dtype(model)
    if client.model is None and client.form is not None:
        _check_columns(task, client.form.columns, f"client {client.id!r}")
    clients = as_clients([client], dtype, task.columns)
    if spec.validation is not None:
        clients = with_held_out(clients, spec.validation, spec.seed)
    workload = workload_of(clients, model, algorithm, task, spec.rounds, spec.seed)
    _ = workload.outputs  # a model that does not fit is refused
    warn_of_unusable(list(clients.values()), None, None)
    return workload


def _test_data(settings: Settings, task: Task, dtype: torch.dtype) -> AnyExamples | None:
    """The test set of the server's own, if it has one."""
    if settings.test is None:
        return None
    data = examples(gate.load("test set", settings.test)(), name="test").to(dtype)
    return _in_order(task, data, "the test set")


def _in_order(task: Task, data: T, where: str) -> T:
    """Data of the server's own, with the columns of a frame in the order of those of the sites."""
    if isinstance(data, Examples) and data.columns is not None:
        _check_columns(task, data.columns, where)
    return in_order_of(task.columns, data, where)


def _check_columns(task: Task, columns: Sequence[str], where: str) -> None:
    """Refuse a frame if the spec does not say the order of its columns: sites do not see each other's."""
    if task.columns is None:
        raise InputError(
            f"{where} has a data frame, whose columns may have another order at other sites: name them in "
            f"the spec, [task] columns = {json.dumps(columns)}, or give arrays."
        )


def _client(name: ClientId, data: Any) -> Client:
    if not isinstance(data, Client):
        return Client(name, data)
    if data.id != name:
        raise InputError(f"the function with the data returned a client {data.id!r}, not {name!r}.")
    return data


def _model_of(spec: Spec, input_shape: list[int] | None, classes: int | None) -> nn.Module:
    needed = components.context_of("models", spec.model)
    for name, value in (("input_shape", input_shape), ("num_classes", classes)):
        if value is None and name in needed:
            key = "classes" if name == "num_classes" else name
            raise InputError(f"{key} is not set in deployment.toml, so the model cannot be built.")
    return make_model(spec, tuple(input_shape or ()), classes or 0)
