"""From a spec to a federation: everything that a spec names, put together."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from steelyard import components
from steelyard.algorithm import Algorithm
from steelyard.attacks import Attack
from steelyard.attacks.attacked import draw_adversaries
from steelyard.data import Client, Dataset, Population, as_clients, deal
from steelyard.data.heterogeneous import HeterogeneousDataset
from steelyard.errors import InputError
from steelyard.runs.recorded_model import Inputs
from steelyard.runs.summary import flattened
from steelyard.seeds import generator, seeded
from steelyard.server.observing import Observer
from steelyard.settings import Server, Training
from steelyard.simulation import SimulatedFederation
from steelyard.specs import gate
from steelyard.specs.schema import Adversaries, Data, Spec
from steelyard.task import Task
from steelyard.types import ClientId


def build(spec: Spec) -> SimulatedFederation:
    """The federation of a spec; what does not fit together is refused."""
    if spec.validation and spec.data.holdout:
        raise InputError(
            "validation and data.holdout both hold examples out; set one: temperatures are fitted on either."
        )
    algorithm = build_algorithm(spec)
    dataset: Dataset | HeterogeneousDataset = components.build("datasets", spec.data.dataset)
    clients = deal_all(spec, dataset)
    federation = SimulatedFederation(
        clients,
        build_model(spec, dataset) if isinstance(dataset, Dataset) else None,
        algorithm,
        test=dataset.test if isinstance(dataset, Dataset) else None,
        rounds=spec.rounds,
        clients_per_round=spec.clients_per_round,
        evaluate_every=spec.evaluate_every,
        validation=spec.validation,
        monitor=spec.monitor,
        mode=spec.mode,
        patience=spec.patience,
        round_seconds=spec.round_seconds,
        seed=spec.seed,
        engine=components.build("engines", spec.engine),
        spill=spec.spill,
        adversaries=choose_adversaries(spec, tuple(clients)),
        task=build_task(spec, dataset.num_classes),
    )
    federation.name, federation.parameters = spec.name, parameters_of(spec)
    federation.inputs, federation.client_inputs = _inputs(dataset, clients)
    return federation


def _inputs(
    dataset: Dataset | HeterogeneousDataset, clients: Mapping[ClientId, Client]
) -> tuple[Inputs | None, dict[ClientId, Inputs]]:
    """What the common model, or the models of the clients, are built for."""
    if isinstance(dataset, Dataset):
        return Inputs(dataset.train.input_shape, dataset.num_classes), {}
    return None, {
        id: Inputs(client.train.input_shape or (), dataset.num_classes, number)
        for number, (id, client) in enumerate(clients.items())
    }


def parameters_of(spec: Spec) -> dict[str, Any]:
    """The settings of a spec for its observers, by names such as `training.lr`."""
    return flattened(spec.model_dump(exclude={"name", "rounds", "observers"}))


def build_task(spec: Spec, num_classes: int) -> Task:
    """How the spec's model is called, what its targets are, and its metrics."""
    functions = {
        name: None if value is None else gate.load(f"function task.{name}", value)
        for name, value in (("call", spec.task.call), ("predictions", spec.task.predictions))
    }
    metrics = {
        name: components.build("metrics", each, num_classes=num_classes)
        for name, each in spec.metrics.items()
    }
    return Task(**{**spec.task.model_dump(), **functions}, metrics=metrics)


def build_observers(spec: Spec) -> list[Observer]:
    """The observers that a spec names; refused if a library that one of them needs is not installed."""
    return [components.build("observers", each) for each in spec.observers]


def deal_all(spec: Spec, dataset: Dataset | HeterogeneousDataset) -> Mapping[ClientId, Client]:
    """The spec's clients, dealt from the data seed."""
    if isinstance(dataset, HeterogeneousDataset):
        return deal_mixed(spec, dataset)
    return deal_clients(spec.data, dataset, spec.adversaries.count if spec.adversaries.extra else 0)


def build_algorithm(spec: Spec) -> Algorithm:
    """The algorithm of a spec."""
    return Algorithm(
        objective=components.build("objectives", spec.objective),
        sharing=components.build("sharing", spec.sharing),
        weighing=components.build("weighing", spec.weighing),
        combining=components.build("combining", spec.combining),
        training=Training(**spec.training),
        server=Server(**spec.server),
    )


