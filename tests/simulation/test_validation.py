"""Validation data choose the best model: a set of the server's own, or a share that clients hold out."""

from pathlib import Path
from typing import Any

import bodies
import numpy as np
import pytest
import torch
from small_federation import CLIENTS, Table, blobs, linear, run, weights
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchmetrics.classification import MulticlassCohenKappa, MulticlassHingeLoss

import steelyard as sy
from steelyard.data.clients import Client, Population, as_clients
from steelyard.data.validation import with_held_out
from steelyard.engines import Auto, Pool, Serial, Vectorized
from steelyard.errors import InputError, SelectionWarning
from steelyard.objectives import SquaredError
from steelyard.runs.folder import BEST, states_in
from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder

OWN = blobs(40, 50)
NOISY = blobs(40, 51)[0], torch.randint(3, (40,), generator=torch.Generator().manual_seed(3))


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def metrics_of(model: nn.Module, data: tuple[Tensor, Tensor]) -> tuple[float, float]:
    with torch.inference_mode():
        logs = torch.log_softmax(model(data[0]), dim=1).double()
    right = (logs.argmax(dim=1) == data[1]).double().mean()
    return float(right), float(-logs.gather(1, data[1].unsqueeze(1)).mean())


def test_the_best_model_is_that_of_the_round_with_the_best_validation_score() -> None:
    kept: list[float] = []
    result = run(rounds=8, validation=NOISY, monitor="nll")
    kept = [row["validation_nll"] for row in result.history]
    best = int(np.argmin(kept))
    assert best < 7, "the last model is not the best on labels that nobody can learn"
    assert (result.best_round, result.best_score) == (best + 1, kept[best])
    assert same(result.best_model, run(rounds=best + 1).model)
    assert not same(result.best_model, result.model)
    assert metrics_of(result.best_model, NOISY)[1] == pytest.approx(kept[best], rel=1e-6)


def test_a_set_of_the_servers_own_changes_no_bit_and_adds_its_columns() -> None:
    plain, chosen = run(), run(validation=OWN)
    assert weights(plain) == weights(chosen)
    added = {f"validation_{name}" for name in ("accuracy", "nll", "ece", "brier")}
    for row, other in zip(plain.history, chosen.history, strict=True):
        assert other.keys() - row.keys() == added
        assert {name: other[name] for name in row} == dict(row)
    accuracy, nll = metrics_of(chosen.model, OWN)
    assert chosen.history[-1]["validation_accuracy"] == pytest.approx(accuracy)
    assert chosen.history[-1]["validation_nll"] == pytest.approx(nll, rel=1e-6)


def test_without_anything_to_monitor_the_best_model_is_the_last_one() -> None:
    result = run()
    assert result.best is None
    assert result.best_model is result.model
    assert result.best_round == 3
    assert np.isnan(result.best_score)
    assert result.state.best_model is None


def test_a_share_is_held_out_at_each_client_and_scored_over_all_of_them() -> None:
    result = run(validation=0.25, rounds=2)
    clients = with_held_out(as_clients(CLIENTS), 0.25, 0)
    for name, client in clients.items():
        whole = set(map(tuple, CLIENTS[name][0].tolist()))
        assert client.held_out is not None
        trained, held = (
            set(map(tuple, part.batch(torch.arange(len(part)))[0].tolist()))
            for part in (client.train, client.held_out)
        )
        assert (trained | held, trained & held) == (whole, set())
        assert len(held) == round(0.25 * len(whole))
    pooled = [client.held_out.span(0, len(client.held_out)) for client in clients.values() if client.held_out]
    inputs, labels = (torch.cat(parts) for parts in zip(*pooled, strict=True))
    accuracy, nll = metrics_of(result.model, (inputs, labels))
    assert result.history[-1]["validation_accuracy"] == pytest.approx(accuracy)
    assert result.history[-1]["validation_nll"] == pytest.approx(nll, rel=1e-6)
    rows = {row["client"]: row["num_examples"] for row in result.clients if row["round"] == 1}
    assert rows == {name: len(client.train) for name, client in clients.items()}


def test_the_share_depends_on_seed_and_name_alone() -> None:
    def held(clients: Any, name: str = "oslo", seed: int = 0) -> list[int]:
        client = with_held_out(as_clients(clients), 0.25, seed)[name]
        assert client.held_out is not None
        return client.held_out.rows.tolist()  # type: ignore[no-any-return]

    wanted = held(CLIENTS)
    assert held({"oslo": CLIENTS["oslo"]}) == wanted, "alone, as at a real site"
    assert held(Population(CLIENTS, CLIENTS.__getitem__)) == wanted, "made on first use"
    assert held(CLIENTS, seed=1) != wanted
    assert held({**CLIENTS, "pisa": CLIENTS["oslo"]}, "pisa") != wanted


