from pathlib import Path
from typing import Any

import pytest
import torch

import steelyard as sy
from steelyard.data.digits import digits
from steelyard.errors import InputError
from steelyard.runs.reader import Run
from steelyard.server.result import Result
from steelyard.specs.building import build, deal_clients
from steelyard.specs.schema import load_spec
from steelyard.types import Round

QUICK = {"rounds": 3, "data.clients": 4, "training.steps": 3}

MINE = """
import torch
from torch import nn

import steelyard as sy
from steelyard.data.digits import digits


def first_hundred(count: int = 100):
    whole = digits()
    train = whole.train.take(torch.arange(count))
    return sy.Dataset("few digits", train, whole.test, whole.class_names)


def halves(labels, clients, generator):
    return torch.randperm(len(labels), generator=generator).tensor_split(clients)


class Net(nn.Module):
    def __init__(self, input_shape, num_classes, width: int = 5):
        super().__init__()
        size = input_shape[0] * input_shape[1] * input_shape[2]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Linear(width, num_classes))

    def forward(self, inputs):
        return self.layers(inputs)
"""


def quick(out: Path | None = None, **overrides: Any) -> Result:
    return sy.run(None, out=out, **{**QUICK, **overrides})


def recorded(result: Result) -> Run:
    assert result.path is not None
    return Run(result.path)


def weights(result: Result) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(result.model.parameters()).detach()


def sizes(result: Result) -> list[Any]:
    return [row["num_examples"] for row in result.clients if row["round"] == 1]


def test_the_rows_of_a_result_are_the_rows_on_disk(tmp_path: Path) -> None:
    result = quick(tmp_path)
    run = recorded(result)
    assert [dict(row) for row in result.history] == run.rounds
    assert [dict(row) for row in result.clients] == run.clients
    assert [row["round"] for row in run.rounds] == [1, 2, 3]
    assert len(run.clients) == 12
    assert (run.meta["status"], run.meta["version"]) == ("finished", sy.__version__)


def test_observers_are_told_of_every_round_in_order() -> None:
    told: list[Round] = []
    result = sy.run(None, told.append, out=None, **QUICK)
    assert [round.number for round in told] == [1, 2, 3]
    assert [round.metrics["accuracy"] for round in told] == [row["accuracy"] for row in result.history]


def test_the_spec_on_disk_is_the_one_that_ran(tmp_path: Path) -> None:
    result = quick(tmp_path, seed=3)
    spec = load_spec(recorded(result).path / "spec.toml")
    assert spec == load_spec(None, {**QUICK, "seed": 3})
    assert recorded(result).meta["fingerprint"] == spec.fingerprint()
    assert recorded(result).path.name.endswith("-fedavg+rounds=3+data.clients=4+training.steps=3-s3")


def test_the_same_seed_gives_equal_tables_and_the_same_model_to_the_byte(tmp_path: Path) -> None:
    one, two = (recorded(quick(tmp_path / name, clients_per_round=2)) for name in ("one", "two"))
    assert one.rounds == two.rounds
    assert one.clients == two.clients
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (one, two))
    assert first == second


def test_nothing_in_the_process_leaks_into_a_run() -> None:
    torch.manual_seed(1)
    one = quick()
    torch.manual_seed(2)
    torch.rand(5)
    assert torch.equal(weights(quick()), weights(one))


def test_a_run_does_not_touch_the_users_random_numbers() -> None:
    torch.manual_seed(1)
    undisturbed = torch.rand(3)
    torch.manual_seed(1)
    quick()
    assert torch.equal(torch.rand(3), undisturbed)


def test_another_seed_changes_partition_and_model() -> None:
    one, two = quick(seed=1), quick(seed=2)
    assert sizes(one) != sizes(two)
    assert not torch.equal(weights(one), weights(two))


def test_the_data_seed_alone_decides_the_partition() -> None:
    one, two = (quick(seed=seed, **{"data.seed": 7}) for seed in (1, 2))
    assert sizes(one) == sizes(two)
    assert not torch.equal(weights(one), weights(two))
    other = quick(seed=1, **{"data.seed": 8})
    assert sizes(other) != sizes(one)


def test_the_seed_decides_who_is_invited() -> None:
    def invited(seed: int) -> list[Any]:
        result = quick(seed=seed, clients_per_round=1, rounds=6, **{"data.seed": 7})
        return [row["client"] for row in result.clients if row["status"] == "used"]

    assert invited(1) == invited(1)
    assert invited(1) != invited(2)


