"""A data set: training and test examples, class names, and groups of rows."""

from dataclasses import dataclass

from torch import Tensor

from steelyard.data.examples import Examples


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples. Without class names the targets are numbers and the task is regression."""

    name: str
    """Its name in errors and reports."""
    train: Examples
    """What is dealt to the clients."""
    test: Examples
    """The common test set."""
    class_names: tuple[str, ...]
    """A name for each class; empty in regression."""
    groups: Tensor | None = None
    """[N], the producer of each training row (a speaking role, a hospital), if known."""

    @property
    def num_classes(self) -> int:
        """The number of outputs that a model needs: one per class, or 1 for regression."""
        return len(self.class_names) or 1
