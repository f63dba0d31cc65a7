"""Simulated sites are scored as if each had predicted on its own data, and only sums come back."""

from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, mean_squared_error
from torch import Tensor, nn
from torch.utils.data import Dataset

from steelyard.client.evaluation import predict
from steelyard.data.clients import Client
from steelyard.data.examples import Examples, examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.metrics import accuracy, brier, ece, nll
from steelyard.metrics.scores import Scores
from steelyard.server.scoring import Evaluation, evaluate
from steelyard.simulation import SimulatedFederation
from steelyard.sites import Answer, ScoreTable
from steelyard.types import Broadcast

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(300, 5, generator=RANDOM)
TARGETS = torch.randint(0, 4, (300,), generator=RANDOM)
NUMBERS = INPUTS.sum(1) + torch.randn(300, generator=RANDOM)
TRAIN = (INPUTS[:2], TARGETS[:2])


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 4))


def apart(data: Examples) -> Examples:
    """The same rows on a table of their own."""
    return Examples(data.inputs[data.rows].clone(), data.labels.clone(), torch.arange(len(data)))


def score(
    clients: list[Client], common: Any, model: nn.Module | None = None, engine: Engine | None = None
) -> tuple[Evaluation, dict[str, Any], list[int]]:
    """Scores of an untrained model: the metrics, the answers, and how many clients had to predict."""
    federation = SimulatedFederation(
        clients, model or classifier(), test=common, engine=engine or Serial(), rounds=1
    )
    predicted: list[int] = []
    with federation.open() as sites:
        work = sites.work

        def counted(broadcast: Any, train: Any, requests: Any, *rest: Any, **more: Any) -> Any:
            predicted.extend(len(request.clients) for request in requests)
            return work(broadcast, train, requests, *rest, **more)

        sites.work = counted
        server = federation.server(sites)
        message = server.init().server.message
        asked = sites.ask(Broadcast(1, message), (), sites.clients, detail=common is None)
        scores, table = collect(asked)
        found = evaluate(message, sites.test, scores, table, server.num_examples)
        rows = {} if table is None else dict(zip(table.clients, table.values, strict=True))
        in_table = {client: {"test": Scores(row, 4)} for client, row in rows.items()}
        return found, {**in_table, **scores}, predicted


def collect(answers: Any) -> tuple[dict[str, Any], ScoreTable | None]:
    scores, table = {}, None
    for answer in answers:
        if isinstance(answer, ScoreTable):
            table = answer
        else:
            assert isinstance(answer, Answer)
            assert answer.reply is None
            scores[answer.client] = answer.scores
    return scores, table


def test_scores_read_off_the_common_test_set_are_the_bits_of_predicting_each_client_apart() -> None:
    table = Examples(INPUTS, TARGETS, torch.arange(300))
    shuffled = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    common = table.take(shuffled[:200])  # a part of the table, in another order
    own = [shuffled[:50], shuffled[40:45], shuffled[:200].flip(0), shuffled[199:200]]
    inside = [Client(f"c{number}", TRAIN, table.take(rows)) for number, rows in enumerate(own)]
    outside = [Client(client.id, client.train, apart(client.test)) for client in inside]  # type: ignore[arg-type]
    together, answers, predicted = score(inside, common)
    assert predicted == [], "one prediction of the common test set serves all clients"
    separately, answers_apart, predicted = score(outside, apart(common))
    assert predicted == [4]
    assert together == separately
    for client, answer in answers.items():
        other = answers_apart[client]["test"].values
        # A batch of another size may round differently; counts are exact.
        assert answer["test"].values.tolist() == pytest.approx(other.tolist(), rel=1e-6)
        assert answer["test"].values[:2].tolist() == other[:2].tolist()
    classes = predict(classifier(), table).argmax(1)
    for number, rows in enumerate(own):
        assert (together.clients or {})[f"c{number}"] == accuracy_score(TARGETS[rows], classes[rows])
    assert len(set((together.clients or {}).values())) == 4, "the clients differ"
    assert together.metrics["accuracy"] == accuracy_score(common.labels, classes[common.rows])


@pytest.mark.parametrize("engine", [Serial(), Pool(2)])
def test_clients_with_a_test_set_of_their_own_are_scored_beside_those_without(engine: Engine) -> None:
    common = Examples(INPUTS, TARGETS, torch.arange(300))
    own = (INPUTS[:40] + 1, TARGETS[:40])
    little = (INPUTS[:1], TARGETS[:1])
    clients = [Client("a", TRAIN, own), Client("b", TRAIN), Client("c", little, common.take(torch.arange(9)))]
    found, _, _ = score(clients, common, engine=engine)
    metrics, by_client = found.metrics, found.clients or {}
    assert sorted(by_client) == ["a", "c"]
    classes = predict(classifier(), examples(own)).argmax(1)
    assert by_client["a"] == pytest.approx(accuracy_score(own[1], classes))
    assert metrics["client_accuracy"] == pytest.approx((by_client["a"] + by_client["c"]) / 2)
    assert metrics["client_accuracy_weighted"] == pytest.approx((2 * by_client["a"] + by_client["c"]) / 3)
    assert by_client["a"] != by_client["c"]
    predicted = predict(classifier(), common)
    for name, measure in {"nll": nll, "ece": ece, "brier": brier}.items():
        assert metrics[name] == pytest.approx(measure(predicted, TARGETS), rel=1e-12)
    assert not [name for name in metrics if "scaled" in name or name == "temperature"]


def test_without_any_test_data_there_is_nothing_to_score() -> None:
    found, answers, predicted = score([Client("a", (INPUTS[:2], TARGETS[:2]))], None)
    assert (found.metrics, found.clients, answers, predicted) == ({}, {}, {}, [])