def test_a_population_knows_its_sizes_and_keeps_its_bits() -> None:
    sizes = [len(CLIENTS[name][1]) for name in CLIENTS]
    population = Population(CLIENTS, CLIENTS.__getitem__, sizes)
    split = with_held_out(population, 0.25, 0)
    assert isinstance(split, Population)
    assert [split.size(name) for name in split] == [len(split[name].train) for name in split]
    assert weights(run(population, validation=0.25)) == weights(run(validation=0.25))


def test_a_population_whose_clients_hold_examples_out_keeps_its_sizes() -> None:
    def make(name: str) -> Client:
        return Client(name, CLIENTS[name], held_out=OWN)

    sizes = [len(CLIENTS[name][1]) for name in CLIENTS]
    split = with_held_out(Population(CLIENTS, make, sizes), 0.25, 0)
    assert isinstance(split, Population)
    assert [split.size(name) for name in split] == [len(split[name].train) for name in split]


def test_a_client_that_holds_examples_out_is_scored_on_these() -> None:
    clients = [Client(name, data, held_out=OWN) for name, data in CLIENTS.items()]
    result = run(clients, validation=0.25)
    assert weights(result) == weights(run(clients)), "nothing more is held out"
    assert result.history[-1]["validation_accuracy"] == pytest.approx(metrics_of(result.model, OWN)[0])
    assert "validation_accuracy" not in run(clients).history[-1]


def test_a_client_with_one_example_trains_on_it() -> None:
    clients = {**CLIENTS, "tiny": blobs(1, 7)}
    split = with_held_out(as_clients(clients), 0.25, 0)
    assert (len(split["tiny"].train), split["tiny"].held_out) == (1, None)
    assert "validation_accuracy" in run(clients, validation=0.25).history[-1]


def test_data_that_cannot_be_split_are_refused_in_one_sentence() -> None:
    stream = DataLoader(TensorDataset(*CLIENTS["oslo"]), batch_size=4)
    with pytest.raises(InputError, match="client 'oslo' reads its training data as a stream"):
        sy.Federation({**CLIENTS, "oslo": stream}, linear(), validation=0.25)
    held = Client("oslo", stream, held_out=OWN)
    assert with_held_out(as_clients([held]), 0.25, 0)["oslo"].held_out is held.held_out


@pytest.mark.parametrize("validation", [0.25, OWN], ids=["share", "own set"])
@pytest.mark.parametrize("engine", [Pool(2), Vectorized(), Auto()], ids=repr)
def test_every_engine_has_the_same_validation_scores(validation: Any, engine: Any) -> None:
    wanted = run(validation=validation, monitor="nll", engine=Serial())
    found = run(validation=validation, monitor="nll", engine=engine)
    if isinstance(engine, Pool):
        assert found.history == wanted.history
        assert same(found.best_model, wanted.best_model)
    assert found.best_round == wanted.best_round
    assert found.best_score == pytest.approx(wanted.best_score, rel=1e-4)


