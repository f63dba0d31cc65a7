"""Data that come batch after batch: loaders, iterable data sets, functions that return them."""

import copy
import itertools
import multiprocessing
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import steelyard as sy
from steelyard.data.clients import Client, as_clients
from steelyard.data.examples import StreamExamples, examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.errors import InputError, SteelyardWarning
from steelyard.seeds import seeded

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10) % 3
PAIRS = TensorDataset(X, Y)


class Endless(IterableDataset[tuple[Tensor, int]]):
    """Ten examples; their number is not known before they are read."""

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for row in range(10):
            yield X[row], int(Y[row])


class Noisy(Dataset[tuple[Tensor, int]]):
    """A random transform that draws from all three generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        noise = torch.rand(2) + np.random.rand() + random.random()
        return X[row] + noise, int(Y[row])


def stream(given: Any, **options: Any) -> StreamExamples:
    found = examples(given, name="rome", **options)
    assert isinstance(found, StreamExamples)
    return found


def one_pass(data: StreamExamples, seed: int = 0, batch_size: int = 4) -> list[Any]:
    with seeded(seed, "pass"):
        return list(data.passes(batch_size))


def sizes(data: StreamExamples, batch_size: int = 4) -> list[int]:
    return [len(targets) for _, targets in one_pass(data, batch_size=batch_size)]


def test_a_loader_keeps_its_own_batches() -> None:
    data = stream(DataLoader(PAIRS, batch_size=4))
    found = one_pass(data, batch_size=99)
    assert [len(targets) for _, targets in found] == [4, 4, 2]
    assert torch.equal(torch.cat([inputs for inputs, _ in found]), X)
    assert torch.equal(torch.cat([targets for _, targets in found]), Y)
    assert len(data) == 10


def test_an_iterable_data_set_comes_in_batches_of_the_size_that_is_asked_for() -> None:
    data = stream(Endless())
    assert sizes(data, 4) == [4, 4, 2]
    assert sizes(data, 5) == [5, 5]
    assert torch.equal(torch.cat([inputs for inputs, _ in one_pass(data)]), X)
    assert len(data) == 10


def test_a_function_is_called_for_every_pass() -> None:
    calls = []

    def loader() -> DataLoader[Any]:
        calls.append(1)
        return DataLoader(PAIRS, batch_size=3)

    data = stream(loader)
    assert sizes(data) == sizes(data) == [3, 3, 3, 1]
    assert len(calls) == 2
    assert len(data) == len(data) == 10
    assert len(calls) == 3, "the number of examples is counted once"
    assert len(data.to(torch.float64)) == 10
    assert len(calls) == 3


def test_a_function_may_return_a_generator_of_batches() -> None:
    def batches() -> Iterator[dict[str, Any]]:
        for start in range(0, 10, 5):
            yield {"x": X[start : start + 5].numpy(), "label": Y[start : start + 5].int().numpy()}

    [(inputs, targets), _] = one_pass(stream(batches))
    assert torch.equal(inputs["x"], X[:5])
    assert targets.dtype == torch.int64


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"batch_size": 4}, 10),
        ({"batch_size": 4, "drop_last": True}, 8),
        ({"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * 10, 7)}, 7),
        ({"batch_size": None}, 10),
    ],
)
def test_the_number_of_examples_is_that_of_a_pass(options: dict[str, Any], count: int) -> None:
    data = stream(DataLoader(PAIRS, **options))
    assert len(data) == count
    if options["batch_size"]:
        assert sum(sizes(data)) == count


def test_a_loader_whose_data_set_has_no_length_is_counted() -> None:
    assert len(stream(DataLoader(Endless(), batch_size=4))) == 10


@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(lambda: DataLoader(PAIRS, 4), 3, id="loader"),
        pytest.param(lambda: DataLoader(PAIRS, 4, drop_last=True), 2, id="drop_last"),
        pytest.param(lambda: DataLoader(PAIRS, batch_sampler=[[0, 1], [2], [3]]), 3, id="batch_sampler"),
        pytest.param(lambda: DataLoader(PAIRS, batch_sampler=Unsized()), 2, id="unsized batch_sampler"),
        pytest.param(lambda: DataLoader(Endless(), 3), 4, id="iterable"),
        pytest.param(lambda: lambda: DataLoader(PAIRS, 3), 4, id="function"),
        pytest.param(lambda: Endless(), 2, id="items"),
    ],
)
def test_the_number_of_batches_is_that_of_a_pass(make: Callable[[], Any], count: int) -> None:
    data = stream(make())
    assert data.batches_per_pass(5) == len(one_pass(data, batch_size=5)) == count


class Unsized:
    """Two batches; their number is not known before they are read."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1, 2], [3]])


