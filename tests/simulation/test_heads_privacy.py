"""Only heads travel: nothing of a body ever leaves its client."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from bodies import AVG, HEAD, STRATEGIES, clients, data, federation, perceptron
from torch import Tensor

from steelyard.engines import Engine, Serial
from steelyard.engines.base import Look, Session, Workload
from steelyard.layout import tensors_of
from steelyard.sharing import WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Broadcast, ClientId, Failure, Message, Reply, State, Trained
from steelyard.weighing import Consensus, Samples, Weigher


class Watched(Engine):
    """Serial, with a copy of everything that goes down and comes up."""

    def __init__(self) -> None:
        self.down: list[Broadcast] = []
        self.up: list[Reply] = []
        self.kept: list[State] = []

    @contextmanager
    def open(self, workload: Workload) -> Iterator[Session]:
        with Serial().open(workload) as session:
            yield WatchedSession(session, self)


class WatchedSession:
    about = "watched"

    def __init__(self, session: Session, notes: Watched) -> None:
        self.session, self.notes = session, notes

    def train(
        self, broadcast: Broadcast, clients: Sequence[ClientId], states: Mapping[ClientId, State]
    ) -> Iterator[Trained | Failure]:
        self.notes.down.append(replace(broadcast, message=broadcast.message.map(Tensor.clone)))
        for outcome in self.session.train(broadcast, clients, states):
            assert isinstance(outcome, Trained)
            self.notes.up.append(replace(outcome.reply, message=outcome.reply.message.map(Tensor.clone)))
            self.notes.kept.append(outcome.state)
            yield outcome

    def predict(self, message: Message, look: Look) -> Tensor:
        return self.session.predict(message, look)


def numbers_of(tensors: Any) -> set[float]:
    """All values that tell something."""
    found = {value for tensor in tensors for value in tensor.double().flatten().tolist()}
    return found - {0.0, 1.0}


@pytest.mark.parametrize("weighing", [Samples(), Consensus()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_of_a_body_ever_leaves(name: str, weighing: Weigher) -> None:
    engine = Watched()
    federation(replace(STRATEGIES[name], weighing=weighing), engine=engine).run()
    assert (len(engine.down), len(engine.up), len(engine.kept)) == (3, 9, 9)
    vectors = [each.message.mean for each in [*engine.down, *engine.up]]
    vectors += [vector for each in engine.down for vector in each.offers.values()]
    assert len(vectors) > 12 or isinstance(weighing, Samples), "something is offered"
    assert all(vector.shape == (HEAD,) for vector in vectors)
    assert all(each.message.variance is None for each in [*engine.down, *engine.up])
    bodies = [value for kept in engine.kept for name, value in kept.items() if name.startswith("body.")]
    for each in clients():
        assert each.model is not None
        tensors = tensors_of(each.model)
        bodies += [value for name, value in tensors.items() if name.split(".")[0] != str(len(each.model) - 1)]  # type: ignore[arg-type]
    assert len(numbers_of(bodies)) > 500
    assert not numbers_of(bodies) & numbers_of(vectors)
    heads = {round.round: round.message.mean for round in engine.down}
    sums = [reply.message.mean + heads[1 + number // 3] for number, reply in enumerate(engine.up)]
    assert not numbers_of(bodies) & numbers_of(sums), "nor once the head that came down is added again"
    for reply in engine.up:
        assert set(vars(reply)) == {"client", "message", "num_examples", "metrics"}
        assert type(reply.num_examples) is int
        assert set(reply.metrics) == {"loss", "steps"}
        assert all(type(value) is float for value in reply.metrics.values())


def test_the_watched_engine_sees_a_body_where_whole_models_travel() -> None:
    """The test above can fail."""
    engine = Watched()
    train = data(20, 5, 0)
    Federation({"a": train}, perceptron(), replace(AVG, sharing=WholeModel()), rounds=1, engine=engine).run()
    assert numbers_of(perceptron().parameters()) & numbers_of([engine.down[0].message.mean])
