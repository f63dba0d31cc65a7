"""A site: where one client's data, model and private state live. The same class simulated and remote."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steelyard.client.checks import check_fit, check_models
from steelyard.client.containment import run_contained
from steelyard.client.evaluation import held_out_scores, own_test_scores, predict
from steelyard.client.interruptions import signals_noted
from steelyard.client.learner import Learner, Trained
from steelyard.client.private_state import ClientStates, MemoryStates
from steelyard.client.working_model import WorkingModel
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples
from steelyard.layout import layout_of
from steelyard.metrics.scores import Scores, score
from steelyard.seeds import others_restored
from steelyard.sites import Answer, Profile, Request
from steelyard.types import Broadcast, Failure, Message, State


@dataclass(frozen=True, eq=False)
class Site:
    """One client with its learner, a model to work in, and its private state."""

    client: Client
    learner: Learner
    working: WorkingModel
    common: AnyExamples | None = None
    """A test set that all clients know, for clients with models of their own."""
    states: ClientStates = field(default_factory=MemoryStates)

    def profile(self) -> Profile:
        """What the server learns before the first round; a model that does not fit the data is refused."""
        check_models([self.client], self.working.model, self.learner.sharing)
        model = None if self.client.model is not None else self.working.model
        classes = check_fit(model, [self.client], None, self.learner.objective)
        return profile_of(self.client, self.learner, self.working, classes)

    def answer(self, request: Request) -> Answer | Failure:
        """Score the model, then train, as the request asks; the private state is replaced after training."""
        id, broadcast, state = self.client.id, request.broadcast, self.states.get(self.client.id)
        scores: dict[str, Scores] = {}
        with signals_noted(), others_restored():
            if request.evaluate:
                model, detail = broadcast.model_to_score, request.detail
                found = run_contained(id, "evaluating", lambda: self.evaluate(model, state, detail))
                if isinstance(found, Failure):
                    return found
                scores = found
            if not request.train:
                return Answer(id, None, scores)
            trained = run_contained(id, "training", lambda: self.train(broadcast, state))
        if isinstance(trained, Failure):
            return replace(trained, scores=scores)
        if trained.state:
            self.states.put(broadcast.round, {id: trained.state})
        return Answer(id, trained.reply, scores)

    def train(self, broadcast: Broadcast, state: State, row: Message | None = None) -> Trained:
        """Train for one round; the update is written into `row`, if one is given."""
        return self.learner.train(self.working, self.client.id, self.client.train, broadcast, state, row)

    def evaluate(
        self, model: Message, state: State, detail: bool = False, own_test: bool = True
    ) -> dict[str, Scores]:
        """Scores of a shared model, with the client's private state, on the client's own data.

        Without `own_test`, on what the client holds out only.
        """
        sharing, working = self.learner.sharing, self.working
        kept = state or working.start
        layout = working.layout or self.learner.layout

        def predicted(data: AnyExamples, shared: bool = False) -> Tensor:
            own = sharing.without_private_head(kept) if shared else kept
            sharing.write(working.tensors, layout, model, own)
            return predict(working.model, data, self.learner.seed, own_code=self.learner.own_code)

        client = self.client
        scores: dict[str, Scores] = {}
        labels = client.train.labels if sharing.has_private_layers else None
        if own_test and client.test is not None and len(client.test):
            scores |= own_test_scores(predicted, client.test, detail, labels)
        if own_test and self.common is not None:
            scores["common"] = score(predicted(self.common), self.common.labels)
        if client.held_out is not None and len(client.held_out):
            held_out = held_out_scores(predicted, client.held_out)
            scores |= {} if held_out is None else {"held_out": held_out}
        return scores


def profile_of(client: Client, learner: Learner, working: WorkingModel, classes: int) -> Profile:
    """The profile of a client whose model has been checked; `classes` is the number of its outputs."""
    layout = working.layout or learner.layout
    profile = Profile(
        client.id,
        len(client.train),
        tuple(tuple(entry.shape) for entry in layout.entries),
        layout_of(working.model).nbytes,
    )
    if "classes" not in learner.objective.needs:
        return profile
    return replace(profile, class_counts=torch.bincount(client.train.labels, minlength=classes))
