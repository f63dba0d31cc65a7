"""Held-out examples: which ones, that no client trains on them, and the temperature fitted on them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import steelyard
from steelyard import components
from steelyard.algorithm import Algorithm
from steelyard.attacks import LabelFlip
from steelyard.client.evaluation import predict
from steelyard.data.clients import Client, Population
from steelyard.data.dealing import deal, num_held_out
from steelyard.data.digits import digits
from steelyard.data.examples import Examples
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.metrics import brier, ece, fit_temperature, merge_temperatures, nll, scaled
from steelyard.objectives import SquaredError
from steelyard.seeds import generator
from steelyard.server.result import Result
from steelyard.settings import Training
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.specs.building import build, deal_clients
from steelyard.specs.schema import load_spec

DIGITS = digits()
QUICK = {"rounds": 2, "data.clients": 4, "engine": "serial"}


def dealt(seed: int = 0, holdout: float = 0.0, shift: str | None = None) -> Population:
    changes = {"data.seed": seed, "data.holdout": holdout, "data.clients": 8}
    data = load_spec(None, changes | ({"data.shift": shift} if shift else {})).data
    return deal_clients(data, DIGITS)


def rows(data: Any) -> list[int]:
    assert isinstance(data, Examples)
    return list(data.rows.tolist())


# What is held out


@pytest.mark.parametrize(
    ("size", "share", "count"),
    [(100, 0.0, 0), (100, 0.1, 10), (4, 0.1, 1), (2, 0.9, 1), (1, 0.5, 0), (10, 0.99, 9), (3, 0.5, 2)],
)
def test_at_least_one_and_never_all(size: int, share: float, count: int) -> None:
    assert num_held_out(size, share) == count


def test_what_is_held_out_and_what_is_trained_on_are_what_a_client_was_dealt() -> None:
    whole, parted = dealt(), dealt(holdout=0.1)
    for id in whole:
        mine, client = rows(whole[id].train), parted[id]
        train, held_out = rows(client.train), rows(client.held_out)
        assert sorted(train + held_out) == sorted(mine)
        assert not set(train) & set(held_out)
        assert len(held_out) == max(round(0.1 * len(mine)), 1)
        assert parted.size(id) == len(train)
        assert rows(client.test) == rows(whole[id].test), "the test data do not depend on it"


def test_the_draw_follows_the_data_seed_and_is_the_clients_own() -> None:
    first, again = dealt(3, 0.2), dealt(3, 0.2)
    backwards = [rows(again[id].held_out) for id in list(again)[::-1]]
    assert [rows(client.held_out) for client in first.values()] == backwards[::-1]
    table = list(torch.split(torch.arange(len(DIGITS.train)), 100))
    drawn = [deal(DIGITS, table, seed, holdout=0.2) for seed in (0, 1)]
    places = [[[row % 100 for row in rows(each.held_out)] for each in clients.values()] for clients in drawn]
    assert places[0] != places[1]
    assert len({tuple(each) for each in places[0]}) == len(table), "no two clients draw alike"


def test_an_extra_client_holds_out_what_its_twin_does() -> None:
    data = load_spec(None, {"data.holdout": 0.2, "data.clients": 3}).data
    clients = list(deal_clients(data, DIGITS, extra=2).values())
    for twin, extra in zip(clients, clients[3:], strict=False):
        assert rows(extra.held_out) == rows(twin.held_out)
        assert rows(extra.train) == rows(twin.train)


def test_held_out_images_are_shifted_as_they_would_be_in_training() -> None:
    whole, parted = dealt(shift="rotation"), dealt(holdout=0.2, shift="rotation")
    for id in whole:
        shifted, held_out = whole[id].train, parted[id].held_out
        assert isinstance(shifted, Examples)
        assert isinstance(held_out, Examples)
        assert torch.equal(held_out.inputs[held_out.rows], shifted.inputs[held_out.rows])
        assert torch.equal(held_out.labels, shifted.labels[held_out.rows])


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), "some"])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(InputError, match=r"data\.holdout"):
        load_spec(None, {"data.holdout": share})


# Without it, nothing changes


def test_without_a_holdout_clients_hold_the_rows_of_the_partition() -> None:
    data = load_spec(None, {"data.clients": 8}).data
    context = {"labels": DIGITS.train.labels, "groups": None, "clients": 8}
    random = generator(0, "partition")
    wanted = components.build("partitions", data.partition, generator=random, **context)
    for client, mine in zip(dealt().values(), wanted, strict=True):
        assert rows(client.train) == mine.tolist()
        assert client.held_out is None


def test_a_run_without_a_holdout_has_the_bits_of_clients_made_by_hand() -> None:
    spec = load_spec(None, QUICK)
    federation = build(spec)
    plain = [Client(id, client.train, client.test) for id, client in federation.clients.items()]
    by_hand = Federation(
        plain, federation.model, federation.algorithm, test=DIGITS.test, rounds=2, engine=Serial()
    ).run()
    found = federation.run()
    assert found.history == by_hand.history
    assert "temperature" not in found.history[-1]
    for name, value in by_hand.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name


# The temperature


def test_the_scores_are_those_of_the_merged_temperature() -> None:
    spec = load_spec(None, QUICK | {"data.holdout": 0.2})
    federation = build(spec)
    result = federation.run()
    held_out = [client.held_out for client in federation.clients.values()]
    fitted = [fit_temperature(predict(result.model, data), data.labels) for data in held_out if data]
    wanted = merge_temperatures(fitted, [len(data) for data in held_out if data])
    last = result.history[-1]
    assert len(fitted) == 4
    assert last["temperature"] == pytest.approx(wanted, rel=1e-9)
    assert abs(wanted - 1) > 0.01
    plain = predict(result.model, DIGITS.test)
    for name, measure in {"nll": nll, "ece": ece, "brier": brier}.items():
        assert last[name] == pytest.approx(measure(plain, DIGITS.test.labels), rel=1e-6)
        at_it = measure(scaled(plain, wanted), DIGITS.test.labels)
        assert last[f"{name}_scaled"] == pytest.approx(at_it, rel=1e-6)
        assert at_it != pytest.approx(last[name], rel=1e-3)


def test_no_client_trains_on_held_out_examples() -> None:
    """The same model comes of clients that never had those rows."""
    federation = build(load_spec(None, QUICK | {"data.holdout": 0.2}))
    without = [Client(id, client.train, client.test) for id, client in federation.clients.items()]
    algorithm, model = federation.algorithm, federation.model
    bare = Federation(without, model, algorithm, test=DIGITS.test, rounds=2, engine=Serial()).run()
    found = federation.run()
    for name, value in bare.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name
    assert "temperature" not in bare.history[-1]
    extra = found.history[-1].keys() - bare.history[-1].keys()
    assert extra == {"temperature", "nll_scaled", "ece_scaled", "brier_scaled"}


def table(size: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 6, generator=random)
    return inputs, (inputs[:, :3] + torch.randn(size, 3, generator=random)).argmax(1)


def linear(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, outputs)


def own_clients() -> list[Client]:
    """With tensors, with a torch data set longer than a batch, and without anything held out."""
    return [
        Client("a", table(40, 1), held_out=table(30, 2)),
        Client("b", table(50, 3), table(10, 4), held_out=TensorDataset(*table(300, 5))),
        Client("c", table(20, 6)),
    ]


def run(engine: Engine, clients: list[Client] | None = None, **settings: Any) -> Result:
    algorithm = Algorithm(training=Training(lr=0.1, batch_size=8))
    chosen = own_clients() if clients is None else clients
    options: dict[str, Any] = {"test": table(200, 9), "rounds": 2} | settings
    return Federation(chosen, linear(), algorithm, engine=engine, **options).run()


@pytest.mark.parametrize("engine", [Pool(1), Pool(3)], ids=str)
def test_worker_processes_find_the_same_temperature_to_the_bit(engine: Engine) -> None:
    wanted = run(Serial()).history
    assert wanted[0]["temperature"] != wanted[1]["temperature"]
    assert run(engine).history == wanted


def test_clients_trained_together_find_the_same_temperature() -> None:
    found, wanted = run(Vectorized(2)).history, run(Serial()).history
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_without_a_common_test_set_there_is_a_temperature_alone() -> None:
    last = run(Serial(), test=None).history[-1]
    assert float(last["temperature"] or 0) > 0
    assert not [name for name in last if "scaled" in name]


def test_numbers_have_no_temperature() -> None:
    inputs = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    data = (inputs, inputs.sum(1))
    algorithm = Algorithm(objective=SquaredError())
    for test in (data, None):
        federation = Federation(
            [Client("a", data, held_out=data)], linear(1), algorithm, test=test, rounds=1, engine=Serial()
        )
        assert "temperature" not in federation.run().history[-1]


def test_a_client_may_hold_out_nothing() -> None:
    empty = (torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64))
    clients = [Client("a", table(40, 1), held_out=empty), *own_clients()[1:]]
    wanted = run(Serial(), [Client("a", table(40, 1)), *own_clients()[1:]])
    assert run(Serial(), clients).history == wanted.history


def test_a_poisoned_client_keeps_clean_labels_for_what_it_holds_out() -> None:
    clients = own_clients()
    federation = Federation(clients, linear(), adversaries={"a": LabelFlip()})
    found = federation.clients["a"]
    assert found.held_out is clients[0].held_out
    assert not torch.equal(found.train.labels, clients[0].train.labels)


def test_data_that_cannot_be_held_out_are_named() -> None:
    with pytest.raises(InputError, match="client 'a', held out"):
        Client("a", table(3, 0), held_out=torch.tensor(3.0))


def test_the_package_does_without_torchmetrics() -> None:
    """It takes seconds to import, and only users who bring its metrics need it."""
    files = list(Path(str(steelyard.__file__)).parent.rglob("*.py"))
    assert len(files) > 50
    imports = re.compile(r"^\s*(import|from) torchmetrics", re.MULTILINE)
    assert not [path for path in files if imports.search(path.read_text("utf-8"))]
