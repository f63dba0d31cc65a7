"""A federated algorithm: objective, sharing, weighing, combining, and settings of clients and server."""

from dataclasses import dataclass

from steelyard.combining import Combiner, Mean
from steelyard.errors import InputError
from steelyard.objectives import CrossEntropy, Objective
from steelyard.objectives.base import OFFERED_BY_EVERY_RUN
from steelyard.settings import Server, Training
from steelyard.sharing import Sharing, WholeModel
from steelyard.weighing import Samples, Weigher


@dataclass(frozen=True)
class Algorithm:
    """The defaults are FedAvg. Combinations that cannot work are refused here, before any training."""

    objective: Objective = CrossEntropy()  # noqa: RUF009 - the defaults are frozen values
    sharing: Sharing = WholeModel()  # noqa: RUF009
    weighing: Weigher = Samples()  # noqa: RUF009
    combining: Combiner = Mean()  # noqa: RUF009
    training: Training = Training()  # noqa: RUF009
    server: Server = Server()  # noqa: RUF009

    def __post_init__(self) -> None:
        if missing := self.objective.needs - self.weighing.offers - OFFERED_BY_EVERY_RUN:
            raise InputError(
                f"objective {_name(self.objective)} needs {_list(missing)} from the server, and weighing "
                f"rule {_name(self.weighing)} does not offer it; change one of the two."
            )
        if self.objective.needs_shared_head and not self.sharing.has_private_layers:
            raise InputError(
                f"objective {_name(self.objective)} needs a shared head, and sharing "
                f"{_name(self.sharing)} has none; use the sharing `head`."
            )
        if self.weighing.may_be_negative and not self.combining.allows_negative_weights:
            raise InputError(
                f"weighing rule {_name(self.weighing)} gives negative weights, and combining rule "
                f"{_name(self.combining)} cannot use them; set clip = true in the weighing rule, or combine "
                "with the mean."
            )
        if missing := self.combining.needs - self.sharing.slots:
            raise InputError(
                f"combining rule {_name(self.combining)} needs the {_list(missing)} of every client, and "
                f"sharing {_name(self.sharing)} does not send it; change one of the two."
            )
        if lost := self.sharing.slots - self.combining.needs:
            raise InputError(
                f"sharing {_name(self.sharing)} sends the {_list(lost)} of every client, and combining rule "
                f"{_name(self.combining)} would lose it; change one of the two."
            )


def _name(part: object) -> str:
    return type(part).__name__


def _list(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))
