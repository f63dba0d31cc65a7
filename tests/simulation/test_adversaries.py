"""Adversaries in a federation: what they change, and what nobody else gets to know."""

import pickle
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from small_federation import CLIENTS, NAMES, TEST, Table, blobs, linear, run, weights
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.attacks import (
    Attack,
    Copies,
    Gaussian,
    InflatedCount,
    LabelFlip,
    NonFinite,
    OnOff,
    RandomLabels,
    SignFlip,
    VarianceDeflation,
    WrongShape,
)
from steelyard.attacks.attacked import attacked
from steelyard.attacks.base import Scene, VectorAttack
from steelyard.data.clients import Client, Population, as_clients
from steelyard.data.poisoning import poisoned
from steelyard.engines import Pool, Serial, Vectorized
from steelyard.errors import InputError
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Message, Reply, RoundInfo, State, Weighed
from steelyard.weighing import Uniform, Weigher
from steelyard.weighing.geometry import Geometry


def make(name: str) -> Client:
    inputs, labels = CLIENTS[name]
    return Client(name, (inputs, labels), lambda: (inputs, labels))


def population() -> Population:
    return Population(NAMES, make, [len(CLIENTS[name][1]) for name in NAMES])


@pytest.mark.parametrize("lazy", [False, True])
def test_only_the_training_labels_of_adversaries_are_poisoned(lazy: bool) -> None:
    clients = population() if lazy else as_clients([make(name) for name in NAMES])
    found = poisoned(clients, {"oslo": LabelFlip(), "pisa": SignFlip()}, 3, seed=0)
    assert isinstance(found, Population) == lazy
    assert tuple(found) == NAMES
    for name in NAMES:
        clean = CLIENTS[name][1]
        wanted = 2 - clean if name == "oslo" else clean
        assert torch.equal(found[name].train.labels, wanted)
        test = found[name].test
        assert test is not None
        assert torch.equal(test.labels, clean)
        assert torch.equal(clients[name].train.labels, clean)
    if isinstance(found, Population):
        assert [found.size(name) for name in NAMES] == [len(CLIENTS[name][1]) for name in NAMES]
        assert torch.equal(pickle.loads(pickle.dumps(found))["oslo"].train.labels, 2 - CLIENTS["oslo"][1])


def test_a_shared_table_keeps_the_labels_of_the_others() -> None:
    whole = Client("all", blobs(30, 0)).train
    clients = [Client(name, whole.take(torch.arange(30)[place::4])) for place, name in enumerate(NAMES)]
    before = whole.targets.clone()
    found = poisoned(as_clients(clients), {"oslo": LabelFlip()}, 3, seed=0)
    assert torch.equal(whole.targets, before)
    changed = found["oslo"].train.targets != before
    assert changed[1::4].any()
    assert not changed[0::4].any()
    assert found["lima"].train.targets is whole.targets


def test_clients_are_left_as_they_are_if_nobody_poisons() -> None:
    clients = population()
    assert poisoned(clients, {"oslo": Gaussian()}, 3, seed=0) is clients


def test_random_labels_differ_between_adversaries_and_seeds_but_not_between_runs() -> None:
    clients = as_clients({name: blobs(30, 0) for name in NAMES})

    def labels(name: str, seed: int) -> list[int]:
        found = poisoned(clients, dict.fromkeys(NAMES, RandomLabels()), 3, seed)
        return found[name].train.labels.tolist()

    assert labels("oslo", 0) == labels("oslo", 0)
    assert labels("oslo", 0) != labels("pisa", 0)
    assert labels("oslo", 0) != labels("oslo", 1)


MIXED: dict[str, Attack] = {"lima": RandomLabels(), "pisa": Gaussian(0.1)}
COPIES: dict[str, Attack] = {"lima": Copies(), "pisa": Copies()}


