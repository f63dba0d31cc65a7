"""Warnings while a command runs a federation."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from steelyard.errors import ObserverWarning, SelectionWarning, SteelyardWarning


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect what goes wrong with observers, and that test data chose the model, to be printed when no
    progress bar is in the way. Other warnings of the run itself are recorded, and printed from the record.
    """
    with warnings.catch_warnings():
        found: list[str] = []
        show = warnings.showwarning

        def collect(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, ObserverWarning | SelectionWarning):
                found.append(str(message))
            else:
                show(message, category, *place)

        warnings.simplefilter("ignore", SteelyardWarning)
        warnings.simplefilter("always", ObserverWarning)
        warnings.simplefilter("always", SelectionWarning)
        warnings.showwarning = collect  # type: ignore[assignment]
        yield found
