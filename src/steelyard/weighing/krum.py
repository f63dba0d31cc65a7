"""Krum and Multi-Krum (Blanchard et al., 2017)."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.errors import COUNT_OR_ZERO, InputError, check_setting
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import Reason
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.steps import normalised

SCORE = Reason(
    "score",
    "sum of squared distances",
    less="its updates were further from the nearest others than those that were chosen",
    more="its updates were closer to the nearest others than most",
    same="only the updates that are closest to others count",
    power=-1.0,
    relative=True,
)
TIE_FACTOR = 1 + 1e-9  # scores within this factor are a tie, and tied clients count the same


def lowest(scores: Tensor, count: int) -> Tensor:
    """1 for the `count` lowest scores and for ties with them, 0 for the rest."""
    bound = scores.sort().values[count - 1]
    return (scores <= bound * TIE_FACTOR).double()


def krum_scores(geometry: Geometry, f: int) -> Tensor:
    """The sum of squared distances to the J − f − 2 nearest others."""
    others = max(1, len(geometry) - f - 2)
    nearest = geometry.pairwise.sort(dim=1).values[:, 1 : others + 1]
    return nearest.sum(dim=1)


def most_adversaries(clients: int) -> int:
    """The largest number that Krum tolerates: 2f + 2 must be less than the number of clients."""
    return max(0, (clients - 3) // 2)


def expected_adversaries(f: int | None, clients: int) -> int:
    """`f`, by default the largest number that Krum tolerates, and at most that in rounds with few replies."""
    limit = most_adversaries(clients)
    return limit if f is None else min(f, limit)


def check_f(rule: str, f: int | None, clients: int | None = None, limit: int = 0) -> None:
    """Raise an InputError if `f` is no number of adversaries, or more than the limit for so many clients."""
    check_setting(f"weighing rule {rule!r}: f", f, COUNT_OR_ZERO)
    if clients is not None and f is not None and f > limit:
        raise InputError(
            f"weighing rule {rule!r}: f is {f}, but must be at most {limit} for {clients} clients in a round."
        )


@dataclass(frozen=True)
class Krum(Weigher):
    """Only the update that is closest to its nearest neighbours counts.

    `f` is the number of adversaries to expect. The default is the most that Krum tolerates, (J − 3) / 2.
    """

    f: int | None = None

    reasons = (SCORE,)

    def __post_init__(self) -> None:
        check_f("krum", self.f)

    def check(self, clients: int) -> None:
        check_f("krum", self.f, clients, most_adversaries(clients))

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        scores = krum_scores(geometry, expected_adversaries(self.f, len(geometry)))
        return Weighed(normalised(lowest(scores, 1)), state, {"score": scores})


@dataclass(frozen=True)
class MultiKrum(Weigher):
    """The J − f updates with the lowest Krum scores count equally. `f` is as in krum."""

    f: int | None = None

    reasons = (SCORE,)

    def __post_init__(self) -> None:
        check_f("multi-krum", self.f)

    def check(self, clients: int) -> None:
        check_f("multi-krum", self.f, clients, most_adversaries(clients))

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        f = expected_adversaries(self.f, len(geometry))
        scores = krum_scores(geometry, f)
        return Weighed(normalised(lowest(scores, len(geometry) - f)), state, {"score": scores})
