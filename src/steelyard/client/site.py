"""A site: where one client's data, model and private state live. The same class simulated and remote."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.client.batch_scoring import add_own_sums, score_batches, scored_at_once, total_scores
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
        client = self.client
        test = client.test if own_test and client.test is not None and len(client.test) else None
        held_out = client.held_out if client.held_out is not None and len(client.held_out) else None
        common = self.common if own_test else None
        write = partial(self._write, model, state or self.working.start)
        scored = self._plain_scores if self.learner.task.plain else self._scores_by_batch
        return scored(write, test, common, held_out, detail)

    def _write(self, model: Message, kept: State, shared: bool = False) -> None:
        """Load a shared model, with the client's private state; with `shared`, without its private head."""
        sharing, layout = self.learner.sharing, self.working.layout or self.learner.layout
        own = sharing.without_private_head(kept) if shared else kept
        sharing.write(self.working.tensors, layout, model, own)

    def _plain_scores(
        self,
        write: Callable[..., None],
        test: AnyExamples | None,
        common: AnyExamples | None,
        held_out: AnyExamples | None,
        detail: bool,
    ) -> dict[str, Scores]:
        """Scores from the predictions of whole data sets."""
        learner, metrics = self.learner, self.learner.task.metrics
        sums: list[NDArray[np.float64]] = []

        def predicted(data: AnyExamples, shared: bool = False) -> Tensor:
            write(shared)
            sums.clear()
            observe = partial(add_own_sums, learner.task, sums) if metrics and not shared else None
            return predict(self.working.model, data, learner.seed, slice(None), learner.own_code, observe)

        def with_own(scores: Scores) -> Scores:
            return scores._replace(own=np.sum(sums, axis=0)) if metrics else scores

        scores: dict[str, Scores] = {}
        labels = self.client.train.labels if learner.sharing.has_private_layers else None
        if test is not None:
            scores |= own_test_scores(predicted, test, detail, labels, with_own)
        if common is not None:
            scores["common"] = score(predicted(common), common.labels)
        if held_out is not None:
            scores["held_out"] = with_own(held_out_scores(predicted, held_out))
        return scores

    def _scores_by_batch(
        self,
        write: Callable[..., None],
        test: AnyExamples | None,
        common: AnyExamples | None,
        held_out: AnyExamples | None,
        detail: bool,
    ) -> dict[str, Scores]:
        """Scores of models whose inputs, outputs or targets are not plain tensors."""
        learner, task = self.learner, self.learner.task
        size = scored_at_once(task, learner.training.batch_size)

        def scored(data: AnyExamples, detail: bool = False, shared: bool = False) -> Scores:
            write(shared)
            parts = score_batches(self.working.model, task, data, learner.seed, detail, size=size)
            return total_scores(parts)

        scores: dict[str, Scores] = {}
        if test is not None:
            scores["test"] = scored(test, detail)
            if learner.sharing.has_private_layers:
                scores["shared"] = scored(test, shared=True)
        if common is not None:
            scores["common"] = scored(common)
        if held_out is not None:
            scores["held_out"] = scored(held_out)
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
