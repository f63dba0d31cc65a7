"""A run in TensorBoard."""

from pathlib import Path
from typing import Any

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts, need, place_for, refuse_existing
from steelyard.observers.scalars import scalars
from steelyard.types import Round


class TensorBoard(Tracker):
    """Metrics, wall times, and weight and score of each client by round, for `tensorboard --logdir runs`.

    By default the events are in `tensorboard/` in the folder of the run; `path` is another folder. Of a round
    with more than 200 clients, the first 200 are logged. Characters of names that TensorBoard does not allow
    are replaced, and a hash keeps the names distinct. NaN and infinity are left out.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        need("tensorboard", "tensorboard")
        self.path = path
        self._writer: Any = None

    def begin(self, facts: RunFacts) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = place_for(self.path, "tensorboard", facts)
        refuse_existing(place.glob("events.out.tfevents.*"), facts)
        purge = None if facts.after is None else facts.after + 1  # hides what an interrupted run had written
        self._writer = SummaryWriter(str(place), purge_step=purge)
        if facts.after is None:
            lines = "\n".join(f"    {key} = {value}" for key, value in facts.parameters.items())
            self._writer.add_text("parameters", lines)

    def __call__(self, round: Round) -> None:
        for name, value in scalars(round).items():
            self._writer.add_scalar(name, value, round.number)
        self._writer.flush()

    def end(self, status: str) -> None:
        self._writer.close()
