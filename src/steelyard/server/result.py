"""The result of a run."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from torch import nn

from steelyard.errors import InputError, ParticipationWarning, warn_caller
from steelyard.frames import frame, to_pandas
from steelyard.server.result_html import result_html
from steelyard.server.selection import Best
from steelyard.server.state import FederationState
from steelyard.types import ClientId, Round, Row
from steelyard.verdicts.reasons import Reason
from steelyard.verdicts.sentences import Verdict, verdicts_of


def _stays_at_its_site(client: ClientId) -> nn.Module:
    raise InputError(f"the model of client {client!r} is at its site; only the shared part is known here.")


class RecordedRows(Sequence[Row]):
    """Rows of a record that are read when they are first looked at, so that a run does not keep them."""

    def __init__(self, read: Callable[[], Sequence[Row]]) -> None:
        self._read = read

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(self._read())

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, RecordedRows) else other)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "RecordedRows()"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A finished run: one row for each round, one for each client in each round, and the model."""

    history: Sequence[Row]
    """A row for each round: its number and metrics."""
    clients: Sequence[Row]
    """A row for each client in each round; of a recorded run, read from its folder when asked for."""
    model: nn.Module
    """What is shared: the whole model, or the head."""
    state: FederationState
    """The server after the last round."""
    model_of: Callable[[ClientId], nn.Module] = _stays_at_its_site
    """A client's whole model; where only the head is shared, with the client's own body."""
    path: Path | None = None
    """The folder of the run, if it is recorded."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the run, a sentence each: no reply was used, the model is not finite, ..."""
    reasons: tuple[Reason, ...] = ()
    """Words for the evidence of the weighing rule."""
    own_metrics: tuple[str, ...] = ()
    """The names of the user's own metrics."""
    notices: tuple[str, ...] = ()
    """Clients that were often rejected or failed, and rounds that were skipped, a sentence each."""
    best: Best | None = None
    """The best round, where one was looked for: with `validation`, `monitor` or `patience`."""
    settings: Mapping[str, Any] | None = None
    """What the numbers depend on: settings, versions of packages; `federation.resume` compares them."""

    @property
    def best_model(self) -> nn.Module:
        """The model of the best round; the last one if none was looked for, or none had a score."""
        return self.model if self.best is None else self.best.model

    @property
    def best_round(self) -> int:
        """The number of the best round; of the last one if none was looked for."""
        return self.state.round if self.best is None else self.best.round

    @property
    def best_score(self) -> float:
        """The monitored metric in the best round; nan if no round was looked for, or none had a score."""
        return float("nan") if self.best is None else self.best.score

    def as_rounds(self) -> Iterator[Round]:
        """The rounds as observers saw them, without their times."""
        by_round: dict[Any, list[Row]] = {}
        for row in self.clients:
            by_round.setdefault(row["round"], []).append(_without_number(row))
        for row in self.history:
            metrics = {
                name: float(value) for name, value in _without_number(row).items() if value is not None
            }
            yield Round(int(row["round"] or 0), metrics, tuple(by_round.get(row["round"], ())))

    @cached_property
    def verdicts(self) -> Mapping[ClientId, Verdict]:
        """How much each client counted, and why; `print(result.verdicts["oslo"])` shows the sentence."""
        return verdicts_of(self.clients, self.reasons, self.own_metrics)

    @property
    def accuracy(self) -> float:
        """Test accuracy at the end; nan without a common test set."""
        value = self.history[-1].get("accuracy")
        return float("nan") if value is None else float(value)

    def to_frame(self) -> Any:
        """The rounds as a data frame: of pandas or, where it is not installed, of polars or pyarrow.

        Without any of them: a dict with a list for each column.
        """
        return frame(self.history)

    def to_pandas(self) -> Any:
        """The rounds as a pandas DataFrame, with a column for each metric."""
        return to_pandas(self.history)

    def clients_frame(self) -> Any:
        """The clients as a data frame, like `to_frame`: a row for each client in each round."""
        return frame(self.clients)

    def show(self) -> None:
        """Print what `steelyard show` prints: who counted, how much and why, and the scores."""
        importlib.import_module("steelyard.report.results").show_result(self)  # a layer above this one

    def warn(self) -> None:
        """Issue the warnings of the run."""
        for text in self.warnings:
            warn_caller(text)
        for text in self.notices:
            warn_caller(text, ParticipationWarning)

    def __repr__(self) -> str:
        parts = [f"{self.state.round} rounds", f"a model of type {type(self.model).__name__}"]
        parts += [self.best.text] if self.best else []
        parts += [f"recorded in {self.path}"] if self.path else []
        count = len(self.warnings) + len(self.notices)
        parts += [f"warnings: {count}"] if count else []
        return f"Result({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a figure of one metric, and a row for each client."""
        return result_html(repr(self), self.history, self.verdicts, (*self.warnings, *self.notices))


def _without_number(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "round"}
