"""A federated algorithm: objective, sharing, weighing, combining, and settings of clients and server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.combining import Combiner, ProductCombiner
from steelyard.components import Choice, as_choice, build_given, component, settings_object
from steelyard.errors import InputError
from steelyard.metrics.own import OwnMetrics
from steelyard.objectives import Objective
from steelyard.objectives.base import OFFERED_BY_EVERY_RUN
from steelyard.objectives.own_loss import as_objective
from steelyard.settings import Server, Training
from steelyard.sharing import Sharing
from steelyard.texts import called, is_same
from steelyard.types import EMPTY
from steelyard.weighing import Weigher


@dataclass(frozen=True, init=False)
class Algorithm:
    """The four questions of a federated algorithm, and settings of clients and server: by default FedAvg.

    Combinations that cannot work are refused here, before any training.

    Every part is an object, or its name as in a spec, alone or in a table with settings.

    >>> Algorithm(weighing="majority", objective={"name": "proximal", "mu": 0.1}, training={"lr": 0.05})
    """

    objective: Objective
    """What a client minimises: an objective, a loss module, or a function of (outputs, targets)."""
    sharing: Sharing
    """What travels."""
    weighing: Weigher
    """How much each client counts."""
    combining: Combiner
    """How updates are merged."""
    training: Training
    """How a client trains."""
    server: Server
    """How the server checks replies and updates the model."""

    def __init__(
        self,
        objective: Objective | Choice | Callable[..., Any] = "auto",
        sharing: Sharing | Choice = "whole-model",
        weighing: Weigher | Choice = "samples",
        combining: Combiner | Choice = "mean",
        training: Training | Mapping[str, Any] = EMPTY,
        server: Server | Mapping[str, Any] = EMPTY,
    ) -> None:
        parts = {
            "objective": _objective(objective),
            "sharing": component("sharing", "sharing", Sharing, sharing),
            "weighing": component("weighing", "weighing", Weigher, weighing),
            "combining": component("combining", "combining", Combiner, combining),
            "training": settings_object("training", Training, training),
            "server": settings_object("server", Server, server),
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        self._check()

    def __repr__(self) -> str:
        """The parts that are not default."""
        usual = vars(Algorithm())
        own = {name: part for name, part in vars(self).items() if not is_same(part, usual[name])}
        return called("Algorithm", own)

    def _check(self) -> None:
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
        if self.sharing.has_factors and "direction" in self.objective.needs:
            raise InputError(
                f"objective {_name(self.objective)} needs a direction in the coordinates of the model, and "
                f"sharing {_name(self.sharing)} sends factors; change one of the two."
            )
        if isinstance(self.combining, ProductCombiner):
            self._check_products()

    def check_metrics(self, metrics: OwnMetrics) -> None:
        """Refuse own metrics that are called like what the weighing rule records of a client."""
        figures = {name for reason in self.weighing.reasons for name in (reason.factor, reason.shown)}
        rule = _name(self.weighing)
        metrics.check_free(figures, f"the weighing rule {rule} records a figure of this name")

    def _check_products(self) -> None:
        """Refuse what has no meaning where products of factors are merged."""
        rule = f"combining rule {_name(self.combining)}"
        if not self.sharing.has_factors:
            raise InputError(
                f"{rule} merges products of LoRA factors, and sharing {_name(self.sharing)} sends none; take "
                "the sharing `adapter`."
            )
        if self.weighing.reads_updates:
            raise InputError(
                f"{rule} merges products of factors, and weighing rule {_name(self.weighing)} needs the "
                "updates as vectors; change one of the two, or combine with the mean."
            )
        for name, value, plain in (
            ("momentum", self.server.momentum, 0),
            ("average", self.server.average, 1),
        ):
            if value != plain:
                raise InputError(
                    f"server.{name} is {value}, but {rule} changes the factors of a product as a whole; "
                    f"leave server.{name} out, or combine with the mean."
                )


def _objective(value: Any) -> Objective:
    """An objective: itself, by name, or any loss of (outputs, targets)."""
    if isinstance(value, str | Mapping):  # a name outside the package may be that of a loss, too
        value = build_given("objectives", as_choice("objective", value))
    found: Objective = component("objective", "objectives", Objective, as_objective(value))
    return found


def _name(part: object) -> str:
    return type(part).__name__


def _list(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))
