"""A site: where one client's data, model and private state live. The same class simulated and remote."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steelyard.client.batch_scoring import score_batches, scored_at_once, total_scores
from steelyard.client.checks import check_fit, check_models
from steelyard.client.containment import run_contained
from steelyard.client.evaluation import own_mix_scores, predict_all, with_temperature
from steelyard.client.interruptions import signals_noted
from steelyard.client.learner import Learner, Trained
from steelyard.client.private_state import ClientStates, MemoryStates
from steelyard.client.working_model import WorkingModel
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, StreamExamples
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
        classes = check_fit(model, [self.client], None, self.learner.objective, self.learner.task)
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
        client, learner, kept = self.client, self.learner, state or self.working.start
        test = client.test if own_test and client.test is not None and len(client.test) else None
        held_out = client.held_out if client.held_out is not None and len(client.held_out) else None
        common = self.common if own_test else None
        scores: dict[str, Scores] = {}
        if test is not None:
            scores["test"], predicted = self._score(model, kept, test, detail)
            if learner.sharing.has_private_layers and scores["test"].kind in ("classes", "labels"):
                if predicted is not None and not isinstance(client.train, StreamExamples):
                    scores["own_mix"] = own_mix_scores(predicted, test.labels, client.train.labels)
                scores["shared"], _ = self._score(model, learner.sharing.without_private_head(kept), test)
        if common is not None:
            scores["common"], _ = self._score(model, kept, common)
        if held_out is not None:
            scores["held_out"], predicted = self._score(model, kept, held_out)
            if predicted is not None and scores["held_out"].classes:
                scores["held_out"] = with_temperature(scores["held_out"], predicted, held_out.labels)
        return scores

    def _score(
        self, model: Message, kept: State, data: AnyExamples, detail: bool = False
    ) -> tuple[Scores, Tensor | None]:
        """Scores of a shared model with a private state; of plain tensors, the predictions as well."""
        learner, task, module = self.learner, self.learner.task, self.working.model
        learner.load(self.working, model, kept)
        place = learner.place
        if not task.plain or isinstance(data, StreamExamples):
            size = scored_at_once(task, learner.training.batch_size)
            placed, seed, task = place.examples(data), learner.seed, place.task(task)
            found = score_batches(module, task, placed, seed, detail, size=size, device=place.device)
            return total_scores(found), None
        predicted = predict_all(module, learner, data)
        scores = score(predicted.outputs, data.labels, detail)
        return (scores._replace(own=predicted.own) if predicted.sums else scores), predicted.outputs


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
