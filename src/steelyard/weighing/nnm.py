"""Nearest-neighbour mixing (Allouah et al., "Fixing by Mixing", 2023), a step before any other rule."""

from dataclasses import dataclass

from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometric_median import GeometricMedian
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.krum import TIE_FACTOR, check_f

NEIGHBOURS = Reason(
    "neighbours",
    "neighbours",
    less="its updates were among the nearest of few clients",
    more="its updates were among the nearest of many clients",
)


@dataclass(frozen=True)
class Nnm(Weigher):
    """Replace each update by the mean of its J − f nearest, itself included, then apply `rule`.

    Mixing averages out honest differences and dilutes the few updates that are far from all others. `f` is
    the number of adversaries to expect. The default is the most that any rule tolerates, (J − 1) / 2.
    """

    rule: Weigher = GeometricMedian()  # noqa: RUF009 - a frozen value
    f: int | None = None

    def __post_init__(self) -> None:
        check_f("nnm", self.f)
        if self.rule.offers:
            raise InputError(
                f"nnm cannot wrap {type(self.rule).__name__}, which sends vectors to the clients."
            )

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return NEIGHBOURS, *self.rule.reasons

    @property
    def may_be_negative(self) -> bool:
        return self.rule.may_be_negative

    def check(self, clients: int) -> None:
        check_f("nnm", self.f, clients, (clients - 1) // 2)
        self.rule.check(clients)

    def init(self) -> State:
        return self.rule.init()

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        clients = len(geometry)
        limit = (clients - 1) // 2
        count = clients - (limit if self.f is None else min(self.f, limit))
        radius = geometry.pairwise.sort(dim=1).values[:, count - 1 : count]
        near = (geometry.pairwise <= radius * TIE_FACTOR).double()
        mixing = near / near.sum(dim=1, keepdim=True)
        weighed = self.rule.weigh(geometry.blended(mixing), round, state)
        neighbours = near.sum(dim=0)  # how many updates have this one among their nearest
        evidence = {**weighed.evidence, "neighbours": neighbours}
        return weighed._replace(weights=mixing.T @ weighed.weights, evidence=evidence)
