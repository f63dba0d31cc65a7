"""Equal weights."""

from dataclasses import dataclass

import torch

from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry


@dataclass(frozen=True)
class Uniform(Weigher):
    """All clients count the same."""

    needs_products = False
    reasons = (Reason("weight", "", same="under this rule, all clients count the same"),)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        return Weighed(torch.full((len(geometry),), 1 / len(geometry), dtype=torch.float64))
