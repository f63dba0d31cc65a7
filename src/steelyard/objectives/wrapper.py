"""Objectives that add a term to another one."""

from steelyard.errors import InputError
from steelyard.objectives.base import Objective, Targets
from steelyard.objectives.own_loss import as_objective
from steelyard.task import FittedTask


class Wrapper(Objective):
    """An objective that adds a term to another, its `base`: an objective, or any loss (`OwnLoss`)."""

    base: Objective

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", as_objective(self.base))
        if not isinstance(self.base, Objective):
            raise InputError(
                f"the base of {type(self).__name__} must be an objective, a loss function of (outputs, "
                f"targets) or a loss module, not {self.base!r}."
            )

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs

    @property
    def targets(self) -> Targets:
        return self.base.targets

    @property
    def needs_shared_head(self) -> bool:
        return self.base.needs_shared_head

    def check(self, task: FittedTask) -> None:
        self.base.check(task)
