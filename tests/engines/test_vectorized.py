"""Clients trained together learn what they learn alone, to within rounding, whatever their sizes."""

import itertools
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from test_engines import Deadly
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.algorithm import Algorithm
from steelyard.data.clients import Client
from steelyard.data.examples import Examples
from steelyard.engines import Auto, Engine, Pool, Serial, Vectorized, vectorized
from steelyard.engines.vectorized import VectorizedRunner, pays
from steelyard.engines.workload import Workload
from steelyard.errors import InputError
from steelyard.layout import Layout
from steelyard.objectives import CrossEntropy, Focal, Objective, Proximal
from steelyard.objectives.base import Local, LocalLoss
from steelyard.server.federation import advance
from steelyard.server.result import Result
from steelyard.settings import Training
from steelyard.sharing import Sharing, WholeModel
from steelyard.sharing.base import Tensors
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Message, State

SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 41, 64]


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))


def table(size: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 2, 3, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def own_tables() -> list[Client]:
    return [Client(f"c{size:02d}", table(size, size)) for size in SIZES]


def one_table() -> list[Client]:
    """Rows of one table of bytes."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randint(0, 256, (300, 2, 3), dtype=torch.uint8, generator=generator)
    targets = torch.randint(0, 3, (300,), generator=generator)
    whole = Examples(inputs, targets, torch.randperm(300, generator=generator), (0.4,), (0.3,))
    starts = torch.tensor([0, *SIZES]).cumsum(0)
    return [
        Client(f"c{size:02d}", whole.take(torch.arange(int(start), int(start) + size)))
        for size, start in zip(SIZES, starts, strict=False)
    ]


def run(engine: Engine, clients: Any = None, **settings: Any) -> Result:
    training = settings.pop("training", Training(lr=0.2, batch_size=8, epochs=2))
    algorithm = Algorithm(
        training=training,
        objective=settings.pop("objective", CrossEntropy()),
        sharing=settings.pop("sharing", WholeModel()),
    )
    settings = {"rounds": 3, "test": table(50, 99), "model": perceptron(), **settings}
    return Federation(clients or own_tables(), algorithm=algorithm, engine=engine, **settings).run()


def assert_close(found: Result, wanted: Result) -> None:
    for name, value in wanted.model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(found.clients, wanted.clients, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert mine[key] == (
                pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
            )


TRAININGS = [
    Training(lr=0.2, batch_size=8, epochs=2),
    Training(lr=0.1, momentum=0.9, weight_decay=0.01, batch_size=8, epochs=2),
    Training(lr=0.1, momentum=0.9, batch_size=16, steps=5),
    Training(optimizer="adam", lr=0.01, batch_size=8),
]


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("clients", [own_tables, one_table])
def test_together_is_as_alone(training: Training, clients: Any) -> None:
    assert_close(
        run(Vectorized(1), clients(), training=training), run(Serial(), clients(), training=training)
    )


def equal_tables() -> list[Client]:
    """Clients that all make as many steps: their updates are neighbours in memory."""
    return [Client(f"c{number:02d}", table(20, number)) for number in range(12)]


class Doubled(WholeModel):
    """Sends twice what the model has."""

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return Message(2 * super().read(tensors, layout).mean)

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        super().write(tensors, layout, Message(message.mean / 2), state)


@pytest.mark.parametrize("sharing", [WholeModel(), Doubled()])
def test_updates_that_are_written_at_once_are_as_alone(sharing: Sharing) -> None:
    found = run(Vectorized(1), equal_tables(), sharing=sharing, model=nn.Sequential(*perceptron()))
    assert_close(found, run(Serial(), equal_tables(), sharing=sharing))


def test_a_buffer_that_travels_is_as_alone() -> None:
    def model() -> nn.Module:
        found = perceptron()
        found.register_buffer("scale", torch.tensor([2.0, 3.0]))
        return found

    found = run(Vectorized(1), equal_tables(), model=model())
    assert_close(found, run(Serial(), equal_tables(), model=model()))


@pytest.mark.parametrize("objective", [Focal(), CrossEntropy(label_smoothing=0.1), Proximal(mu=0.5)])
def test_objectives_are_as_alone(objective: Objective) -> None:
    assert_close(run(Vectorized(1), objective=objective), run(Serial(), objective=objective))


WEIGHTS = torch.tensor([0.5, 1.0, 3.0])


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.MultiMarginLoss(p=2),
        nn.SmoothL1Loss(beta=0.5),
        nn.PoissonNLLLoss(full=True),
        nn.SoftMarginLoss(),
    ],
    ids=str,
)
def test_losses_of_torch_are_as_alone(loss: nn.Module) -> None:
    numbers = not isinstance(loss, nn.CrossEntropyLoss | nn.MultiMarginLoss)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 1)) if numbers else perceptron()
    tables = {size: table(size, size) for size in SIZES}
    clients = [Client(f"c{size:02d}", (x, x[:, 0, 0] if numbers else y)) for size, (x, y) in tables.items()]
    found, wanted = (
        run(engine, clients, objective=loss, model=model, test=None) for engine in (Vectorized(1), Serial())
    )
    assert_close(found, wanted)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(ignore_index=2),  # divided by the number of examples of other classes
        nn.NLLLoss(ignore_index=0),
        nn.CrossEntropyLoss(weight=WEIGHTS),  # divided by the sum of the weights
        nn.NLLLoss(weight=WEIGHTS),
        nn.MultiMarginLoss(weight=WEIGHTS),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
    ],
    ids=str,
)
def test_losses_of_torch_that_are_no_mean_over_examples_are_trained_alone(loss: nn.Module) -> None:
    model = nn.Sequential(perceptron(), nn.LogSoftmax(1))
    with pytest.raises(InputError, match=r"OwnLoss has no loss for each|one target for each"):
        run(Vectorized(1), objective=loss, model=model)


def test_a_frozen_layer_stays_and_a_convolution_is_allowed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    found = run(Vectorized(1), model=model)
    assert_close(found, run(Serial(), model=model))
    assert torch.equal(found.model[0].weight, model[0].weight)


class Counting(WholeModel):
    """Keeps a number with each client, which moves its model when it is back."""

    def write(self, tensors: Tensors, layout: Layout, message: Any, state: State) -> None:
        super().write(tensors, layout, message, state)
        if "kept" in state:
            with torch.no_grad():
                tensors["4.bias"].add_(0.1 * state["kept"])

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return {"kept": tensors["4.bias"].detach().mean()}


def test_what_stays_with_a_client_is_as_alone() -> None:
    found, wanted = (run(engine, sharing=Counting()) for engine in (Vectorized(1), Serial()))
    assert_close(found, wanted)
    assert found.clients != run(Vectorized(1)).clients


def test_the_number_of_workers_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorized, "MIN_GROUP", 3)
    results = [run(Vectorized(workers), rounds=2) for workers in (1, 2, 3)]
    for other in results[1:]:
        assert other.history == results[0].history
        assert other.clients == results[0].clients
    assert multiprocessing.active_children() == []


def test_a_worker_killed_in_a_round_changes_no_bit(tmp_path: Path) -> None:
    results = []
    for lives in (0, 2):
        killing = Deadly(tmp_path / f"deaths-{lives}", lives, table(12, 3)[0])
        parties = [*own_tables(), Client("killing", killing)]
        results.append(run(Vectorized(2), parties, rounds=2))
    assert (tmp_path / "deaths-2").stat().st_size == 2
    assert results[0].clients == results[1].clients


class Broken(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 3:
            raise OSError("disk on fire")
        return torch.zeros(2, 3), 0


def test_a_client_that_fails_is_named_and_the_others_of_its_group_are_used() -> None:
    result = run(Vectorized(1), [*own_tables(), Client("broken", Broken())], rounds=1)
    status = {row["client"]: row["status"] for row in result.clients}
    assert status.pop("broken") == "failed while training: OSError: disk on fire"
    assert set(status.values()) == {"used"}


class Steering(nn.Module):
    """Its program depends on its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        return outputs if outputs.sum() > 0 else -outputs


class Changing(nn.Module):
    """Keeps a moving average of its outputs, in a parameter that is not trained or in another buffer."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.average = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.register_buffer("other", torch.zeros(3) if buffer else None)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1))
        with torch.no_grad():
            if self.other is None:
                self.average.mul_(0.9).add_(outputs.mean(0))
            elif self.training:
                self.other = 0.9 * self.other + outputs.mean(0)
        return outputs


class Alone(CrossEntropy):
    def bind(self, local: Local) -> LocalLoss:
        return super().bind(local)._replace(losses=None)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"objective": Alone()}, "Alone has no loss for each example"),
        ({"training": Training(steps=0)}, "nothing to train"),
        ({"model": nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 3))}, "batch normalisation"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3))}, "random"),
        ({"model": Steering()}, "control flow"),
        ({"model": Changing(buffer=False)}, "parameters that are not trained"),
        ({"model": Changing(buffer=True)}, "the model changes buffers"),
    ],
)
def test_what_cannot_be_trained_together_is_refused_with_the_reason(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=f"vectorized engine cannot train this: .*{reason}.*another engine"):
        run(Vectorized(1), **settings)
    federation = run(Auto(), **settings)  # auto takes another engine by itself
    assert len(federation.history) == 3


def test_vectorized_needs_a_worker() -> None:
    with pytest.raises(InputError, match="workers"):
        Vectorized(0)


def workload(sizes: list[int], model: nn.Module | None = None, **training: Any) -> Workload:
    clients = [Client(f"c{number:04d}", table(size, 1)) for number, size in enumerate(sizes)]
    algorithm = Algorithm(training=Training(**training))
    return Federation(clients, model or perceptron(), algorithm).workload


def test_groups_hold_everyone_once_with_like_steps_and_fit_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    work = workload(list(range(1, 101)), batch_size=4)
    groups = VectorizedRunner.groups(work, list(work.clients), 1)
    assert sorted(client for group in groups for client in group) == list(work.clients)
    assert [len(group) for group in groups] == [50, 50]
    sizes = [work.size(client) for group in groups for client in group]
    assert all(before >= after - 3 for before, after in itertools.pairwise(sizes))
    monkeypatch.setattr(vectorized, "STACK_BYTES", 4 * work.learner.layout.size * 10)
    assert max(map(len, VectorizedRunner.groups(work, list(work.clients), 1))) == 10
    assert VectorizedRunner.groups(work, list(work.clients)[:1], 1) == [["c0000"]]


@pytest.mark.parametrize(
    ("wanted", "sizes", "model", "training"),
    [
        (True, [20] * 40, None, {}),
        (False, [20] * 10, None, {}),  # too few to be worth it
        (False, [1] * 38 + [5000] * 2, None, {}),  # nearly everyone would wait for two
        (False, [20] * 40, nn.Sequential(nn.Conv1d(2, 4, 2), nn.Flatten(), nn.Linear(8, 3)), {}),
        (False, [20] * 40, None, {"batch_size": 100_000}),  # arithmetic is what costs
    ],
)
def test_auto_trains_together_where_it_pays(
    wanted: bool, sizes: list[int], model: nn.Module | None, training: dict[str, Any]
) -> None:
    work = workload(sizes, model, **training)
    assert pays(work, list(work.clients)) is wanted


def test_auto_takes_it_and_says_so(tmp_path: Path) -> None:
    clients = [Client(f"c{number:02d}", table(20, number)) for number in range(40)]
    federation = Federation(clients, perceptron(), rounds=1)
    with federation.open() as sites:
        server = federation.server(sites)
        advance(server, server.init())
        assert sites.about.startswith("vectorized, pool of")


def test_pool_and_vectorized_agree_with_a_seed_for_each_shuffle() -> None:
    assert_close(run(Vectorized(2), one_table()), run(Pool(2), one_table()))
