"""A data set: train and test examples and what a model and a partition must know about them."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.data.examples import Examples


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str
    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    groups: Tensor | None = None  # who produced each training row (a speaking role, a hospital), if known

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
