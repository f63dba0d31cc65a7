"""The server with sites that share nothing: own learner, model and private state, as remote sites have."""

import copy
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.client.learner import Learner
from steelyard.client.site import Site
from steelyard.data.clients import Client
from steelyard.engines import Serial
from steelyard.errors import InputError, SteelyardWarning
from steelyard.objectives import CrossEntropy
from steelyard.server.federation import Federation
from steelyard.sharing import Head
from steelyard.sites import Answer, Profile, Request
from steelyard.types import EMPTY, Broadcast, ClientId, Failure

NAMES = ("lima", "oslo", "pisa")


def data(size: int, seed: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (size,), generator=random)
    return torch.randn(size, 4, generator=random) + labels.unsqueeze(1), labels


def model(classes: int = 3, embedding: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, embedding), nn.ReLU(), nn.Linear(embedding, classes))


def clients() -> list[Client]:
    return [
        Client(name, data(20 + 6 * place, place), data(30, 50 + place), data(8, 70 + place))
        for place, name in enumerate(NAMES)
    ]


class SeparateSites:
    """One `Site` for each client, and everything that crosses is packed and unpacked as on a wire."""

    about = "separate"

    def __init__(
        self, algorithm: Algorithm, members: Sequence[Client], base: nn.Module, seed: int = 0
    ) -> None:
        self.sites: dict[ClientId, Site] = {}
        for client in members:
            own = copy.deepcopy(client.model or base)
            layout = algorithm.sharing.layout(own)
            learner = Learner(algorithm.objective, algorithm.sharing, layout, algorithm.training, 0)
            self.sites[client.id] = Site(client, learner, learner.working_model(own))
        self.wire: list[bytes] = []
        self.twice: ClientId | None = None

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return tuple(sorted(self.sites))

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        return {client: self.sites[client].profile() for client in clients}

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Answer | Failure]:
        for client in sorted({*train, *evaluate}, reverse=True):
            request = Request(broadcast, client in train, client in evaluate, detail)
            packed = pickle.dumps(self.sites[client].answer(request))
            self.wire.append(packed)
            yield pickle.loads(packed)
            if client == self.twice:
                yield pickle.loads(packed)

    def commit(self, round: int) -> None:
        for site in self.sites.values():
            site.states.commit(round)

    def rewind(self, round: int) -> None:
        for site in self.sites.values():
            site.states.rewind(round)


ALGORITHMS = {
    "fedavg": Algorithm(),
    "averaged": Algorithm(server=sy.Server(average=3)),
    "head": Algorithm(sharing=Head(adopt=False), objective=CrossEntropy(balance=0.5)),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_sites_that_share_nothing_give_the_bits_of_a_simulation(algorithm: Algorithm) -> None:
    wanted = sy.Federation(
        clients(), model(), algorithm, rounds=4, clients_per_round=2, engine=Serial(), evaluate_every=2
    ).run()
    sites = SeparateSites(algorithm, clients(), model())
    found = Federation(sites, algorithm, model(), rounds=4, clients_per_round=2, evaluate_every=2).run()
    assert found.history == wanted.history
    assert found.clients == wanted.clients
    for name, value in wanted.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value)
    assert found.history[-1]["temperature"] > 0  # type: ignore[operator]
    assert "client_ece" in found.history[-1]


def test_no_example_label_or_prediction_is_in_what_sites_send() -> None:
    """An input vector has 16 bytes that occur nowhere else; labels and predictions come as long runs."""
    algorithm = ALGORITHMS["head"]
    members = clients()
    sites = SeparateSites(algorithm, members, model())
    Federation(sites, algorithm, model(), rounds=2).run()
    sent = b"".join(sites.wire)
    assert len(sent) > 1000
    for client in members:
        for part in (client.train, client.test, client.held_out):
            inputs, labels = part.span(0, len(part))  # type: ignore[union-attr]
            assert not any(row.numpy().tobytes() in sent for row in inputs)
            assert labels.numpy().tobytes()[:64] not in sent
            assert labels.float().numpy().tobytes()[:32] not in sent
        body = sites.sites[client.id].states.get(client.id)
        assert body
        for name, value in body.items():
            if name.startswith("body."):
                assert value.numpy().tobytes() not in sent, name