@pytest.mark.parametrize("make", [lambda: DataLoader(PAIRS, 2), lambda: lambda: DataLoader(PAIRS, 2)])
def test_a_schedule_sees_the_steps_that_a_loader_makes(make: Callable[[], Any]) -> None:
    seen: list[Any] = []

    def schedule(progress: Any) -> float:
        seen.append((progress.step, progress.steps))
        return 1.0

    training = sy.Training(schedule=schedule, epochs=2, accumulate=3, batch_size=32)
    sy.Federation(
        {"a": make()}, nn.Linear(2, 3), sy.Algorithm(training=training), rounds=1, engine="serial"
    ).run()
    assert seen[-4:] == [(0, 4), (1, 4), (2, 4), (3, 4)]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: DataLoader(PAIRS, 4, shuffle=True), id="torch's generator"),
        pytest.param(
            lambda: DataLoader(PAIRS, 4, shuffle=True, generator=torch.Generator()), id="own generator"
        ),
        pytest.param(
            lambda: DataLoader(PAIRS, 4, sampler=RandomSampler(PAIRS, generator=torch.Generator())),
            id="own sampler",
        ),
        pytest.param(lambda: DataLoader(Noisy(), 4), id="transform"),
        pytest.param(lambda: lambda: DataLoader(Noisy(), 4, shuffle=True), id="function"),
    ],
)
def test_a_pass_repeats_for_a_seed_and_differs_by_seed_and_pass(make: Callable[[], Any]) -> None:
    first, again = stream(make()), stream(make())
    for _ in first.passes(4):  # whatever was read before
        pass
    torch.testing.assert_close(one_pass(first), one_pass(again), rtol=0, atol=0)
    torch.testing.assert_close(one_pass(first), one_pass(again), rtol=0, atol=0)
    with seeded(0, "pass"):
        both = [torch.cat([inputs for inputs, _ in first.passes(4)]) for _ in range(2)]
    assert not torch.equal(*both)
    assert not torch.equal(both[0], torch.cat([inputs for inputs, _ in one_pass(first, seed=1)]))


@pytest.mark.parametrize("training", [{"epochs": 1}, {"steps": 2}], ids=["whole pass", "part of a pass"])
def test_generators_of_the_user_are_as_before(training: dict[str, Any]) -> None:
    of_loader, of_sampler = torch.Generator().manual_seed(5), torch.Generator().manual_seed(6)
    sampler = RandomSampler(PAIRS, generator=of_sampler)
    loader = DataLoader(PAIRS, 2, sampler=sampler, generator=of_loader)
    states = of_loader.get_state(), of_sampler.get_state()
    algorithm = sy.Algorithm(training=training)
    sy.Federation({"a": loader}, nn.Linear(2, 3), algorithm, rounds=1, engine="serial").run()
    assert torch.equal(of_loader.get_state(), states[0])
    assert torch.equal(of_sampler.get_state(), states[1])


def test_counting_and_labels_leave_the_global_generators_alone() -> None:
    data = stream(lambda: DataLoader(Noisy(), 4, shuffle=True))
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    assert len(data) == 10
    assert data.labels.bincount().tolist() == [4, 3, 3]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # type: ignore[index]
    assert random.getstate() == states[2]


def test_the_workers_of_a_loader_are_not_started() -> None:
    loader = DataLoader(
        Noisy(), 4, num_workers=2, persistent_workers=True, timeout=9, prefetch_factor=2, shuffle=True
    )
    with pytest.warns(SteelyardWarning, match="rome: the 2 workers of the DataLoader are not used"):
        data = stream(loader)
    plain = stream(DataLoader(Noisy(), 4, shuffle=True))
    torch.testing.assert_close(one_pass(data), one_pass(plain), rtol=0, atol=0)
    assert not multiprocessing.active_children()
    assert loader.num_workers == 2, "the loader itself is not changed"


def _in_a_worker(data: StreamExamples, pipe: Any) -> None:
    pipe.send(sizes(data))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="workers are forked")
def test_a_loader_with_workers_is_read_in_a_daemonic_process() -> None:
    data = stream(lambda: DataLoader(PAIRS, 4, num_workers=2))
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_in_a_worker, args=(data, there), daemon=True)
    process.start()
    assert here.poll(60)
    assert here.recv() == [4, 4, 2]
    process.join()


def test_streams_come_in_double_precision_for_a_model_of_it() -> None:
    data = stream(DataLoader(TensorDataset(X, X.double(), Y), 4))
    for dtype, wanted in ((torch.float64, torch.float64), (torch.float32, torch.float32)):
        inputs, targets = one_pass(data.to(dtype))[0]
        assert [tensor.dtype for tensor in inputs] == [wanted] * 2
        assert targets.dtype == torch.int64


