"""The round loop, the only one. The server asks sites and merges what they answer.

In one exchange, sites score the model of the last round and then train from it. The scores belong to the
round that made the model, so a round is complete after the next exchange; the last exchange only scores.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from steelyard.algorithm import Algorithm
from steelyard.errors import ClientError
from steelyard.layout import tensors_of
from steelyard.metrics.own import NO_METRICS, OwnMetrics
from steelyard.seeds import generator
from steelyard.server.aggregation import Aggregator, is_finite
from steelyard.server.callbacks import Callback, RoundEvent, call_all
from steelyard.server.clock import Clock
from steelyard.server.concerns import concerns
from steelyard.server.logs import log_round
from steelyard.server.observing import InMemory, Keeper, Observer
from steelyard.server.profiles import class_counts, usable_profiles
from steelyard.server.result import Result
from steelyard.server.rows import (
    client_rows,
    correlation_metrics,
    round_metrics,
    scored_rows,
    sigma_metrics,
    traffic,
)
from steelyard.server.score_screening import ScoreRules
from steelyard.server.scoring import evaluate
from steelyard.server.screening import Asked, Exchange, screen
from steelyard.server.selection import Best, Selection, best_of, never_scored
from steelyard.server.state import FederationState
from steelyard.server.statistics import are_variances
from steelyard.sites import LATE, ServerTestSet, Sites
from steelyard.texts import kebab
from steelyard.types import EMPTY, Broadcast, ClientId, Failure, Round
from steelyard.verdicts.reasons import to_json

MAX_EVALUATED = 1000  # clients that are asked for scores; of more, a sample that stays the same


class Federation:
    """A server that trains one shared model with the sites of its clients."""

    def __init__(
        self,
        sites: Sites,
        algorithm: Algorithm,
        model: nn.Module,
        *,
        test: ServerTestSet | None = None,
        rounds: int = 30,
        clients_per_round: int | None = None,
        evaluate_every: int = 1,
        selection: Selection | None = None,
        round_seconds: float | None = None,
        seed: int = 0,
        classes: int | None = None,
        metrics: OwnMetrics = NO_METRICS,
        annotate: Callable[[Round], Round] = lambda round: round,
    ) -> None:
        """`model` gives the shapes and first values of what is shared; `test` is the server's own test set.
        `selection` says how the best round is found, and when to stop; by default neither is done.

        `classes` is the number of the models' outputs, 0 in regression: scores of clients must have it. If it
        is not known, scores must have what most clients send. `metrics` are the user's own. `annotate` may
        add to the record of a round what only the caller knows.
        """
        algorithm.check_metrics(metrics)
        self.sites, self.algorithm, self.test, self.annotate = sites, algorithm, test, annotate
        self.model, self.rounds, self.seed, self.metrics = model, rounds, seed, metrics
        self.evaluate_every, self.round_seconds = evaluate_every, round_seconds
        self.selection = selection or Selection()
        self.clients_per_round = len(sites.clients) if clients_per_round is None else clients_per_round
        self.layout = algorithm.sharing.layout(model)
        self.aggregator = Aggregator(
            algorithm.weighing,
            algorithm.combining,
            algorithm.server,
            self.layout.num_parameters,
            are_variances(self.layout),
            self.layout.pairs,
        )
        private, most = algorithm.sharing.has_private_layers, algorithm.server.max_examples
        self.score_rules = ScoreRules(classes, test is None or private, private, most, metrics)
        self.evaluated = self._draw(MAX_EVALUATED, "tested")
        counted = "classes" in algorithm.objective.needs
        self.profiles = usable_profiles(
            sites, sites.clients if counted else self.evaluated, self.layout, most, private
        )
        self.num_examples = {client: profile.num_examples for client, profile in self.profiles.items()}
        self.announced = {"classes": class_counts(self.profiles.values())} if counted else EMPTY

    def run(
        self,
        *observers: Observer,
        keeper: Keeper | None = None,
        state: FederationState | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Run to the end, from the beginning or from a state."""
        state, keeper = self.selection.begin(state or self.init()), keeper or InMemory()
        keeper.note(**self._notes())
        stopped = False
        try:
            while True:
                clock = Clock()
                exchange = self.exchange(state, clock)
                if state.pending is not None:
                    round, completed = self.complete(state, exchange, clock)
                    keeper(round)
                    state = completed  # not before: an interrupted run saves no state that lacks its round
                    for observer in (log_round, *observers):
                        observer(round)
                    stopped = call_all(callbacks, RoundEvent(round, state, self.model_after))
                if stopped or self.is_over(state):
                    break
                state = self.aggregate(state, exchange, clock)
                if keeper.is_due():
                    self.sites.commit(state.round)
                    keeper.save(state)
        finally:  # also when interrupted: the run can be resumed from its last round
            self.sites.commit(state.round)
            best = self.best_after(state)
            keeper.finish(state, self.model_after(state), best)
        return self._result(state, best, keeper)

    def _notes(self) -> dict[str, str]:
        """Facts about the run as a whole, for its record."""
        rule = self.aggregator.weigher
        notes = {
            "rule": kebab(type(rule).__name__),
            "rounds": str(self.rounds),
            "reasons": to_json(rule.reasons),
        }
        return notes | ({"metrics": json.dumps(self.metrics.names)} if self.metrics else {})

    def _result(self, state: FederationState, best: Best | None, keeper: Keeper) -> Result:
        """The result of a run that came to its end."""
        history, clients = keeper.rows()
        found = concerns(history, is_finite(state.server.evaluated_model), self.metrics.names)
        found += (never_scored(state),) if self.selection.is_used and best is None else ()
        if found:
            keeper.note(warning=" ".join(found))
        return Result(
            history,
            clients,
            self.model_after(state),
            state,
            warnings=found,
            reasons=self.aggregator.weigher.reasons,
            best=best,
            own_metrics=tuple(self.metrics.names),
        )

    def init(self) -> FederationState:
        """The state before the first round."""
        message = self.algorithm.sharing.read(tensors_of(self.model), self.layout)
        return FederationState(0, self.aggregator.init(message))

    def is_over(self, state: FederationState) -> bool:
        return state.pending is None and (state.round >= self.rounds or self.selection.is_over(state))

    def exchange(self, state: FederationState, clock: Clock) -> Exchange:
        """Ask sites to score the model of the last round, where that is due, and to train from it."""
        number, server = state.round + 1, state.server
        invited = self.sample(number) if state.round < self.rounds else ()
        evaluated = self.evaluated if state.pending and self._is_evaluated(state.round) else ()
        if self.is_over(state) or not (invited or evaluated):
            return Exchange(invited)
        offers = {**self.aggregator.weigher.offer(server.weighing), **self.announced}
        averaged = None if server.evaluated_model is server.message else server.evaluated_model
        broadcast = Broadcast(number, server.message, offers, self.rounds, averaged)
        rules = self.score_rules
        asked = Asked(self.sites.clients, invited, server.message, rules.max_examples, evaluated, rules)
        with clock("exchange"):
            return screen(
                asked,
                self.sites.ask(
                    broadcast, invited, evaluated, detail=rules.detail, seconds=self.round_seconds
                ),
            )

    def complete(
        self, state: FederationState, exchange: Exchange, clock: Clock
    ) -> tuple[Round, FederationState]:
        """The record of the pending round with the scores of its model, and the state without it."""
        round = state.pending
        assert round is not None
        metrics, rows, state = dict(round.metrics), list(round.clients), replace(state, pending=None)
        calibration: tuple[tuple[float, float, float], ...] = ()
        if self._is_evaluated(round.number):
            with clock("evaluate"):
                model = state.server.evaluated_model
                known = (exchange.scores, exchange.table, self.num_examples, self.metrics)
                found = evaluate(model, self.test, *known)
                validated = self.selection.metrics(model, exchange.scores, self.metrics)
            own, calibration = found.clients or {}, found.calibration
            metrics |= {**found.metrics, **validated}
            if found.measure == "accuracy":
                metrics |= correlation_metrics(rows, own)
            answered = not (exchange.unscored or exchange.failures)
            state = self.selection.judge(state, round.metrics, metrics, answered)
            unscored = dict(exchange.unscored)
            if self.is_over(state):  # the last exchange has no round of its own in which clients fail
                failed = (each for each in exchange.failures.values() if each.stage != "training")
                unscored |= {each.client: f"failed while {each.stage}: {each.reason}" for each in failed}
            rows = scored_rows(rows, found, unscored, self.evaluated if self.is_over(state) else unscored)
        seconds = {**round.seconds, "evaluate": clock.seconds.pop("evaluate", 0.0)}
        return self.annotate(Round(round.number, metrics, tuple(rows), seconds, calibration)), state

    def aggregate(self, state: FederationState, exchange: Exchange, clock: Clock) -> FederationState:
        """Merge the replies of a round into the model."""
        number, failures = state.round + 1, exchange.failures
        if not exchange.replies and not state.round and failures:
            self._check_all_failed(failures)
        with clock("aggregate"):
            done = self.aggregator.aggregate(state.server, exchange.replies, exchange.invited, number)
        metrics = round_metrics(done, exchange) | sigma_metrics(self.layout, done.state.message.variance)
        part = self.algorithm.sharing.shares_a_part
        models = [self._model_bytes(each) for each in exchange.invited] if part else None
        metrics |= traffic(done.state.message, len(exchange.invited), models)
        pending = Round(number, metrics, client_rows(exchange, done), clock.seconds)
        return replace(state, round=number, server=done.state, pending=pending)

    def sample(self, number: int) -> tuple[ClientId, ...]:
        """The clients invited to a round, in the order of their ids."""
        return self._draw(self.clients_per_round, number, "sample")

    def model_after(self, state: FederationState) -> nn.Module:
        """What is shared, after a round, as a new module: the whole model, or the head."""
        return self.algorithm.sharing.shared_part(self.model, state.server.evaluated_model)

    def best_after(self, state: FederationState) -> Best | None:
        """The best round so far, if one is looked for and found."""
        if state.best_model is None:
            return None
        model = self.algorithm.sharing.shared_part(self.model, state.best_model)
        return best_of(state, self.selection.mode, model)

    def _is_evaluated(self, number: int) -> bool:
        """Whether the model of a round is scored."""
        return number % self.evaluate_every == 0 or number == self.rounds

    def _draw(self, count: int, *purpose: str | int) -> tuple[ClientId, ...]:
        """A sample of the clients, or all if there are no more, in the order of their ids."""
        ids: Sequence[ClientId] = self.sites.clients
        if count >= len(ids):
            return tuple(ids)
        drawn = torch.randperm(len(ids), generator=generator(self.seed, *purpose))
        return tuple(ids[position] for position in drawn[:count].sort().values)

    def _model_bytes(self, client: ClientId) -> int:
        """The size of a client's model; clients without a profile are taken to have the first one's."""
        profile = self.profiles.get(client) or next(iter(self.profiles.values()), None)
        return 0 if profile is None else profile.model_bytes

    def _check_all_failed(self, failures: Mapping[ClientId, Failure]) -> None:
        """Stop a run in which no client at all works: that is a fault of the program, not of a client."""
        broken = [failures[client] for client in sorted(failures) if failures[client].stage != LATE]
        if broken and len(failures) == len(self.sites.clients):
            first = broken[0]
            raise ClientError(first.client, 1, first.stage, f"{first.reason} (and no other client succeeded)")


def advance(federation: Federation, state: FederationState) -> tuple[Round | None, FederationState]:
    """One exchange outside of `run`: the round that it completed, if any, and the next state."""
    clock = Clock()
    exchange = federation.exchange(state, clock)
    completed = None
    if state.pending is not None:
        completed, state = federation.complete(state, exchange, clock)
    return completed, state if federation.is_over(state) else federation.aggregate(state, exchange, clock)
