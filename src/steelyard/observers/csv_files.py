"""A run as two CSV files, for spreadsheets."""

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts, place_for, refuse_existing
from steelyard.texts import csv_text
from steelyard.types import Round


class CSV(Tracker):
    """Two tables: `rounds.csv`, a row for each round, and `clients.csv`, one for each client in each round.

    By default they are in the folder of the run; `path` is another folder. Text that a spreadsheet would take
    for a formula has an apostrophe before it.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self._tables: tuple[Table, Table] | None = None

    def begin(self, facts: RunFacts) -> None:
        folder = place_for(self.path, "", facts)
        rounds, clients = Table(folder / "rounds.csv"), Table(folder / "clients.csv")
        refuse_existing([rounds.path, clients.path], facts)
        folder.mkdir(parents=True, exist_ok=True)
        for table in (rounds, clients):
            table.keep_up_to(facts.after or 0)
        self._tables = rounds, clients

    def __call__(self, round: Round) -> None:
        assert self._tables is not None
        rounds, clients = self._tables
        seconds = {f"seconds.{stage}": value for stage, value in round.seconds.items()}
        rounds.add([{"round": round.number, **round.metrics, **seconds}])
        clients.add([{"round": round.number, "client": None, **row} for row in round.clients])


class Table:
    """A CSV file to which rows are added. A new column is empty in the rows before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] = []

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; they are in the file when this returns."""
        cells = [{csv_text(name): _cell(value) for name, value in row.items()} for row in rows]
        new = dict.fromkeys(name for row in cells for name in row if name not in self.columns)
        if new:
            before = self._read()
            self.columns += new
            self._replace(before)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._lines(cells))

    def keep_up_to(self, round: int) -> None:
        """Remove later rounds, and a last line that was not written to its end."""
        if self.path.exists():
            rows = [row for row in self._read() if int(row["round"]) <= round]
            self.columns = list(rows[0]) if rows else []
            self._replace(rows)

    def _read(self) -> list[dict[str, str]]:
        text = self.path.read_bytes().decode("utf-8") if self.path.exists() else ""
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        rows = list(reader)[: None if text.endswith("\n") else -1]
        if text and "round" not in (reader.fieldnames or ()):
            raise ValueError(f"{self.path} was not written by this observer")
        return rows

    def _replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        partial = self.path.with_name(f"{self.path.name}.partial")
        heading = {name: name for name in self.columns}
        partial.write_bytes(self._lines([heading, *rows] if heading else []).encode())
        os.replace(partial, self.path)

    def _lines(self, rows: Iterable[Mapping[str, Any]]) -> str:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue()


def _cell(value: Any) -> Any:
    return csv_text(value) if isinstance(value, str) else value
