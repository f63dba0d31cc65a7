"""Clients with bodies of their own: only heads travel, and everything else of a run goes on as usual."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.attacks import Attack, Gaussian, SignFlip
from steelyard.combining import Rklb
from steelyard.data.clients import Client, Population
from steelyard.engines import Engine, Pool, Serial, Vectorized
from steelyard.engines.base import Look, Session, Workload
from steelyard.errors import InputError
from steelyard.evaluation import predict
from steelyard.evaluation.accuracy import balanced_accuracy
from steelyard.federation import Federation, Predictor, Result
from steelyard.layout import tensors_of
from steelyard.ledger import traffic
from steelyard.objectives import Anchor, CrossEntropy, Distillation, Elbo
from steelyard.record import MODEL, Run, runs_in
from steelyard.sharing import Head, WholeModel
from steelyard.types import Broadcast, ClientId, Failure, Message, Reply, Round, State, Trained
from steelyard.weighing import Consensus, GeometricMedian, IvarVb, Samples, Weigher

NAMES = ("ghent", "oslo", "turin")
TRAINING = sy.Training(lr=0.2, batch_size=8)
SOLO = sy.Algorithm(CrossEntropy(), Head(adopt=False, common=False), training=TRAINING)
AVG = replace(SOLO, sharing=Head())
KD = replace(SOLO, objective=Distillation())
AVGKD = replace(AVG, objective=Distillation())
ANCHOR = replace(SOLO, objective=Anchor(), sharing=Head(adopt=False))
STRATEGIES = {"solo": SOLO, "avg": AVG, "kd": KD, "avgkd": AVGKD, "anchor": ANCHOR}
HEAD = 4 * 3 + 3
"""Numbers in the head that all agree on."""


def data(count: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes, seen through features of a client's own; the last class is rarer."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 2, 0, 1])[torch.arange(count) % 5]
    view = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
    return 1.5 * view[labels] + torch.randn(count, width, generator=random), labels


def perceptron(embed: int = 4, classes: int = 3, seed: int = 1, width: int = 5) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, embed), nn.Tanh(), nn.Linear(embed, classes))


def normalised(embed: int = 4, classes: int = 3) -> nn.Module:
    torch.manual_seed(2)
    body = (nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, embed), nn.Tanh())
    return nn.Sequential(*body, nn.Linear(embed, classes))


def convolution(embed: int = 4, classes: int = 3) -> nn.Module:
    torch.manual_seed(3)
    body = (nn.Unflatten(1, (1, 3, 3)), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, embed), nn.Tanh())
    return nn.Sequential(*body, nn.Linear(embed, classes))


def clients(**models: nn.Module) -> list[Client]:
    """Of different inputs, kinds of body and sizes; some may bring another model."""
    usual = {"ghent": perceptron(), "oslo": normalised(), "turin": convolution(), **models}
    widths = {"ghent": 5, "oslo": 7, "turin": 9}
    made = []
    for number, name in enumerate(NAMES):
        train, test = (
            data(count, widths[name], number + seed) for count, seed in ((20 + number, 0), (40, 9))
        )
        held_out = data(10, widths[name], 77) if name == "oslo" else None
        made.append(Client(name, train, test, held_out, usual[name]))
    return made


def federation(algorithm: sy.Algorithm, members: Any = None, **settings: Any) -> Federation:
    settings = {"rounds": 3, "engine": Serial(), **settings}
    return Federation(clients() if members is None else members, algorithm=algorithm, **settings)


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in tensors_of(model).items()}


def head_of(model: nn.Module) -> list[list[Any]]:
    """Of models that end in their head."""
    return [parameter.tolist() for parameter in list(model.parameters())[-2:]]


def body_of(model: nn.Module) -> list[list[Any]]:
    return [parameter.tolist() for parameter in list(model.parameters())[:-2]]


def own_test(client: ClientId) -> Any:
    return next(each for each in clients() if each.id == client).test


# What leaves a client


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


# What stays


@pytest.mark.parametrize("name", STRATEGIES)
def test_bodies_learn_and_stay(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    for each in clients():
        assert each.model is not None
        assert body_of(result.model_of(each.id)) != body_of(each.model)
        found = predict(result.model_of(each.id), own_test(each.id))
        assert float((found.argmax(1) == own_test(each.id).labels).double().mean()) > 0.5
    assert result.history[-1]["client_accuracy"] > result.history[0]["client_accuracy"]  # type: ignore[operator]


@pytest.mark.parametrize("adopt", [True, False])
def test_whoever_sits_a_round_out_keeps_what_it_has(adopt: bool) -> None:
    one = federation(replace(KD, sharing=Head(adopt=adopt)), clients_per_round=1, rounds=6)
    with one.engine.open(one.workload) as session:
        state, present = one.init(), []
        for number in range(1, 7):
            before = {client: bits_of(kept) for client, kept in state.clients.items()}
            _, state = one.round(state, session)
            (invited,) = one.sample(number)
            after = {client: bits_of(kept) for client, kept in state.clients.items()}
            assert {name: kept for name, kept in after.items() if name != invited} == {
                name: kept for name, kept in before.items() if name != invited
            }
            assert after[invited] != before.get(invited)
            present.append(invited)
    counts = {client: present.count(client) for client in NAMES}
    assert max(counts.values()) >= 2, "somebody comes back"
    assert sorted(state.clients) == sorted(client for client in NAMES if counts[client])
    tracked = state.clients["oslo"]["body.1.num_batches_tracked"]
    assert int(tracked) == 3 * counts["oslo"], "three batches each time: it went on from where it was"


def bits_of(kept: State) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in kept.items()}


@pytest.mark.parametrize("name", ["kd", "avg"])
def test_a_pool_gives_the_same_bits(name: str) -> None:
    settings: dict[str, Any] = {"clients_per_round": 2, "rounds": 3}
    serial, pool = (
        federation(STRATEGIES[name], engine=engine, **settings).run() for engine in (Serial(), Pool(2))
    )
    assert pool.history == serial.history
    assert pool.clients == serial.clients
    assert bits(pool.model) == bits(serial.model)
    for client in NAMES:
        assert bits(pool.model_of(client)) == bits(serial.model_of(client))
    assert "temperature" in serial.history[-1], "what is held out is looked at with the client's own model"


def test_what_stays_can_be_kept_in_files(tmp_path: Path) -> None:
    plain = federation(KD).run()
    spilled = federation(KD, spill=True).run(recorder=sy.Recorder(tmp_path / "run"))
    assert spilled.history == plain.history
    for client in NAMES:
        assert bits(spilled.model_of(client)) == bits(plain.model_of(client))


def test_what_was_spilled_and_not_recorded_is_gone() -> None:
    result = federation(KD, spill=True).run()
    with pytest.raises(InputError, match=f"'{NAMES[0]}' was spilled .* record the run"):
        result.model_of(NAMES[0])


# Strategies


def test_solo_does_not_depend_on_the_others() -> None:
    together = federation(SOLO).run()
    for each in clients():
        alone = federation(SOLO, [each]).run()
        assert bits(alone.model_of(each.id)) == bits(together.model_of(each.id))


@pytest.mark.parametrize("name", ["avg", "kd", "avgkd", "anchor"])
def test_all_others_do(name: str) -> None:
    together, alone = federation(STRATEGIES[name]).run(), federation(STRATEGIES[name], clients()[1:2]).run()
    assert bits(alone.model_of("oslo")) != bits(together.model_of("oslo"))


@pytest.mark.parametrize("name", ["avg", "avgkd"])
def test_who_adopts_ends_with_the_head_that_is_released(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    assert isinstance(result.model, nn.Linear)
    assert all(head_of(result.model_of(client)) == head_of(result.model) for client in NAMES)
    assert result.history[-1]["shared_accuracy"] == pytest.approx(result.history[-1]["client_accuracy"])


@pytest.mark.parametrize("name", ["solo", "kd", "anchor"])
def test_who_does_not_keeps_a_head_of_its_own(name: str) -> None:
    result = federation(STRATEGIES[name]).run()
    heads = [head_of(result.model), *(head_of(result.model_of(client)) for client in NAMES)]
    assert all(heads[place] not in heads[:place] for place in range(4))
    sizes = torch.tensor([20.0, 21.0, 22.0])
    means = torch.stack([torch.tensor(heads[place][0]) for place in (1, 2, 3)])
    wanted = (means * (sizes / sizes.sum()).view(3, 1, 1)).sum(0)
    torch.testing.assert_close(torch.tensor(heads[0][0]), wanted)


@pytest.mark.parametrize(("common", "same"), [(True, True), (False, False)])
def test_clients_begin_with_one_head_or_each_with_its_own(common: bool, same: bool) -> None:
    waiting = replace(KD, sharing=Head(adopt=False, common=common), training=sy.Training(steps=0))
    result = federation(waiting, rounds=1).run()
    first = clients()[0].model
    assert first is not None
    assert (head_of(result.model_of("turin")) == head_of(first)) == same
    assert head_of(result.model_of("ghent")) == head_of(first)


def test_a_client_without_a_model_has_that_of_the_federation() -> None:
    members = [Client("a", data(20, 5, 1), data(10, 5, 2)), *clients()[1:]]
    result = federation(KD, members, model=perceptron(seed=8)).run()
    assert [len(list(result.model_of(each).modules())) for each in ("a", "oslo", "turin")] == [4, 7, 7]
    assert not torch.equal(result.model_of("a")[0].weight, perceptron(seed=8)[0].weight)  # type: ignore[index]


def test_the_models_that_clients_bring_are_not_changed() -> None:
    members = clients()
    before = [bits(each.model) for each in members if each.model is not None]
    federation(KD, members).run()
    assert [bits(each.model) for each in members if each.model is not None] == before
    assert all(each.model is not None and each.model.training for each in members)


# Scores


def own(result: Result, client: ClientId) -> Tensor:
    return predict(result.model_of(client), own_test(client))


def test_scores_are_those_of_each_clients_own_model() -> None:
    result = federation(replace(KD, sharing=Head(adopt=False))).run()
    accuracies, balanced, shared = [], [], []
    for client in NAMES:
        guesses, labels = own(result, client).argmax(1).tolist(), own_test(client).labels.tolist()
        right = [guess == label for guess, label in zip(guesses, labels, strict=True)]
        accuracies.append(sum(right) / len(right))
        within = [
            statistics.fmean(hit for hit, label in zip(right, labels, strict=True) if label == wanted)
            for wanted in range(3)
        ]
        balanced.append(statistics.fmean(within))
        taught: Any = result.model_of(client)
        taught[-1] = result.model
        guesses = predict(taught, own_test(client)).argmax(1).tolist()
        shared.append(statistics.fmean(guess == label for guess, label in zip(guesses, labels, strict=True)))
    last = result.history[-1]
    assert last["client_accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert last["client_accuracy_balanced"] == pytest.approx(statistics.fmean(balanced))
    assert last["shared_accuracy"] == pytest.approx(statistics.fmean(shared))
    assert last["shared_accuracy"] != last["client_accuracy"]
    assert [row["accuracy"] for row in result.clients[-3:]] == pytest.approx(accuracies)
    assert "accuracy" not in last, "there is no common test set"


def test_balanced_accuracy_is_the_mean_over_the_classes_that_are_there() -> None:
    guesses = torch.eye(4)[torch.tensor([0, 0, 0, 1, 3, 1])].log()
    assert balanced_accuracy(guesses, torch.tensor([0, 0, 0, 0, 3, 3])) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert balanced_accuracy(guesses, torch.tensor([2, 2, 2, 2, 2, 2])) == 0


def test_on_a_common_test_set_the_score_is_the_mean_over_the_clients_models() -> None:
    members, test = {name: data(12, 5, seed) for seed, name in enumerate("ab")}, data(50, 5, 9)
    result = federation(KD, members, model=perceptron(), test=test).run()
    found = [predict(result.model_of(name), sy.examples(*test)).argmax(1) == test[1] for name in "ab"]
    assert result.accuracy == pytest.approx(float(torch.stack(found).double().mean()))
    assert found[0].tolist() != found[1].tolist()


def test_bytes_are_those_of_heads_and_of_whole_models() -> None:
    floats = (5 * 4 + 4 + HEAD) + (7 * 6 + 6 + 4 * 6 + 6 * 4 + 4 + HEAD) + (2 * 4 + 2 + 8 * 4 + 4 + HEAD)
    for row in federation(AVG, rounds=1).run().history:
        assert row["bytes"] == 2 * 3 * 4 * HEAD
        assert row["bytes_of_whole_models"] == 2 * 4 * floats  # BatchNorm's counter would not travel
    (row,) = federation(AVG, rounds=1, clients_per_round=2).run().history
    assert row["bytes"] == 2 * 2 * 4 * HEAD


def test_a_posterior_costs_twice_the_bytes() -> None:
    message = Message(torch.zeros(HEAD), torch.zeros(HEAD))
    assert traffic(message, [4 * 39]) == {
        "bytes": 2.0 * 8 * HEAD,
        "bytes_of_whole_models": 2.0 * 4 * 39,
    }


def test_whole_models_have_no_bytes_written_down() -> None:
    result = federation(replace(AVG, sharing=WholeModel()), {"a": data(20, 5, 0)}, model=perceptron()).run()
    assert "bytes" not in result.history[-1]
    assert bits(result.model_of("a")) == bits(result.model)


# What does not fit


@pytest.mark.parametrize(
    ("changed", "first", "second"),
    [
        (convolution(embed=6), "embedding 6 and 3 classes", "embedding 4 and 3 classes"),
        (convolution(classes=4), "embedding 4 and 4 classes", "embedding 4 and 3 classes"),
        (
            nn.Sequential(convolution()[:-1], nn.Linear(4, 3, bias=False)),  # type: ignore[index]
            "embedding 4 and 3 classes without bias",
            "embedding 4 and 3 classes",
        ),
    ],
    ids=["embedding", "classes", "bias"],
)
def test_heads_that_do_not_fit_are_refused_when_the_federation_is_built(
    changed: nn.Module, first: str, second: str
) -> None:
    message = f"^client 'turin' has a head of {first}, but client 'ghent' has one of {second}; all must agree"
    with pytest.raises(InputError, match=message):
        federation(AVG, clients(turin=changed))


def test_classes_that_a_head_has_no_output_for_are_refused() -> None:
    two = {"ghent": perceptron(classes=2), "oslo": normalised(classes=2), "turin": convolution(classes=2)}
    with pytest.raises(InputError, match=r"client 'ghent' has classes 0 to 2, but the model has only 2"):
        federation(AVG, clients(**two))


def test_a_model_that_cannot_take_its_clients_inputs_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"the model cannot take the inputs of client 'oslo', of shape \(7,\)"
    ):
        federation(AVG, clients(oslo=perceptron()))


def test_a_client_without_a_model_is_refused_if_the_federation_has_none() -> None:
    members = [*clients()[:2], Client("turin", data(9, 9, 0))]
    with pytest.raises(InputError, match="client 'turin' brings no model, and the federation has none"):
        federation(AVG, members)


def test_models_of_their_own_are_refused_where_whole_models_are_shared() -> None:
    with pytest.raises(
        InputError, match="client 'ghent' brings a model of its own, but whole models are shared"
    ):
        federation(replace(AVG, sharing=WholeModel()), model=perceptron())


# A run from a spec

SPEC: dict[str, Any] = {
    "rounds": 4,
    "clients_per_round": 2,
    "engine": "serial",
    "model": {"name": "mlp", "hidden": 8},
    "data": {"clients": 3},
    "training": {"steps": 3},
    "objective": "distillation",
}


class BreakOffError(Exception):
    """Something that ends a run in the middle."""


def break_off(round: Round) -> None:
    if round.number == 2:
        raise BreakOffError


@pytest.mark.parametrize("spill", [False, True])
def test_a_run_that_broke_off_ends_as_if_nothing_had_happened(spill: bool, tmp_path: Path) -> None:
    spec = {**SPEC, "sharing": {"name": "head", "adopt": False}, "spill": spill}
    wanted = sy.run(spec, out=tmp_path / "whole")
    with pytest.raises(BreakOffError):
        sy.run(spec, break_off, out=tmp_path / "broken")
    (broken,) = runs_in(tmp_path / "broken")
    assert len(broken.rounds) == 2
    found = sy.resume(broken.path)
    assert wanted.path is not None
    assert Run(broken.path).rounds == Run(wanted.path).rounds
    assert Run(broken.path).clients == Run(wanted.path).clients
    assert (broken.path / MODEL).read_bytes() == (wanted.path / MODEL).read_bytes()
    for client in ("client-0", "client-1", "client-2"):
        assert bits(found.model_of(client)) == bits(wanted.model_of(client))
        assert bits(sy.load_model(broken.path, client)) == bits(wanted.model_of(client))


def test_bodies_are_saved_with_a_run(tmp_path: Path) -> None:
    result = sy.run(SPEC, out=tmp_path, sharing="head")
    assert result.path is not None
    head = sy.load_model(result.path)
    assert isinstance(head, nn.Linear)
    assert (head.in_features, head.out_features) == (8, 10)
    assert bits(head) == bits(result.model)
    images = sy.examples(torch.rand(30, 1, 8, 8), torch.arange(30) % 10)
    found = [predict(sy.load_model(result.path, f"client-{number}"), images) for number in range(3)]
    for number in range(3):
        assert torch.equal(found[number], predict(result.model_of(f"client-{number}"), images))
    assert not torch.equal(found[0], found[1])
    with pytest.raises(InputError, match=r"unknown client 'client-7': did you mean 'client-"):
        sy.load_model(result.path, "client-7")


# With hostile parties


def crowd() -> list[Client]:
    """Seven clients of two kinds, with enough to learn from."""
    return [
        Client(
            f"c{number}",
            data(40, 5 + number % 2, number),
            data(60, 5 + number % 2, 50 + number),
            model=perceptron(seed=number, width=5 + number % 2),
        )
        for number in range(7)
    ]


def honest(result: Result) -> float:
    """The mean accuracy of the head that is shared, on what the honest see."""
    rows = [row for row in result.clients if row["round"] == 4 and row["client"] != "c6"]
    return statistics.fmean(float(row["accuracy"]) for row in rows)  # type: ignore[arg-type]


def poisoned(weighing: Weigher, attack: Attack | None) -> Result:
    adversaries = {} if attack is None else {"c6": attack}
    algorithm = replace(AVG, weighing=weighing)
    return federation(algorithm, crowd(), rounds=4, adversaries=adversaries).run()


@pytest.fixture(scope="module")
def clean() -> float:
    return honest(poisoned(Samples(), None))


@pytest.mark.parametrize("weighing", [IvarVb(), GeometricMedian()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("attack", [Gaussian(10.0), SignFlip(30.0)], ids=lambda each: type(each).__name__)
def test_a_poisoned_head_is_weighed_down(attack: Attack, weighing: Weigher, clean: float) -> None:
    assert clean > 0.75
    trusting, wary = poisoned(Samples(), attack), poisoned(weighing, attack)
    assert honest(trusting) < clean - 0.1
    assert honest(wary) > clean - 0.04
    weights = [float(row["weight"]) for row in wary.clients if row["client"] == "c6"]  # type: ignore[arg-type]
    assert max(weights) < 0.02
    assert wary.history[-1]["detection_auroc"] == 1


def test_bayesian_heads_on_bodies_of_all_kinds_are_merged_with_their_variances() -> None:
    members = [
        Client(each.id, each.train, each.test, model=sy.bayesian(each.model, last=1, samples=3))
        for each in clients()
        if each.model is not None
    ]
    algorithm = sy.Algorithm(
        Elbo(),
        Head(posterior=True),
        combining=Rklb(),
        training=sy.Training(optimizer="adam", lr=0.02, epochs=3),
    )
    heads = federation(algorithm, members)
    with heads.engine.open(heads.workload) as session:
        state, rounds = heads.init(), []
        before = state.server.message
        for _ in range(4):
            round, state = heads.round(state, session)
            rounds.append(round.metrics)
    variance = state.server.message.variance
    assert variance is not None
    assert before.variance is not None
    assert variance.shape == (HEAD,)
    assert bool(((variance > 0) & variance.isfinite()).all())
    assert bool((variance != before.variance).all())
    assert rounds[-1]["loss"] < rounds[0]["loss"]
    assert rounds[-1]["client_accuracy"] > 0.6
    assert rounds[-1]["bytes"] == 2 * 3 * 8 * HEAD
    sigma = [value for name, value in rounds[-1].items() if name.startswith("sigma.")]
    assert len(sigma) == 1
    assert all(body.startswith("body.") for kept in state.clients.values() for body in kept)


# Odd clients


@pytest.mark.parametrize("bodies", [True, False], ids=["not invited yet", "body without parameters"])
def test_what_is_shared_is_looked_at_also_where_nothing_is_kept_besides_the_head(bodies: bool) -> None:
    def model(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return perceptron(seed=seed) if bodies else nn.Sequential(nn.Flatten(), nn.Linear(5, 3))

    members = [Client(name, data(12, 5, 1), data(12, 5, 2), model=model(ord(name))) for name in "ab"]
    heads = federation(SOLO, members, clients_per_round=1 if bodies else 2)
    with heads.engine.open(heads.workload) as session:
        _, state = heads.round(heads.init(), session)
        client = next((name for name in "ab" if name not in state.clients), "a")
        found = Predictor(session, state, shared=True)(client)
    wanted: Any = model(ord(client))
    nn.utils.vector_to_parameters(state.server.released.mean, wanted[-1].parameters())
    test = heads.clients[client].test
    assert test is not None
    assert torch.equal(found, predict(wanted, test))


def half_broken(name: ClientId) -> Client:
    if name == "b":
        raise OSError("disk error")
    return Client(name, data(12, 5, 1), model=perceptron())


def test_a_client_that_cannot_be_made_does_not_end_the_run() -> None:
    result = federation(AVG, Population("abc", half_broken, [12] * 3), rounds=2).run()
    assert [row["status"] for row in result.clients][1] == "failed while training: OSError: disk error"


def test_models_of_their_own_are_not_trained_together_with_others() -> None:
    members = [Client("a", data(12, 5, 1)), Client("b", data(12, 5, 2), model=perceptron(seed=9))]
    engine = Vectorized(workers=1)
    try:
        result = federation(AVG, members, model=perceptron(), engine=engine, rounds=1).run()
    except InputError:
        return
    wanted = federation(AVG, members, model=perceptron(), rounds=1).run()
    for mine, theirs in zip(
        result.model_of("b").parameters(), wanted.model_of("b").parameters(), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