def test_the_seed_of_the_data_also_deals_the_same_rows() -> None:
    dataset = digits()
    one, two = (deal_clients(load_spec({"seed": seed, "data": {"seed": 7}}).data, dataset) for seed in (1, 2))
    for mine, other in zip(one.values(), two.values(), strict=True):
        assert torch.equal(mine.train.rows, other.train.rows)


def test_a_shift_changes_what_clients_see_and_not_what_they_hold() -> None:
    dataset = digits()
    plain = deal_clients(load_spec().data, dataset).values()
    turned = deal_clients(load_spec(None, {"data.shift": "rotation"}).data, dataset).values()
    assert [len(each.train) for each in plain] == [len(each.train) for each in turned]
    everyone = [torch.arange(len(each.train)) for each in plain]
    assert any(
        not torch.equal(one.train.batch(rows)[0], two.train.batch(rows)[0])
        for one, two, rows in zip(plain, turned, everyone, strict=True)
    )


def test_the_first_model_follows_the_seed_not_the_data_seed() -> None:
    def first(**table: Any) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(build(load_spec(table)).model.parameters())

    assert torch.equal(first(seed=1), first(seed=1, data={"seed": 9}))
    assert not torch.equal(first(seed=1), first(seed=2))


def test_a_loaded_model_predicts_what_the_result_predicts(tmp_path: Path) -> None:
    result = quick(tmp_path)
    inputs, _ = digits().test.batch(torch.arange(50))
    for source in (recorded(result), result.path, str(result.path)):
        assert source is not None
        assert torch.equal(sy.load_model(source)(inputs), result.model(inputs))


def test_the_model_of_a_result_has_the_accuracy_of_its_last_row() -> None:
    result = quick()
    inputs, labels = digits().test.batch(torch.arange(len(digits().test)))
    right = (result.model(inputs).argmax(dim=1) == labels).double().mean()
    assert result.accuracy == pytest.approx(float(right))


def test_without_out_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert quick().path is None
    assert list(tmp_path.iterdir()) == []


def test_runs_go_to_the_folder_runs_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = sy.run("fedavg", rounds=1, **{"data.clients": 2})
    assert result.path is not None
    assert result.path.resolve().parent == tmp_path / "runs"


def test_the_default_is_a_good_classifier_of_digits() -> None:
    result = sy.run(out=None)
    assert len(result.history) == 30
    assert result.accuracy >= 0.93


def test_models_data_sets_and_partitions_of_the_users_own_run_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_experiment.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    spec = tmp_path / "own.toml"
    spec.write_text(
        """
        rounds = 2
        model = { name = "my_experiment:Net", width = 7 }
        [data]
        clients = 2
        dataset = { name = "my_experiment:first_hundred", count = 80 }
        partition = "my_experiment:halves"
        """
    )
    result = sy.run(spec, out=tmp_path / "runs", trust=True)
    assert sizes(result) == [40, 40]
    assert result.model.layers[1].out_features == 7
    assert recorded(result).meta["name"] == "own"
    inputs, _ = digits().test.batch(torch.arange(5))
    assert torch.equal(sy.load_model(recorded(result))(inputs), result.model(inputs))


def test_an_interrupted_run_keeps_its_rounds_and_the_model_of_the_last(tmp_path: Path) -> None:
    def stop(round: Round) -> None:
        if round.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sy.run(None, stop, out=tmp_path, **QUICK)
    (path,) = tmp_path.iterdir()
    assert Run(path).meta["status"] == "interrupted"
    assert [row["round"] for row in Run(path).rounds] == [1, 2]
    two_rounds = quick(rounds=2)
    inputs, _ = digits().test.batch(torch.arange(50))
    assert torch.equal(sy.load_model(path)(inputs), two_rounds.model(inputs))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"training.lr": -1}, "training.lr must be greater than 0"),
        ({"server.lr": 0}, "server.lr must be greater than 0"),
        ({"clients_per_round": 5}, "clients_per_round is 5, but there are 4 clients"),
        ({"model": "light-cnn"}, "light-cnn needs images of at least"),
        ({"data.partition": "natural"}, "choose another partition"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_recorded(
    tmp_path: Path, overrides: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        quick(tmp_path, **overrides)
    assert list(tmp_path.iterdir()) == []


def test_loading_the_model_of_no_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a recorded run"):
        sy.load_model(tmp_path)


def test_overrides_change_a_spec_that_is_given_as_a_value() -> None:
    assert len(sy.run(load_spec({"rounds": 2, "data": {"clients": 2}}), out=None, rounds=1).history) == 1
