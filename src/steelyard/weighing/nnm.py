"""Nearest-neighbour mixing (Allouah et al., "Fixing by Mixing", 2023): a step before any other rule."""

from dataclasses import dataclass

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometric_median import GeometricMedian
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.krum import EQUAL, check_f


@dataclass(frozen=True)
class Nnm(Weigher):
    """Replace each update by the mean of its J − f nearest, itself included, then apply `rule`.

    Mixing evens out honest differences and drowns the few who are far from everyone. `f`, the number of
    adversaries to expect, is by default the most that any rule can bear, (J − 1) / 2.
    """

    rule: Weigher = GeometricMedian()  # noqa: RUF009 - a frozen value
    f: int | None = None

    def __post_init__(self) -> None:
        check_f("nnm", self.f)
        if self.rule.offers:
            raise InputError(
                f"nnm cannot wrap {type(self.rule).__name__}, which sends vectors to the clients."
            )

    def init(self) -> State:
        return self.rule.init()

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        clients = len(geometry)
        most = (clients - 1) // 2
        count = clients - (most if self.f is None else min(self.f, most))
        reach = geometry.pairwise.sort(dim=1).values[:, count - 1 : count]
        near = (geometry.pairwise <= reach * EQUAL).double()
        mixing = near / near.sum(dim=1, keepdim=True)
        weighed = self.rule.weigh(geometry.blended(mixing), round, state)
        evidence = {
            **weighed.evidence,
            "neighbours": near.sum(dim=0),
        }  # how many count it among their nearest
        return weighed._replace(weights=mixing.T @ weighed.weights, evidence=evidence)
