"""FedAvg's weights (McMahan et al., 2017): n_j / Σ n."""

from dataclasses import dataclass

from steelyard.errors import UP_TO_INFINITY, check_settings
from steelyard.types import RoundInfo, State, Weighed
from steelyard.verdicts.reasons import EXAMPLES
from steelyard.weighing.base import Weigher
from steelyard.weighing.geometry import Geometry


@dataclass(frozen=True)
class Samples(Weigher):
    """Weigh by the number of examples that a client trained on (FedAvg).

    Counts are claims and can be false. `cap` limits them to that multiple of the round's median count.
    """

    cap: float | None = None

    needs_products = False
    reasons = (EXAMPLES,)

    def __post_init__(self) -> None:
        check_settings("weighing rule 'samples': ", self, cap=UP_TO_INFINITY)

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        counts = round.num_examples
        if self.cap is not None:
            counts = counts.clamp(max=self.cap * float(counts.quantile(0.5)))
        return Weighed(counts / counts.sum())