@pytest.mark.parametrize(
    "use",
    [
        lambda data: data.rows,
        lambda data: data.take(torch.arange(2)),
        lambda data: data.batch(torch.arange(2)),
        lambda data: data.span(0, 2),
    ],
)
def test_single_examples_of_a_stream_cannot_be_had(use: Callable[[StreamExamples], Any]) -> None:
    with pytest.raises(InputError, match=r"rome: single examples are needed, but .* batch after batch"):
        use(stream(Endless()))


def test_a_collate_fn_makes_batches_of_items_and_a_loader_has_its_own() -> None:
    def doubled(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        return torch.stack([2 * item[0] for item in items]), torch.tensor([item[1] for item in items])

    assert torch.equal(one_pass(stream(Endless(), collate_fn=doubled))[0][0], 2 * X[:4])
    for given in (DataLoader(PAIRS), lambda: DataLoader(PAIRS)):
        with pytest.raises(InputError, match=r"rome: .*give the collate_fn to their DataLoader"):
            stream(given, collate_fn=doubled)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (iter(PAIRS), "rome: .* can be read only once; give a function"),
        (lambda: (X, Y), "rome: the function must return batches.* not tuple"),
        (lambda: 7, "rome: the function must return batches.* not int"),
        (lambda: [1 / 0], "rome: the data cannot be read: ZeroDivisionError"),
        (lambda: [({"words": ["good"]}, Y[:1])], r"rome: inputs\['words'\]\[0\] .*text"),
        (lambda: [(X, Y, "no")], "rome: targets of a batch is text"),
        (lambda: list(PAIRS), "rome: single examples come where batches are needed; yield batches"),
        (lambda: ((row, 1) for row in X), "rome: single examples come"),
        (lambda: [{"x": row, "label": np.int64(1)} for row in X], "rome: single examples come"),
        (DataLoader(PAIRS, batch_size=None), "rome: single .* or give the DataLoader a batch_size"),
    ],
)
def test_streams_that_cannot_be_used_are_refused_by_name(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = stream(given).labels


def test_items_of_different_shapes_need_a_collate_fn() -> None:
    class Ragged(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return ((torch.ones(size), 0) for size in (1, 2))

    with pytest.raises(InputError, match="rome: items differ in shape; give a collate_fn"):
        one_pass(stream(Ragged()))


def test_a_client_may_train_and_be_tested_on_streams() -> None:
    client = Client("rome", lambda: DataLoader(PAIRS, 4), lambda: (batch for batch in [(X, Y)]), Endless())
    assert client.own_code
    [found] = as_clients([client], torch.float64).values()
    for part in (found.train, found.test, found.held_out):
        assert isinstance(part, StreamExamples)
        assert sum(sizes(part)) == sum(sizes(part)) == len(part) == 10
        assert one_pass(part)[0][0].dtype == torch.float64


def test_an_empty_stream_is_an_empty_client() -> None:
    with pytest.raises(InputError, match="client 'rome' has no examples"):
        as_clients({"rome": lambda: iter(())})


def test_a_stream_that_can_be_read_only_once_is_refused_at_the_second_pass() -> None:
    once = iter([(X, Y)])
    data = stream(lambda: once)
    assert len(data) == 10
    with pytest.raises(InputError, match="rome: a further pass has no batches; return new ones"):
        one_pass(data)


class Shifted(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return ((X[row] + torch.rand(2), int(Y[row])) for row in range(10))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="loaders are inherited")
def test_a_federation_learns_the_same_from_streams_in_every_engine() -> None:
    def learn(engine: Engine) -> dict[str, Tensor]:
        torch.manual_seed(0)
        clients = {
            "a": DataLoader(Noisy(), 4, shuffle=True, generator=torch.Generator().manual_seed(3)),
            "b": lambda: DataLoader(Noisy(), 4, shuffle=True),
            "c": Shifted(),
        }
        test = DataLoader(PAIRS, 4)
        federation = sy.Federation(clients, nn.Linear(2, 3), test=test, rounds=2, engine=engine)
        return federation.run().model.state_dict()

    alone, pooled = learn(Serial()), learn(Pool(workers=2))
    for name, values in alone.items():
        assert torch.equal(values, pooled[name])


def test_streams_can_be_copied_and_pickled() -> None:
    data = stream(DataLoader(PAIRS, 4, shuffle=True))
    for twin in (copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        torch.testing.assert_close(one_pass(twin), one_pass(data), rtol=0, atol=0)


def test_a_pass_is_read_as_it_goes() -> None:
    read = []

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(10):
            read.append(start)
            yield X[start : start + 1], Y[start : start + 1]

    list(itertools.islice(stream(batches).passes(4), 2))
    assert read == [0, 1]