def test_without_a_common_test_set_the_clients_scores_add_up() -> None:
    parts = [(INPUTS[:40], TARGETS[:40]), (INPUTS[40:150], TARGETS[40:150])]
    clients = [Client(str(place), part, part) for place, part in enumerate(parts)]
    found, answers, _ = score(clients, None)
    predicted = predict(classifier(), examples(INPUTS[:150], TARGETS[:150]))
    assert "accuracy" not in found.metrics
    for name, measure in {"client_nll": nll, "client_ece": ece, "client_brier": brier}.items():
        assert found.metrics[name] == pytest.approx(measure(predicted, TARGETS[:150]), rel=1e-6)
    total = answers["0"]["test"] + answers["1"]["test"]
    assert total.num_examples == 150
    classes = predicted.argmax(1)
    assert total.accuracy == accuracy_score(TARGETS[:150], classes)
    assert (total.confusion == confusion_matrix(TARGETS[:150], classes)).all()
    assert total.recall[1].mean() == pytest.approx(balanced_accuracy_score(TARGETS[:150], classes))


@pytest.mark.parametrize("change", ["rows", "targets", "scale"])
def test_a_client_whose_test_rows_are_not_those_of_the_common_set_is_scored_apart(change: str) -> None:
    table = Examples(INPUTS, TARGETS, torch.arange(300))
    own = {
        "rows": table.take(torch.arange(150, 300)),
        "targets": Examples(INPUTS, (TARGETS + 1) % 4, torch.arange(100)),
        "scale": Examples(INPUTS, TARGETS, torch.arange(100), mean=(1.0,)),
    }[change]
    found, _, predicted = score([Client("a", (INPUTS, TARGETS), own)], table.take(torch.arange(200)))
    assert predicted == [1]
    assert (found.clients or {})["a"] == pytest.approx(accuracy(predict(classifier(), own), own.labels))


def test_with_many_classes_the_confusion_matrix_shrinks_to_right_and_wrong() -> None:
    torch.manual_seed(0)
    model, labels = nn.Linear(5, 200), torch.randint(0, 200, (300,))
    _, answers, _ = score([Client("a", (INPUTS, labels), (INPUTS, labels))], None, model)
    scores = answers["a"]["test"]
    with torch.no_grad():
        classes = model(INPUTS).argmax(1)
    assert scores.confusion.shape == (200, 2)
    counts, recall = scores.recall
    assert counts.tolist() == torch.bincount(labels, minlength=200).tolist()
    assert recall[counts > 0].mean() == pytest.approx(
        sum((classes[labels == c] == c).double().mean().item() for c in labels.unique().tolist())
        / len(labels.unique())
    )


class Lazy(Dataset[tuple[Tensor, float]]):
    """Targets are plain numbers."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        return INPUTS[index], float(NUMBERS[index])


def test_numbers_are_scored_by_their_squared_errors() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    common = Examples(INPUTS, NUMBERS, torch.arange(300))
    train = (INPUTS[:2], NUMBERS[:2])
    shifted = (INPUTS[:50] + 1, NUMBERS[:50])
    clients = [
        Client("a", train, common.take(torch.arange(100, 110))),
        Client("b", train, common.take(torch.arange(120).flip(0))),
        Client("c", train, shifted),
        Client("d", train, Lazy()),
        Client("e", train),
    ]
    federation = SimulatedFederation(clients, model, squared_error(), test=common, engine=Serial(), rounds=1)
    with federation.open() as sites:
        server = federation.server(sites)
        message = server.init().server.message
        scores, table = collect(sites.ask(Broadcast(1, message), (), sites.clients))
        found = evaluate(message, sites.test, scores, table, {})
    with torch.no_grad():
        outputs, moved = model(INPUTS).squeeze(1), model(shifted[0]).squeeze(1)
    assert found.measure == "mse"
    assert found.clients == pytest.approx(
        {
            "a": mean_squared_error(NUMBERS[100:110], outputs[100:110]),
            "b": mean_squared_error(NUMBERS[:120], outputs[:120]),
            "c": mean_squared_error(NUMBERS[:50], moved),
            "d": mean_squared_error(NUMBERS[:40], outputs[:40]),
        }
    )
    assert found.metrics["mse"] == pytest.approx(mean_squared_error(NUMBERS, outputs))
    variance = float(NUMBERS.double().var(correction=0))
    assert found.metrics["r2"] == pytest.approx(1 - found.metrics["mse"] / variance, rel=1e-9)
    assert not {"accuracy", "nll", "client_accuracy"} & found.metrics.keys()


def squared_error() -> Any:
    from steelyard.algorithm import Algorithm
    from steelyard.objectives import SquaredError

    return Algorithm(SquaredError())


class Counting(nn.Module):
    """Counts the examples that it predicts."""

    predicted = 0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(5, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        Counting.predicted += 0 if self.training else len(inputs)
        outputs: Tensor = self.linear(inputs)
        return outputs


def test_the_common_test_set_is_predicted_once_also_with_own_metrics_and_a_temperature() -> None:
    clients = [Client("oslo", TRAIN, held_out=(INPUTS[:20], TARGETS[:20]))]
    federation = SimulatedFederation(
        clients,
        Counting(),
        test=(INPUTS, TARGETS),
        engine=Serial(),
        rounds=1,
        metrics={"sure": lambda outputs, targets: outputs.softmax(1).amax(1)},
    )
    Counting.predicted = 0
    result = federation.run()
    assert Counting.predicted == 300 + 20
    assert {"sure", "temperature", "nll_scaled"} <= result.history[-1].keys()
    with torch.inference_mode():
        assert result.history[-1]["sure"] == pytest.approx(
            float(result.model(INPUTS).softmax(1).amax(1).mean())
        )