def build_model(spec: Spec, dataset: Dataset) -> nn.Module:
    """The spec's model, initialised from the training seed."""
    return make_model(spec, dataset.train.input_shape, dataset.num_classes)


def make_model(spec: Spec, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The spec's model for examples of this shape, initialised from the training seed."""
    with seeded(spec.seed, "model"):
        return _model(spec, Inputs(input_shape, num_classes))


def make_client_model(spec: Spec, client: ClientId, inputs: Inputs) -> nn.Module:
    """The model of a client that has inputs of its own, initialised from the training seed."""
    with seeded(spec.seed, client, "model"):
        return _model(spec, inputs)


def _model(spec: Spec, inputs: Inputs) -> nn.Module:
    context = {"input_shape": inputs.shape, "num_classes": inputs.num_classes, "client": inputs.client}
    model: nn.Module = components.build("models", spec.model, **context)
    return model


def choose_adversaries(spec: Spec, ids: Sequence[ClientId]) -> dict[ClientId, Attack]:
    """The clients that attack: the last ones if they are extra, else a draw from the data seed."""
    count = spec.adversaries.count
    if not count:
        return {}
    attack: Attack = components.build("attacks", spec.adversaries.attack)
    if spec.adversaries.extra:
        return dict.fromkeys(ids[-count:], attack)
    return dict.fromkeys(draw_adversaries(ids, count, spec.data.seed or 0), attack)


def spec_warnings(spec: Spec) -> tuple[str, ...]:
    """What a spec asks for in vain, a sentence each."""
    default = components.complete("attacks", Adversaries().attack)
    if spec.adversaries.count or components.complete("attacks", spec.adversaries.attack) == default:
        return ()
    name = spec.adversaries.attack["name"]
    return (f"adversaries.attack is {name!r}, but adversaries.count is 0: no client attacks.",)


def deal_clients(data: Data, dataset: Dataset, extra: int = 0) -> Population:
    """The spec's clients, dealt from the data seed; `extra` clients after them hold the same rows."""
    seed = data.seed or 0
    context = {"labels": dataset.train.labels, "groups": dataset.groups, "clients": data.clients}
    rows = components.build("partitions", data.partition, generator=generator(seed, "partition"), **context)
    rows = [*rows, *(rows[number % len(rows)] for number in range(extra))]
    shift = None if data.shift is None else partial(_shift, data, seed)
    return deal(dataset, rows, seed, shift, data.holdout)


def deal_mixed(spec: Spec, dataset: HeterogeneousDataset) -> Mapping[ClientId, Client]:
    """Clients with inputs of their own, dealt from the data seed, each with a model for them."""
    data, seed = spec.data, spec.data.seed or 0
    for name, value in (("data.shift", data.shift), ("data.holdout", data.holdout)):
        if value:
            raise InputError(
                f"{name} cannot be set for {dataset.name}: its clients have inputs of their own."
            )
    if spec.adversaries.extra:
        raise InputError(
            f"adversaries.extra cannot be set for {dataset.name}; let some of its clients attack."
        )

    def split(labels: Tensor, clients: int, part: str) -> Sequence[Tensor]:
        context = {"labels": labels, "groups": None, "clients": clients}
        draw = generator(seed, part, "partition")
        rows: Sequence[Tensor] = components.build("partitions", data.partition, generator=draw, **context)
        return rows

    clients = sorted(dataset.deal(split, data.clients, seed), key=lambda client: client.id)
    for number, client in enumerate(clients):
        inputs = Inputs(client.train.input_shape or (), dataset.num_classes, number)
        client.model = make_client_model(spec, client.id, inputs)
    return as_clients(clients)


def _shift(data: Data, seed: int, images: Tensor, client: int) -> Tensor:
    assert data.shift is not None
    client %= data.clients  # an extra client has the shift of the client whose rows it holds
    draw = generator(seed, client, "shift")
    shifted: Tensor = components.build(
        "shifts", data.shift, images=images, client=client, clients=data.clients, generator=draw
    )
    return shifted
