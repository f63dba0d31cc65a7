"""The run on disk: a folder with spec.toml, environment.json, record.sqlite, model and state as safetensors.

The tables `rounds` and `clients` hold a row for each round and for each client in each round; two runs with
the same seed have equal tables. Wall times are kept apart in `timings`. Every round is one transaction, so
whatever ends a run, the finished rounds can be read.
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
from steelyard.server.state import FederationState, save_state
from steelyard.types import Round

STATE_SECONDS = 2.0  # what a crash may lose, besides the round that it interrupts

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

        With `after`, go on with the run that is recorded there; rounds after that one are forgotten.
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
            self._forget(after)
        self._columns = {table: self._names(table) for table in TABLES}
        self._due = 0.0
        self.note(status="running")

    def _make_folder(self, spec: str | None) -> None:
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not empty; choose another folder for the run.")
        self.path.mkdir(parents=True, exist_ok=True)
        if spec is not None:
            (self.path / SPEC).write_text(spec, "utf-8")
        (self.path / ENVIRONMENT).write_text(json.dumps(environment(), indent=2) + "\n", "utf-8")

    def _forget(self, after: int) -> None:
        with self.database:
            for table in TABLES:
                self.database.execute(f"DELETE FROM {table} WHERE round > ?", (after,))
            self.database.execute("DELETE FROM meta WHERE key IN ('ended', 'error')")

    def _names(self, table: str) -> set[str]:
        return {row[1] for row in self.database.execute(f"PRAGMA table_info({table})")}

    def note(self, **values: str) -> None:
        """Facts about the run as a whole."""
        with self.database:
            self.database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def write(self, round: Round, state: FederationState | None = None) -> None:
        """Commit one round, and now and then the state after it, from which the run can go on."""
        rows = [{"round": round.number, **row} for row in round.clients]
        with self.database:
            self._insert("rounds", [{"round": round.number, **round.metrics}])
            self._insert("clients", rows)
            self._insert("timings", [{"round": round.number, **round.seconds}])
        if state is not None and time.monotonic() >= self._due:
            self.save_state(state)

    def save_state(self, state: FederationState) -> None:
        save_state(state, self.path / STATE)
        self._due = time.monotonic() + STATE_SECONDS

    def save_model(self, model: nn.Module) -> None:
        """Write the model so that a crash never leaves half a file."""
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
        """Insert rows; a column that is not there yet is added, so rules may record what they like."""
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
    """Make a new folder for a run, also when several start at once: the time first, so that names sort."""
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
    """What the numbers of a run may depend on."""
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