def test_a_client_that_answers_twice_is_rejected_with_the_reason() -> None:
    sites = SeparateSites(Algorithm(), clients(), model())
    sites.twice = "oslo"
    result = Federation(sites, Algorithm(), model(), rounds=2).run()
    rows = [row for row in result.clients if row["client"] == "oslo"]
    assert [row["status"] for row in rows] == ["sent more than one answer"] * 2
    assert all(row["weight"] == 0 for row in rows)
    others = sy.Federation(
        [client for client in clients() if client.id != "oslo"], model(), engine=Serial(), rounds=2
    ).run()
    for name, value in others.model.state_dict().items():
        assert torch.equal(result.model.state_dict()[name], value)


def test_a_client_that_does_not_fit_is_refused_by_name_before_the_first_round() -> None:
    odd = Client("turin", data(20, 5), model=model(embedding=6))
    sites = SeparateSites(ALGORITHMS["head"], [*clients(), odd], model())
    with pytest.warns(SteelyardWarning, match="client 'turin' has a head of embedding 6 and 3 classes"):
        server = Federation(sites, ALGORITHMS["head"], model())
    assert "turin" not in server.profiles
    with pytest.raises(InputError, match="client 'turin' has a head of embedding 6 and 3 classes"):
        Federation(SeparateSites(ALGORITHMS["head"], [odd], model()), ALGORITHMS["head"], model())
    assert sites.wire == []
    wrong = Client("turin", data(20, 5, classes=9))
    with pytest.raises(InputError, match=r"client 'turin' has classes 0 to 8, but the model has only 3"):
        Federation(SeparateSites(Algorithm(), [*clients(), wrong], model()), Algorithm(), model())


def test_an_answer_can_be_copied_and_sent() -> None:
    for answer in (Answer("a"), Failure("a", "training", "no disk"), Answer("a", None, EMPTY)):
        assert pickle.loads(pickle.dumps(answer)) == copy.deepcopy(answer) == answer
    assert pickle.loads(pickle.dumps(EMPTY)) is EMPTY


class Unreadable(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index:
            raise OSError("the disk is gone")
        return torch.zeros(4), 0


@pytest.mark.parametrize("simulated", [True, False])
def test_a_client_whose_own_test_data_fail_has_failed_in_that_round_only(simulated: bool) -> None:
    members = [*clients(), Client("turin", data(20, 5), Unreadable())]
    result: Any
    if simulated:
        result = sy.Federation(members, model(), engine=Serial(), rounds=3).run()
    else:
        sites = SeparateSites(Algorithm(), members, model())
        result = Federation(sites, Algorithm(), model(), rounds=3).run()
    status = [str(row["status"]) for row in result.clients if row["client"] == "turin"]
    assert status[0] == "used"
    assert all("failed while evaluating: OSError: the disk is gone" in each for each in status[1:])
    assert [row["used"] for row in result.history] == [4, 3, 3]
    last = [row.get("evaluation") for row in result.clients if row["round"] == 3]
    assert last == [None, None, None, status[-1]], "the exchange that only scores has its failures, too"


class Impostors(SeparateSites):
    """One client sends replies in another's name."""

    def ask(self, *arguments: Any, **settings: Any) -> Iterator[Answer | Failure]:
        for answer in super().ask(*arguments, **settings):
            if isinstance(answer, Answer) and answer.reply is not None and answer.client == "lima":
                answer = answer._replace(reply=replace(answer.reply, client="oslo"))
            yield answer


def test_a_reply_in_the_name_of_another_client_is_held_against_its_sender_only() -> None:
    result = Federation(Impostors(Algorithm(), clients(), model()), Algorithm(), model(), rounds=1).run()
    status = {row["client"]: row["status"] for row in result.clients}
    assert status == {
        "lima": "sent a reply in the name of another client",
        "oslo": "used",
        "pisa": "used",
    }
