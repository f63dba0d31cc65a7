"""Sites without data: honest clients send what round and name determine, hostile ones what they are told.

They are run by the real server and kept by the real recorder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.combining import Rklb
from steelyard.metrics.scores import Scores
from steelyard.nn.variational import bayesian
from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder
from steelyard.seeds import generator
from steelyard.server.federation import Federation
from steelyard.settings import Server
from steelyard.sharing import Posterior
from steelyard.sites import Answer, Profile
from steelyard.types import Broadcast, ClientId, Message, Reply

CLASSES = 3
Script = Callable[[Answer, int], Sequence[object]]
"""(the honest answer of a hostile client, round) -> what it sends instead."""


class ScriptedSites:
    """Honest clients, and hostile ones, which follow the script."""

    about = "scripted"

    def __init__(
        self, honest: Sequence[str], hostile: Sequence[str] = (), script: Script | None = None
    ) -> None:
        self.clients = tuple(sorted({*honest, *hostile}))
        self.hostile, self.script = frozenset(hostile), script

    def profiles(self, clients: Sequence[ClientId]) -> Mapping[ClientId, Profile]:
        return {client: Profile(client, 10, ((CLASSES, 2), (CLASSES,)), 36) for client in clients}

    def ask(
        self,
        broadcast: Broadcast,
        train: Sequence[ClientId],
        evaluate: Sequence[ClientId] = (),
        *,
        detail: bool = False,
        seconds: float | None = None,
    ) -> Iterator[Any]:
        for client in dict.fromkeys((*train, *evaluate)):
            answer = honest_answer(client, broadcast, client in train, client in evaluate)
            if client in self.hostile and self.script is not None:
                yield from self.script(answer, broadcast.round)
            else:
                yield answer

    def commit(self, round: int) -> None:
        pass

    def rewind(self, round: int) -> None:
        pass


def honest_answer(client: ClientId, broadcast: Broadcast, train: bool, evaluate: bool) -> Answer:
    """An update of length about 1, and scores."""
    draw = generator(1, broadcast.round, client, "honest")
    mean = torch.randn(broadcast.message.mean.shape, generator=draw)
    variance = None if broadcast.message.variance is None else torch.full_like(mean, 0.01)
    loss, right = float(torch.rand((), generator=draw)), float(torch.randint(5, 21, (), generator=draw))
    message = Message(mean / mean.numel() ** 0.5, variance)
    reply = Reply(client, message, 5 + int(right), {"loss": loss, "steps": 3.0})
    scores = {"test": Scores(np.array([20.0, right, 9.0, 4.0, 0.0]), CLASSES)}
    return Answer(client, reply if train else None, scores if evaluate else {})


class ServerTest:
    """A test set of the server's own, with the same scores for every model."""

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        bins, confusion = np.zeros((3, 15)), np.zeros((CLASSES, CLASSES))
        bins[:, 7], confusion[0, 0] = (20, 9, 12), 20
        return Scores(np.concatenate([[20.0, 12.0, 9.0, 4.0, 0.0], bins.ravel(), confusion.ravel()]), CLASSES)


def recorded_run(
    path: Path, sites: ScriptedSites, rounds: int, posterior: bool = False, **settings: Any
) -> Run:
    """A run with these sites, recorded in a new folder; `settings` are those of the algorithm."""
    torch.manual_seed(0)
    model: nn.Module = nn.Linear(2, CLASSES)
    if posterior:
        model = bayesian(model, last=1)
        settings = {"sharing": Posterior(), "combining": Rklb(), **settings}
    algorithm = Algorithm(server=Server(quorum=0.0), **settings)
    federation = Federation(sites, algorithm, model, test=ServerTest(), rounds=rounds, classes=CLASSES)
    with Recorder(path) as recorder:
        federation.run(keeper=recorder)
    return Run(path)
