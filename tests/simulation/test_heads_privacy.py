"""Only heads travel: nothing of a body, no example and no prediction ever leaves its site."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from bodies import AVG, HEAD, KD, STRATEGIES, clients, data, federation, perceptron
from torch import Tensor

from steelyard.client import evaluation
from steelyard.client.private_state import PrivateStates
from steelyard.engines import Engine, Serial
from steelyard.engines.base import SimulatedSites
from steelyard.engines.workload import Workload
from steelyard.layout import tensors_of
from steelyard.metrics.calibration import BINS
from steelyard.metrics.scores import CLASS_SUMS, Scores
from steelyard.sharing import WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.sites import Answer, Profile
from steelyard.types import Broadcast, ClientId, Message, Reply, State
from steelyard.weighing import Consensus, Samples, Weigher


class Watched(Engine):
    """Serial, with a copy of everything that the server asks and the sites answer."""

    def __init__(self) -> None:
        self.down: list[Broadcast] = []
        self.up: list[Answer] = []
        self.profiles: list[Profile] = []
        self.kept: list[State] = []

    @contextmanager
    def open(
        self, workload: Workload, states: PrivateStates, round_seconds: float | None = None
    ) -> Iterator[Any]:
        with Serial().open(workload, states, round_seconds) as sites:
            yield WatchedSites(sites, self)

    @property
    def replies(self) -> list[Reply]:
        return [answer.reply for answer in self.up if answer.reply is not None]


class WatchedSites:
    def __init__(self, sites: SimulatedSites, notes: Watched) -> None:
        self.sites, self.notes = sites, notes

    def __getattr__(self, name: str) -> Any:
        assert name in {"clients", "about", "test", "commit", "rewind"}, f"{name} is not watched"
        return getattr(self.sites, name)

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        profiles = self.sites.profiles(clients)
        self.notes.profiles += profiles.values()
        return profiles

    def ask(self, broadcast: Broadcast, *settings: Any, **more: Any) -> Iterator[Any]:
        self.notes.down.append(copy.deepcopy(broadcast))
        for answer in self.sites.ask(broadcast, *settings, **more):
            assert isinstance(answer, Answer)
            self.notes.up.append(copy.deepcopy(answer._replace(scores=dict(answer.scores))))
            if answer.reply is not None:
                self.notes.kept.append(self.sites.states.get(answer.client))
            yield answer


# The bytes of what is sent, and what is looked for in them


def bytes_of(sent: Any) -> Iterator[bytes]:
    """The bytes of every value in a message; another kind of value than these may not travel."""
    if isinstance(sent, Tensor | np.ndarray):
        yield np.asarray(sent).tobytes()
    elif isinstance(sent, Mapping):
        yield from (part for item in sent.items() for each in item for part in bytes_of(each))
    elif isinstance(sent, tuple):
        yield from (part for each in sent for part in bytes_of(each))
    elif is_dataclass(sent):
        yield from (part for field in fields(sent) for part in bytes_of(getattr(sent, field.name)))
    elif isinstance(sent, str):
        yield sent.encode()
    elif sent is not None:
        assert type(sent) in (int, float), type(sent)
        yield np.float64(sent).tobytes()
        yield np.float32(sent).tobytes()


def windows(sent: Iterable[Any], width: int) -> set[bytes]:
    """Every run of bytes of this width, at any place."""
    parts = [part for each in sent for part in bytes_of(each)]
    return {part[start : start + width] for part in parts for start in range(len(part) - width + 1)}


def leaked(secrets: Iterable[Tensor], sent: Sequence[Any]) -> set[float]:
    """The secret values that are found in what was sent, as float32 or as float64."""
    values = sorted(numbers_of(secrets))
    found = set()
    for kind, width in ((np.float32, 4), (np.float64, 8)):
        passing = windows(sent, width)
        found |= {value for value in values if kind(value).tobytes() in passing}
    return found


def leaked_rows(rows: Iterable[Tensor], sent: Sequence[Any]) -> list[list[int]]:
    """The integer vectors that are found in what was sent, as numbers of any usual type."""
    parts = b"|".join(part for each in sent for part in bytes_of(each))
    kinds = (np.int64, np.int32, np.int16, np.uint8, np.float32, np.float64)
    return [
        row.tolist() for row in rows if any(row.numpy().astype(kind).tobytes() in parts for kind in kinds)
    ]


def numbers_of(tensors: Any) -> set[float]:
    """All values that tell something."""
    found = {value for tensor in tensors for value in tensor.double().flatten().tolist()}
    return found - {0.0, 1.0}


def bodies_of(engine: Watched) -> list[Tensor]:
    """What was kept after every round, and what the clients began with."""
    bodies = [value for kept in engine.kept for name, value in kept.items() if name.startswith("body.")]
    for each in clients():
        assert each.model is not None
        tensors = tensors_of(each.model)
        bodies += [value for name, value in tensors.items() if name.split(".")[0] != str(len(each.model) - 1)]  # type: ignore[arg-type]
    return bodies


@pytest.fixture
def predictions(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The log-probabilities that sites compute, as they come."""
    found: list[Tensor] = []
    true_predict = evaluation.predict

    def predict(*arguments: Any, **settings: Any) -> Tensor:
        found.append(true_predict(*arguments, **settings))
        return found[-1]

    monkeypatch.setattr(evaluation, "predict", predict)
    return found


