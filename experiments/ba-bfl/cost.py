"""Time of a local step with Bayesian layers. Methods take turns, so that other load slows them equally."""

import statistics
from collections.abc import Mapping
from contextlib import ExitStack

import torch

from steelyard.server.federation import advance
from steelyard.specs.building import build
from steelyard.specs.schema import Spec, load_spec

TURNS, STEPS = 30, 10
ONE_CLIENT = {
    "engine": "serial",
    "clients_per_round": 1,
    "rounds": TURNS + 2,  # the first warms up; the last would be evaluated, and is not reached
    "evaluate_every": TURNS + 2,
    "training.steps": STEPS,
}


def step_costs(specs: Mapping[float, Spec]) -> dict[float, float]:
    """Time of a local step divided by that of the first spec: the median over turns."""
    federations = [build(load_spec(spec.model_dump(), ONE_CLIENT)) for spec in specs.values()]
    turns = []
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        servers = [one.server(stack.enter_context(one.open())) for one in federations]
        states = [server.init() for server in servers]
        for _ in range(TURNS + 1):
            states = [advance(server, state)[1] for server, state in zip(servers, states, strict=True)]
            turns.append([state.pending.seconds["exchange"] for state in states if state.pending])
    medians = (statistics.median(turn[place] / turn[0] for turn in turns[1:]) for place in range(len(specs)))
    return dict(zip(specs, medians, strict=True))
