"""Rules that show what they are given, that the tests of `weigh` and `combine` share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.combining import Combiner
from steelyard.types import Combined, RoundInfo, Stack, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry


@dataclass(frozen=True)
class Spy(Weigher):
    """Shows what a rule is given, and counts its rounds."""

    def init(self) -> State:
        return {"seen": torch.zeros(1)}

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        weights = torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64)
        norms = geometry.norms
        evidence = {"norm": norms, "count": round.num_examples, "round": torch.tensor(round.number)}
        return Weighed(weights, {"seen": state["seen"] + len(round.clients[0])}, evidence)


@dataclass(frozen=True)
class Widest(Combiner):
    """The mean and the largest variance."""

    needs = frozenset({"mean", "variance"})

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        assert stack.variance is not None
        return Combined(weights.to(stack.mean.dtype) @ stack.mean, stack.variance.amax(dim=0))
