"""FedBaC (Niebuhr, 2025): weigh updates by how well and how steadily they agree with the server's momentum.

As published, with settings for the repairs that its report leaves open. The rule fails on unequal data: a
client's update mainly corrects the overshoot of the last rounds, so honest updates point *against* the
momentum and reversed ones along it (`experiments/fedbac`). `concord` is a variant that works.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from steelyard.errors import InputError, unknown
from steelyard.types import EMPTY, ClientId, RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.steps import TINY, lower_median, normalised, shortened

Gate = Literal["hard", "soft"]
Source = Literal["weights", "samples"]


@dataclass(frozen=True)
class Consensus(Weigher):
    """Weigh by consensus × reliability, from the cosine c of each update with the server's momentum (FedBaC).

    Consensus is max(0, c)^gamma with the `hard` gate and ((1 + c)/2)^gamma with the `soft` one. Reliability
    is exp(−alpha · variance) of a client's last `window` cosines. The momentum is beta × the old momentum +
    (1 − beta) × the round's mean, which uses these weights or, with `momentum = "samples"`, n_j/n. In the
    first round, and when all scores are 0, the weights are n_j/n and the evidence `fell_back` is 1. `bound`
    scales longer updates down to `bound` × the median norm before they are mixed; 0 means no limit. With
    gamma = 0 only reliability counts, with alpha = 0 only consensus.
    """

    beta: float = 0.9
    gamma: float = 1.0
    alpha: float = 1.0
    window: int = 5
    momentum: Source = "weights"
    gate: Gate = "hard"
    bound: float = 0.0

    offers = frozenset({"direction"})
    reads_updates = True
    needs_products = False
    reasons = (
        Reason(
            "consensus",
            "cosine",
            less="it agreed less with the server's momentum",
            more="it agreed more with the server's momentum",
            against="it pulled against the server's momentum",
            shows="cosine",
        ),
        Reason(
            "reliability",
            "reliability",
            less="its agreement with the momentum changed from round to round",
            more="its agreement with the momentum was steady",
        ),
    )

    def __post_init__(self) -> None:
        rule = "weighing rule 'consensus'"
        if not 0 <= self.beta < 1:
            raise InputError(f"{rule}: beta must be at least 0 and less than 1, not {self.beta}.")
        for name, minimum in (("gamma", 0), ("alpha", 0), ("window", 1), ("bound", 0)):
            if not getattr(self, name) >= minimum:
                raise InputError(f"{rule}: {name} must be at least {minimum}, not {getattr(self, name)}.")
        for name, choices in (("momentum", get_args(Source)), ("gate", get_args(Gate))):
            if getattr(self, name) not in choices:
                raise unknown(name, str(getattr(self, name)), choices, of=rule)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        samples = normalised(round.num_examples)
        before = state.get("momentum")
        has_direction = before is not None and bool(
            before.any()
        )  # otherwise there is no direction to compare with
        cosine = cosines_with(before, geometry) if before is not None else torch.zeros_like(samples)
        history = extended(state, round.clients, cosine, self.window) if has_direction else state
        reliability = torch.exp(-self.alpha * variances(history, round.clients))
        consensus = (cosine.clamp(min=0.0) if self.gate == "hard" else (1 + cosine) / 2) ** self.gamma
        scores = reliability * consensus
        fell_back = not has_direction or not bool(scores.sum() > 0)
        weights = samples if fell_back else normalised(scores)
        norms = geometry.norms
        scale = shortened(norms, self.bound * lower_median(norms)) if self.bound else None
        shares = weights if self.momentum == "weights" else samples
        mean = geometry.mix(shares if scale is None else shares * scale)
        momentum = (1 - self.beta) * mean + (0 if before is None else self.beta * before)
        evidence = {
            "cosine": cosine,
            "consensus": consensus,
            "reliability": reliability,
            "fell_back": torch.tensor(float(fell_back)),
        }
        return Weighed(weights, {**history, "momentum": momentum}, evidence, scale)

    def offer(self, state: State) -> Mapping[str, Tensor]:
        return {"direction": state["momentum"]} if "momentum" in state else EMPTY


def cosines_with(vector: Tensor, geometry: Geometry) -> Tensor:
    """cos(x_j, v), [J]; 0 for updates that are 0."""
    lengths = geometry.norms * torch.linalg.vector_norm(vector.double())
    cosines = torch.where(lengths > 0, geometry.inner(vector) / lengths.clamp(min=TINY), 0.0)
    return cosines.clamp(-1.0, 1.0)


def extended(state: State, clients: Sequence[ClientId], cosines: Tensor, window: int) -> State:
    """The state with one more cosine per client; only the last `window` are kept."""
    rows = {
        key: torch.cat([state.get(key, cosines.new_zeros(0)), cosine.reshape(1)])[-window:]
        for key, cosine in zip(map(_key, clients), cosines, strict=True)
    }
    return {**state, **rows}


def variances(state: State, clients: Sequence[ClientId]) -> Tensor:
    """The variances of the clients' last cosines, [J]; 0 for fewer than two cosines."""
    cosines = [state.get(_key(client), torch.zeros(0)) for client in clients]
    values = [float(past.var(correction=0)) if len(past) > 1 else 0.0 for past in cosines]
    return torch.tensor(values, dtype=torch.float64)


def _key(client: ClientId) -> str:
    return f"cosines/{client}"