@pytest.mark.parametrize("weighing", [Samples(), Consensus()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_of_a_body_ever_leaves(name: str, weighing: Weigher) -> None:
    engine = Watched()
    federation(replace(STRATEGIES[name], weighing=weighing), engine=engine).run()
    assert (len(engine.down), len(engine.replies), len(engine.kept)) == (4, 9, 9)
    vectors = [each.message.mean for each in [*engine.down, *engine.replies]]
    vectors += [vector for each in engine.down for vector in each.offers.values()]
    assert len(vectors) > 13 or isinstance(weighing, Samples), "something is offered"
    assert all(vector.shape == (HEAD,) for vector in vectors)
    assert all(each.message.variance is None for each in [*engine.down, *engine.replies])
    assert all(each.evaluated is None for each in engine.down)
    bodies = bodies_of(engine)
    assert len(numbers_of(bodies)) > 500
    assert not numbers_of(bodies) & numbers_of(vectors)
    floats = [value for value in bodies if value.is_floating_point()]  # counters of batches equal steps
    assert not leaked(floats, [*engine.up, *engine.profiles])
    heads = {round.round: round.message.mean for round in engine.down}
    sums = [reply.message.mean + heads[1 + number // 3] for number, reply in enumerate(engine.replies)]
    assert not numbers_of(bodies) & numbers_of(sums), "nor once the head that came down is added again"
    for reply in engine.replies:
        assert set(vars(reply)) == {"client", "message", "num_examples", "metrics"}
        assert type(reply.num_examples) is int
        assert set(reply.metrics) == {"loss", "steps"}
        assert all(type(value) is float for value in reply.metrics.values())


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_input_label_or_prediction_ever_leaves(name: str, predictions: list[Tensor]) -> None:
    engine = Watched()
    federation(STRATEGIES[name], engine=engine).run()
    sent = [*engine.up, *engine.profiles]
    held = [each for client in clients() for each in (client.train, client.test, client.held_out) if each]
    inputs = [each.span(0, len(each))[0] for each in held]
    assert len(numbers_of(inputs)) > 1000
    assert not leaked(inputs, sent)
    labels = [each.labels for each in held]
    assert len(labels) == 7
    assert not leaked_rows(labels, sent)
    assert not leaked_rows([guess.argmax(1) for guess in predictions], sent)
    assert len(predictions) == 3 * (3 * 2 + 1), "each round, own head and shared head, and what one holds out"
    assert len(numbers_of(predictions)) > 1000
    assert not leaked(predictions, sent)
    sums = [without_lone_confidences(answer) for answer in engine.up]
    assert not leaked([guess.double().exp() for guess in predictions], sums)
    assert not leaked([guess.exp() for guess in predictions], sums)


def without_lone_confidences(answer: Answer) -> Answer:
    """A bin with a single example holds its confidence; all other sums are over more."""
    scores = {name: copy.deepcopy(each) for name, each in answer.scores.items()}
    for each in scores.values():
        if each.has_detail:
            bins = each.values[CLASS_SUMS : CLASS_SUMS + 3 * BINS].reshape(3, BINS)
            bins[1, bins[0] == 1] = 0
    return answer._replace(scores=scores)


def test_scores_are_sums_whose_number_does_not_depend_on_the_number_of_examples() -> None:
    engine = Watched()
    federation(KD, engine=engine).run()
    answers = [answer for answer in engine.up if answer.scores]
    assert len(answers) == 9
    detailed = CLASS_SUMS + 3 * BINS + 3 * 3
    sizes = {"test": detailed, "own_mix": CLASS_SUMS, "shared": CLASS_SUMS, "held_out": CLASS_SUMS}
    for answer in answers:
        assert set(answer.scores) == set(sizes) - ({"held_out"} if answer.client != "oslo" else set())
        for part, scores in answer.scores.items():
            assert set(scores._fields) == {"values", "classes", "labels", "own"}
            assert len(scores.own) == 0
            assert scores.values.shape == (sizes[part],)
            assert scores.values.dtype == np.float64
    for profile in engine.profiles:
        assert {field.name for field in fields(profile)} == {
            "client", "num_examples", "shapes", "model_bytes", "class_counts",
        }  # fmt: skip
        assert profile.class_counts is None
        assert profile.shapes == ((3, 4), (3,))


# The tests above can fail


def test_the_watched_engine_sees_a_body_where_whole_models_travel() -> None:
    engine = Watched()
    train = data(20, 5, 0)
    Federation({"a": train}, perceptron(), replace(AVG, sharing=WholeModel()), rounds=1, engine=engine).run()
    assert numbers_of(perceptron().parameters()) & numbers_of([engine.down[0].message.mean])
    trained = engine.replies[0].message.mean + engine.down[0].message.mean
    assert leaked([trained], [engine.down[1]]), "the only update is the whole next model"


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_values_are_found_wherever_they_hide(kind: torch.dtype) -> None:
    secret, zeros = torch.tensor([0.1234567, -3.75]), torch.zeros(5)
    shifted = torch.cat([torch.ones(3, dtype=kind), secret.to(kind)]).numpy()
    unaligned: Any = np.frombuffer(b"\0" * 3 + shifted.tobytes() + b"\0", np.uint8)
    value = float(secret[0])
    plain = Reply("a", Message(zeros), 5)
    hidden = [
        Answer("a", Reply("a", Message(torch.from_numpy(shifted)), 5)),
        Answer("a", Reply("a", Message(zeros, torch.from_numpy(shifted)), 5)),
        Answer("a", replace(plain, metrics={"loss": value})),
        Answer("a", plain, {"test": Scores(shifted, 3)}),
        Answer("a", plain, {"test": Scores(unaligned, 3)}),
    ]
    assert all(value in leaked([secret], [answer]) for answer in hidden)
    assert not leaked([secret], [Answer("a", plain)])
    labels = torch.tensor([0, 2, 1, 1, 0])
    told = Answer("a", plain, {"test": Scores(labels.double().numpy(), 3)})
    assert leaked_rows([labels], [told])
    assert not leaked_rows([labels], [Answer("a", plain)])
    with pytest.raises(AssertionError):
        leaked([secret], [Answer("a", replace(plain, metrics={"loss": value, "x": object()}))])  # type: ignore[dict-item]
