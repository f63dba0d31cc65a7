"""What is simulated: clients, their models and how they learn. It stays the same for a whole run."""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.client.checks import check_fit, check_models, creatable, fit_to_clients
from steelyard.client.containment import run_contained
from steelyard.client.learner import Learner
from steelyard.client.models import model_of
from steelyard.client.optimizers import check_training
from steelyard.client.own_code import has_own_data, has_own_layers, has_own_steps, has_own_terms, is_own_code
from steelyard.client.placement import Placement
from steelyard.client.site import profile_of
from steelyard.client.working_model import WorkingModel, working_model_in
from steelyard.data.clients import Client, Population
from steelyard.data.examples import AnyExamples, Examples, StreamExamples
from steelyard.seeds import seeded
from steelyard.sites import Profile
from steelyard.task import Task
from steelyard.types import ClientId

MAX_TRIED = 10  # clients of a population that are tried to find one that can be created
MAX_FLOAT_BYTES = 128 << 20  # of a common test set that may be kept as floats


@dataclass(frozen=True, eq=False)
class Workload:
    """The clients of a simulation; each worker process gets one copy."""

    model: nn.Module | None
    """The model of clients that bring none of their own."""
    learner: Learner
    clients: Mapping[ClientId, Client]
    test: AnyExamples | None = None
    """The common test set."""
    threads: int = 1
    """Of torch, while a client trains or a model predicts; the last bits belong to this number."""

    @cached_property
    def ids(self) -> tuple[ClientId, ...]:
        return tuple(self.clients)

    @property
    def has_private_layers(self) -> bool:
        return self.learner.sharing.has_private_layers

    def size(self, client: ClientId) -> int:
        """A client's training examples, or 0 if that is not known before the client is made."""
        if isinstance(self.clients, Population):
            return self.clients.size(client)
        return len(self.clients[client].train)

    def divide(self, processes: int) -> None:
        """Before it is copied to other processes: a population shares out how many clients it keeps."""
        if isinstance(self.clients, Population):
            self.clients.divide(processes)

    def may_have_own_models(self, clients: Sequence[ClientId]) -> bool:
        """Whether any of them brings a model; clients of a population are looked at when they are made."""
        if isinstance(self.clients, Population):
            return False
        return any(self.clients[client].model is not None for client in clients)

    @cached_property
    def common_test(self) -> AnyExamples | None:
        """The common test set, converted to floats once if it is small: it is read in every round."""
        test = self.test
        if not self.learner.place.is_cpu:  # bytes are converted on the device
            return test
        if isinstance(test, Examples) and 4 * math.prod(test.input_shape) * len(test) < MAX_FLOAT_BYTES:
            return test.as_floats()
        return test

    @cached_property
    def checked(self) -> tuple[ClientId, ...]:
        """The clients that are looked at before the first round: all, or the first of a population."""
        lazy = isinstance(self.clients, Population)
        found = creatable(self.clients, self.ids[:MAX_TRIED] if lazy else self.ids)
        return tuple(client.id for client in (itertools.islice(found, 1) if lazy else found))

    @cached_property
    def draws_in_predictions(self) -> bool:
        """Whether the model draws random numbers when it predicts."""
        if self.model is None or self.test is None or not self.learner.task.plain:
            return False
        if isinstance(self.test, StreamExamples):  # no client has rows of it
            return False
        model = copy.deepcopy(self.model).eval()
        with torch.inference_mode(), seeded(0, "draws"):
            inputs, _ = self.test.span(0, 1)
            before = torch.default_generator.get_state()
            model(inputs)
            return not torch.equal(torch.default_generator.get_state(), before)

    def on(self, device: str) -> "Workload":
        """The same workload with models that train and predict on this device."""
        if self.learner.place.name == device:
            return self
        return replace(self, learner=self.learner.on(Placement(device)))

    def with_threads(self, threads: int) -> "Workload":
        """The same workload on so many threads."""
        return self if threads == self.threads else replace(self, threads=threads)

    @property
    def in_words(self) -> str:
        """What the name of an engine leaves out."""
        return "" if self.threads == 1 else f" with {self.threads} threads for each client"

    def fitted(self, task: Task) -> "Workload":
        """The same workload, with what its models are for found from the first client that can be read."""
        clients = [self.clients[id] for id in self.checked]
        found = fit_to_clients(task, self.model, clients, self.learner.objective)
        return replace(self, learner=replace(self.learner, task=found))

    @cached_property
    def outputs(self) -> int:
        """The number of outputs of the models; a client whose model and data do not fit is refused."""
        clients = [self.clients[id] for id in self.checked]
        check_models(clients, self.model, self.learner.sharing)
        return check_fit(self.model, clients, self.test, self.learner.objective, self.learner.task)

    @cached_property
    def memory_format(self) -> str:
        """The order of images in memory, "contiguous" or "channels-last"; both if models differ in it."""
        clients = {} if isinstance(self.clients, Population) else self.clients
        models = [self.model, *(client.model for client in clients.values())]
        found = {self.learner.memory_format(model) for model in models if model is not None}
        names = {torch.contiguous_format: "contiguous", torch.channels_last: "channels-last"}
        return ", ".join(name for format, name in names.items() if format in found)

    def profiles(self, clients: Sequence[ClientId]) -> dict[ClientId, Profile]:
        """The profiles of some clients; a client that cannot be made will fail by name when it trains."""
        profiles = {}
        for id in clients:
            found = run_contained(id, "reading", partial(self.profile, id), self.learner.own_code)
            if isinstance(found, Profile):
                profiles[id] = found
        return profiles

    def profile(self, id: ClientId) -> Profile:
        client = self.clients[id]
        shared = client.model is None and self.model is not None
        working = self._common_model if shared else self._unchanged(model_of(client, self.model))
        return profile_of(client, self.learner, working, self.outputs)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_common_model"}

    @cached_property
    def _common_model(self) -> WorkingModel:
        assert self.model is not None
        return self._unchanged(self.model)

    def _unchanged(self, model: nn.Module) -> WorkingModel:
        """A model to look at, not to train: no copy is made."""
        return replace(working_model_in(model), layout=self.learner.sharing.layout(model))


def workload_of(
    clients: Mapping[ClientId, Client],
    model: nn.Module | None,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    seed: int,
    test: AnyExamples | None = None,
) -> Workload:
    """How these clients learn; what their models are for is found from the first that can be read."""
    example = model_of(next(creatable(clients, clients)), None) if model is None else model
    check_training(algorithm.training, example, rounds)
    parts = has_own_layers(example), has_own_terms(algorithm.objective), is_own_code(algorithm.sharing)
    own_code = any(parts) or task.has_own_code or has_own_steps(algorithm.training)
    learner = Learner(
        algorithm.objective,
        algorithm.sharing,
        algorithm.sharing.layout(example),
        algorithm.training,
        seed,
        own_code or has_own_data(clients, test),
    )
    return Workload(model, learner, clients, test).fitted(task)