@pytest.mark.parametrize("adversaries", [MIXED, COPIES], ids=["mixed", "copies"])
@pytest.mark.parametrize("lazy", [False, True])
def test_serial_and_pool_give_the_same_bits(adversaries: dict[str, Attack], lazy: bool) -> None:
    clients = population() if lazy else CLIENTS
    serial = run(clients, engine=Serial(), adversaries=adversaries)
    pool = run(clients, engine=Pool(workers=2), adversaries=adversaries)
    assert weights(serial) == weights(pool)
    assert serial.clients == pool.clients
    assert serial.history == pool.history
    assert weights(serial) != weights(run(clients, engine=Serial()))


@pytest.mark.parametrize("lazy", [False, True])
def test_the_vectorized_engine_trains_on_the_poisoned_labels_too(lazy: bool) -> None:
    clients = population() if lazy else CLIENTS
    serial = run(clients, engine=Serial(), adversaries=MIXED)
    together = run(clients, engine=Vectorized(workers=1), adversaries=MIXED)
    for name, value in serial.model.state_dict().items():
        torch.testing.assert_close(together.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_label_flipping_teaches_the_flipped_labels() -> None:
    honest = run(rounds=10).accuracy
    flipped = run(rounds=10, adversaries=dict.fromkeys(NAMES, LabelFlip())).accuracy
    assert honest > 0.8
    assert flipped < 0.5


@pytest.mark.parametrize("attack", [NonFinite(), WrongShape()])
def test_malformed_replies_are_rejected_and_the_round_goes_on(attack: Attack) -> None:
    result = run(adversaries={"oslo": attack})
    aside = [row for row in result.clients if row["client"] == "oslo"]
    assert all(str(row["status"]).startswith("sent a mean") and row["weight"] == 0.0 for row in aside)
    assert [row["rejected"] for row in result.history] == [1.0] * 3
    assert all(row["detection_recall"] == row["detection_auroc"] == 1.0 for row in result.history)
    assert weights(result) == weights(run({name: CLIENTS[name] for name in NAMES if name != "oslo"}))


def test_an_inflated_count_weighs_more() -> None:
    heavy = run(adversaries={"lima": InflatedCount(factor=100.0)})
    row = next(row for row in heavy.clients if row["client"] == "lima")
    assert row["num_examples"] == 1200
    assert float(row["weight"] or 0.0) == pytest.approx(1200 / (1200 + 18 + 24 + 30))
    assert heavy.history[-1]["detection_auroc"] == 0.0


def test_the_record_says_who_is_an_adversary_also_of_those_who_sat_out() -> None:
    result = run(adversaries={"oslo": SignFlip()}, clients_per_round=2)
    assert {row["status"] for row in result.clients} >= {"idle"}
    assert all(row["adversary"] == (row["client"] == "oslo") for row in result.clients)
    assert {type(row["adversary"]) for row in result.clients} == {int}


def test_a_run_without_adversaries_is_what_it_was() -> None:
    plain, none = run(), run(adversaries={})
    assert weights(plain) == weights(none)
    assert plain.history == none.history
    assert not any("adversary" in row for row in none.clients)
    assert not any(key.startswith("detection") for row in none.history for key in row)


def test_before_it_starts_an_adversary_is_like_anyone() -> None:
    waiting = run(adversaries={"oslo": OnOff(start=4)})
    assert weights(waiting) == weights(run())
    assert weights(run(adversaries={"oslo": OnOff(start=3)})) != weights(run())


@dataclass(frozen=True)
class Spy(Weigher):
    """Keeps what a rule is told."""

    seen: tuple[list[Any], ...] = ([],)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        self.seen[0].append(round)
        return Uniform().weigh(geometry, round, state)


def test_a_weighing_rule_is_told_nothing_of_adversaries() -> None:
    told = []
    for adversaries in (None, {"oslo": SignFlip()}):
        spy = Spy(([],))
        run(algorithm=Algorithm(weighing=spy), adversaries=adversaries)
        told.append([[str(getattr(info, field.name)) for field in fields(RoundInfo)] for info in spy.seen[0]])
    assert told[0] == told[1]


@dataclass(frozen=True)
class Watcher(VectorAttack):
    """Keeps the scene it is shown and the numbers it draws."""

    shown: tuple[list[Scene], ...] = ([],)
    drawn: tuple[list[float], ...] = ([],)
    agrees: bool = False

    @property
    def colludes(self) -> bool:
        return self.agrees

    def send(self, scene: Scene, own: Tensor, generator: torch.Generator) -> Tensor:
        self.shown[0].append(scene)
        self.drawn[0].append(float(torch.rand(1, generator=generator)))
        return own


def replies(**rows: list[float]) -> dict[str, Reply]:
    return {name: Reply(name, Message(torch.tensor(row)), 5) for name, row in rows.items()}


def test_adversaries_see_the_finite_updates_of_the_honest_in_the_order_of_ids() -> None:
    watcher = Watcher(([],))
    given = replies(turin=[4.0, 4.0], oslo=[9.0, 9.0], pisa=[float("nan"), 3.0], lima=[1.0, 1.0])
    attacked(given, {"oslo": watcher, "absent": watcher}, round=7, seed=0)
    (scene,) = watcher.shown[0]
    assert scene.honest.tolist() == [[1.0, 1.0], [4.0, 4.0]]
    assert (scene.adversaries, scene.round) == (1, 7)


@pytest.mark.parametrize("colludes", [False, True])
def test_those_who_collude_draw_the_same_and_every_round_anew(colludes: bool) -> None:
    watcher = Watcher(([],), ([],), colludes)
    for round in (1, 2):
        attacked(replies(a=[1.0], b=[2.0], c=[3.0]), {"a": watcher, "b": watcher}, round, seed=0)
    assert len(set(watcher.drawn[0])) == (2 if colludes else 4)


def test_replies_of_the_honest_are_passed_on_untouched() -> None:
    given = replies(a=[1.0, 2.0], b=[3.0, 4.0])
    found = attacked(given, {"a": SignFlip()}, round=1, seed=0)
    assert found["b"] is given["b"]
    assert given["a"].message.mean.tolist() == [1.0, 2.0]
    assert found["a"].message.mean.tolist() == [-1.0, -2.0]


def test_a_federation_of_adversaries_goes_on() -> None:
    result = run(adversaries=dict.fromkeys(NAMES, Copies()))
    assert len(result.history) == 3
    assert not any("detection_auroc" in row for row in result.history)


def build(clients: Any, adversaries: Any, model: nn.Module | None = None) -> Federation:
    return Federation(clients, model or linear(), test=TEST, adversaries=adversaries)


@pytest.mark.parametrize(
    ("adversaries", "sentence"),
    [
        ({"osla": SignFlip()}, "unknown client 'osla' of adversaries: did you mean 'oslo'"),
        ({"oslo": "sign-flop"}, "unknown attack 'sign-flop': did you mean 'sign-flip'"),
        ({"oslo": VarianceDeflation()}, "VarianceDeflation needs the variance of every client"),
    ],
)
def test_what_cannot_attack_is_refused(adversaries: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build(CLIENTS, adversaries)


@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_a_torch_dataset_cannot_be_poisoned_but_its_updates_can(lazy: bool) -> None:
    tables: dict[str, Any] = {name: Table(CLIENTS[name]) for name in NAMES}
    clients = Population(NAMES, tables.__getitem__) if lazy else tables
    with pytest.raises(InputError, match=r"labels of client 'oslo'; give it \(inputs, targets\)"):
        build(clients, {"oslo": LabelFlip()})
    assert build(clients, {"oslo": SignFlip()}).run()


def test_targets_that_are_numbers_have_no_labels_to_poison() -> None:
    with pytest.raises(InputError, match="class numbers"):
        poisoned(as_clients({"oslo": (torch.ones(3, 2), torch.ones(3))}), {"oslo": LabelFlip()}, 1, seed=0)


def test_an_adversary_that_cannot_be_made_fails_by_name() -> None:
    def broken(name: str) -> Any:
        if name == "oslo":
            raise OSError("no such disk")
        return CLIENTS[name]

    result = run(Population(NAMES, broken), adversaries={"oslo": LabelFlip()})
    row = next(row for row in result.clients if row["client"] == "oslo")
    assert "no such disk" in str(row["status"])
    assert row["adversary"] == 1