def test_numbers_are_chosen_by_their_squared_error() -> None:
    def data(seed: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(16, 2, generator=torch.Generator().manual_seed(seed))
        return inputs, inputs.sum(dim=1)

    clients = {name: data(number) for number, name in enumerate("abc")}
    torch.manual_seed(0)
    model, algorithm = nn.Linear(2, 1), sy.Algorithm(objective=SquaredError())
    for validation in (0.25, data(9)):
        result = sy.Federation(clients, model, algorithm, validation=validation, rounds=3).run()
        errors = [row["validation_mse"] for row in result.history]
        assert (result.best_score, result.best_round) == (min(errors), 1 + int(np.argmin(errors)))
        assert "temperature" not in result.history[-1]
        assert "validation_r2" in result.history[-1]
    inputs, targets = data(9)
    with torch.inference_mode():
        error = float((result.model(inputs).squeeze(1) - targets).square().mean())
    assert errors[-1] == pytest.approx(error)


def test_patience_stops_by_validation_data_with_the_best_model() -> None:
    result = run(rounds=40, validation=NOISY, monitor="nll", patience=3)
    values = [row["validation_nll"] for row in result.history]
    assert len(values) == result.best_round + 3 < 40
    assert result.best_score == min(values)


def test_test_data_choose_only_with_a_warning() -> None:
    with pytest.warns(SelectionWarning, match=r"'nll' on test data.*set validation=0\.1"):
        result = run(rounds=4, monitor="nll")
    values = [row["nll"] for row in result.history]
    assert (result.best_round, result.best_score) == (1 + int(np.argmin(values)), min(values))


def test_a_run_in_which_the_metric_never_comes_ends_after_the_first_evaluation() -> None:
    seen: list[int] = []
    federation = sy.Federation(CLIENTS, linear(), validation=0.25, monitor="ece", rounds=9, evaluate_every=2)
    with pytest.raises(InputError, match=r"monitor is 'ece'.* after round 2 the metrics on .*validation_nll"):
        federation.run(lambda round: seen.append(round.number))
    assert seen == [1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"validation": 0.0}, "validation must be greater than 0 and less than 1, not 0.0"),
        ({"validation": 1}, "validation must be greater than 0 and less than 1, not 1"),
        ({"validation": (OWN[0][:0], OWN[1][:0])}, "validation: the set is empty"),
        ({"validation": (OWN[0][:, :1], OWN[1])}, "the validation set"),
        ({"validation": (OWN[0], OWN[1] + 7)}, "the validation set"),
        ({"validation": "oslo"}, "validation: give"),
        ({"monitor": "margin", "validation": 0.1}, "set mode"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sy.Federation(CLIENTS, linear(), **settings)


def test_a_torch_data_set_with_noise_gives_the_same_scores_twice() -> None:
    first, second = (run(validation=Table(OWN, noise=0.5)) for _ in range(2))
    assert first.history == second.history


def test_where_only_heads_are_shared_clients_hold_out_and_the_best_model_is_the_head() -> None:
    for strategy in (bodies.AVG, bodies.KD):
        federation = sy.Federation(bodies.clients(), None, strategy, validation=0.2, monitor="nll", rounds=3)
        result = federation.run()
        values = [row["validation_nll"] for row in result.history]
        assert (result.best_score, result.best_round) == (min(values), 1 + int(np.argmin(values)))
        assert isinstance(result.best_model, nn.Linear), "the head"
    with pytest.raises(InputError, match=r"validation must be a share, such as 0\.1"):
        sy.Federation(bodies.clients(), None, bodies.AVG, validation=OWN)


@pytest.mark.parametrize("monitor", ["nll", "loss"])
def test_a_resumed_run_knows_the_best_round_of_before(monitor: str, tmp_path: Path) -> None:
    spec = {
        "rounds": 8,
        "data": {"clients": 3},
        "training": {"lr": 3.0},
        "validation": 0.2,
        "monitor": monitor,
        "engine": "serial",
    }
    wanted = sy.run(spec, out=tmp_path / "whole")
    assert wanted.best_round < 6, "the best round is before the break"

    def break_off(round: Any) -> None:
        if round.number == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sy.run(spec, break_off, out=tmp_path / "broken")
    (broken,) = (tmp_path / "broken").iterdir()
    found = sy.resume(broken)
    assert (found.best_round, found.best_score) == (wanted.best_round, wanted.best_score)
    assert same(found.best_model, wanted.best_model)
    assert wanted.path is not None
    assert (broken / BEST).read_bytes() == (wanted.path / BEST).read_bytes()
    read = sy.resume(broken)
    assert (read.best_round, read.best_score) == (wanted.best_round, wanted.best_score)
    assert same(read.best_model, wanted.best_model)
    meta = Run(broken).meta
    assert (meta["monitor"], meta["best_round"]) == ("validation_nll", str(wanted.best_round))


def test_a_run_without_a_choice_records_no_best_model(tmp_path: Path) -> None:
    sy.Federation(CLIENTS, linear(), rounds=2).run(recorder=Recorder(tmp_path / "run"))
    assert not (tmp_path / "run" / BEST).exists()
    assert "best_round" not in Run(tmp_path / "run").meta
    (state,) = list(states_in(tmp_path / "run").values())[-1:]
    assert b"best-mean" not in state.read_bytes()


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(dim=1) == targets).float().mean()


@pytest.mark.parametrize("validation", [0.25, OWN], ids=["share", "own set"])
def test_a_metric_of_the_users_own_can_choose(validation: Any) -> None:
    settings = {"metrics": {"right": right}, "validation": validation}
    result = run(monitor="right", mode="max", rounds=5, **settings)
    for row in result.history:
        assert row["validation_right"] == pytest.approx(row["validation_accuracy"])
    values = [row["validation_right"] for row in result.history]
    assert (result.best_score, result.best_round) == (max(values), 1 + int(np.argmax(values)))


def test_a_metric_of_torchmetrics_says_itself_which_way_it_gets_better() -> None:
    metrics = {"agreement": MulticlassCohenKappa(3), "distance": MulticlassHingeLoss(3)}
    for name, best in (("agreement", max), ("distance", min)):
        result = run(monitor=name, metrics=metrics, validation=NOISY, rounds=4)
        assert result.best_score == best(row[f"validation_{name}"] for row in result.history)


class Inputs(Dataset[Tensor]):
    """Data without targets."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> Tensor:
        return self.inputs[row]


class Reconstruction(nn.Module):
    """A model that returns its loss and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"loss": (self.layer(x) - x).square().mean()}


@pytest.mark.parametrize("own_set", [False, True])
def test_where_only_the_loss_is_known_it_chooses(own_set: bool) -> None:
    inputs = {name: Inputs(data[0]) for name, data in CLIENTS.items()}
    validation = Inputs(OWN[0]) if own_set else 0.25
    result = sy.Federation(inputs, Reconstruction(), validation=validation, rounds=3).run()
    values = [row["validation_loss"] for row in result.history]
    assert (result.best_score, result.best_round) == (min(values), 1 + int(np.argmin(values)))
    assert result.best is not None
    assert result.best.metric == "validation_loss"
