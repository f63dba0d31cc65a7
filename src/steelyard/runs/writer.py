"""Writes a run to a folder: spec.toml, environment.json, record.sqlite, and model and state as safetensors.

The tables `rounds` and `clients` have a row for each round and for each client in each round; two runs with
the same seed have equal tables. Wall times are in `timings`. Every round is one transaction, so the completed
rounds can be read, whatever ends the run.
"""

import itertools
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import save_model
from torch import nn

import steelyard
from steelyard.errors import InputError
from steelyard.runs.reader import DATABASE, ENVIRONMENT, MODEL, SPEC, STATE, Run
from steelyard.runs.state_file import save_state
from steelyard.server.state import FederationState
from steelyard.types import Round

STATE_SECONDS = 2.0  # between saved states: a crash loses at most this, besides the round that it interrupts

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE rounds (round INTEGER PRIMARY KEY);
CREATE TABLE clients (round INTEGER, client TEXT, PRIMARY KEY (round, client));
CREATE TABLE timings (round INTEGER PRIMARY KEY);
"""

TABLES = ("rounds", "clients", "timings")
Row = Mapping[str, Any]


class Recorder:
    """Writes a run as it happens. As a context manager it also records how the run ended."""

    def __init__(
        self,
        path: str | Path,
        spec: str | None = None,
        meta: Mapping[str, str] | None = None,
        *,
        after: int | None = None,
    ) -> None:
        """Record a new run in `path`, which must be new or empty; `spec` is the resolved spec as TOML.

        With `after`, continue the run that is recorded there; rounds after that one are deleted.
        """
        self.path = Path(path) if after is None else Run(path).path
        if after is None:
            self._make_folder(spec)
        self.database = sqlite3.connect(self.path / DATABASE)
        self.database.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe when killed
        if after is None:
            self.database.execute("PRAGMA journal_mode = WAL")
            self.database.executescript(_SCHEMA)
            self.note(**(meta or {}), started=_now())
        else:
            with self.database:
                self._delete_after(after)
                self.database.execute("DELETE FROM meta WHERE key IN ('ended', 'error')")
        self._columns = {table: self._names(table) for table in TABLES}
        self._due = 0.0
        self._incomplete = after  # the last round that is recorded without the scores of its model
        self.note(status="running")

    def _make_folder(self, spec: str | None) -> None:
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not empty; choose another folder for the run.")
        self.path.mkdir(parents=True, exist_ok=True)
        if spec is not None:
            (self.path / SPEC).write_text(spec, "utf-8")
        (self.path / ENVIRONMENT).write_text(json.dumps(environment(), indent=2) + "\n", "utf-8")

    def _delete_after(self, number: int) -> None:
        for table in TABLES:
            self.database.execute(f"DELETE FROM {table} WHERE round > ?", (number,))

    def _names(self, table: str) -> set[str]:
        return {row[1] for row in self.database.execute(f"PRAGMA table_info({table})")}

    def note(self, **values: str) -> None:
        """Record facts about the run as a whole."""
        with self.database:
            self.database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def __call__(self, round: Round) -> None:
        """Commit one round; if it was written before it was complete, it is replaced."""
        rows = [{"round": round.number, **row} for row in round.clients]
        with self.database:
            if self._incomplete == round.number:
                self._delete_after(round.number - 1)
            self._insert("rounds", [{"round": round.number, **round.metrics}])
            self._insert("clients", rows)
            self._insert("timings", [{"round": round.number, **round.seconds}])

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def save(self, state: FederationState) -> None:
        """Save the state from which the run can be resumed, and the last round as far as it is known."""
        save_state(state, self.path / STATE)
        if state.pending is not None:
            self(state.pending)
            self._incomplete = state.round
        self._due = time.monotonic() + STATE_SECONDS

    def finish(self, state: FederationState, model: nn.Module) -> None:
        """Save state and model; a crash never leaves half a file."""
        self.save(state)
        partial = self.path / f"{MODEL}.partial"
        save_model(model, str(partial))
        os.replace(partial, self.path / MODEL)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.note(
            status="finished" if kind is None else "interrupted" if interrupted else "failed",
            ended=_now(),
            **({} if error is None or interrupted else {"error": str(error)}),
        )
        self.database.close()

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows; missing columns are added, so that rules can record their own evidence."""
        for names, alike in itertools.groupby(rows, key=tuple):
            for name in [name for name in names if name not in self._columns[table]]:
                self.database.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(name)}")
                self._columns[table].add(name)
            columns = ", ".join(_quoted(name) for name in names)
            places = ", ".join("?" for _ in names)
            self.database.executemany(
                f"INSERT INTO {table} ({columns}) VALUES ({places})", [tuple(row.values()) for row in alike]
            )


def new_folder(parent: Path, name: str) -> Path:
    """Make a new folder for a run, named by time so that names sort; several runs may start at once."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot record runs in {parent}: {error.strerror or error}.") from None
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    for number in itertools.count(1):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("unreachable")


def environment() -> dict[str, Any]:
    """The versions and hardware that the numbers of a run may depend on."""
    packages: Sequence[str] = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "steelyard": steelyard.__version__,
        "packages": {name: version(name) for name in packages},
    }


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
