"""A data set: train and test examples and what a model and a partition must know about them."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.data.examples import Examples


@dataclass(frozen=True, eq=False)
class Dataset:
    """Classes by name; without any, the targets are numbers and the task is regression."""

    name: str
    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    groups: Tensor | None = None  # who produced each training row (a speaking role, a hospital), if known

    @property
    def num_classes(self) -> int:
        """The outputs that a model needs: one for each class, or one for a number."""
        return len(self.class_names) or 1
