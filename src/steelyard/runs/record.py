"""The tables of a run, in SQLite: written by one process, one transaction for each round."""

import itertools
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import InputError, SteelyardError

if TYPE_CHECKING:
    from steelyard.types import Round
    from steelyard.verdicts.sentences import Verdict

VERSION = 1
"""Of the tables and of what is in them."""
BUSY_SECONDS = 600.0
"""How long to wait for another program that has locked the record."""
TABLES = ("rounds", "clients", "timings")
VERDICTS_TABLE = "CREATE TABLE IF NOT EXISTS verdicts (client TEXT PRIMARY KEY, share REAL, verdict TEXT)"
"""Written when a run ends; while it goes on, `Run.verdicts` makes them from the rows."""

_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE rounds (round INTEGER PRIMARY KEY);
CREATE TABLE clients (round INTEGER, client TEXT, PRIMARY KEY (round, client));
CREATE TABLE timings (round INTEGER PRIMARY KEY);
{VERDICTS_TABLE};
PRAGMA user_version = {VERSION};
"""


def make_record(path: Path, meta: Mapping[str, str]) -> None:
    """Write a record without rounds; it is not forced to disk."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(_TABLES)
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())


class Record:
    """The record of a run, open for writing. Who opens it last is the writer: any other is stopped."""

    def __init__(self, path: Path) -> None:
        self.path, self.writer = path, secrets.token_hex(8)
        self.database = sqlite3.connect(path, timeout=1.0)
        with self._explained():
            (version,) = self._wait("PRAGMA user_version").fetchone()
            if version != VERSION:
                self.database.close()
                raise InputError(other_version(path.parent, version))
            self._wait("PRAGMA journal_mode = WAL")
            self.database.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe when killed
        self._columns = self._read_columns()
        with self._transaction():
            self.note(writer=self.writer)

    def _read_columns(self) -> dict[str, set[str]]:
        execute = self.database.execute
        return {table: {row[1] for row in execute(f"PRAGMA table_info({table})")} for table in TABLES}

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[None]:
        """All of the block is written, or nothing. If durable, it is on disk, with all that was before it."""
        if durable:
            self.database.execute("PRAGMA synchronous = FULL")
        try:
            with self._transaction():
                found = self.database.execute("SELECT value FROM meta WHERE key = 'writer'").fetchone()
                if found != (self.writer,):
                    raise SteelyardError(
                        f"{self.path.parent} was resumed by another process; this one has stopped."
                    )
                yield
        except BaseException:
            with suppress(sqlite3.DatabaseError):
                self._columns = self._read_columns()  # those that the block added are gone
            raise
        finally:
            if durable:
                self.database.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained():
            if self.database.in_transaction:  # interrupted between two lines of this function
                self.database.rollback()
            self._wait("BEGIN IMMEDIATE")
            with self.database:
                yield

    def _wait(self, statement: str) -> sqlite3.Cursor:
        """Try a statement until no other program has locked the record; Ctrl-C still works."""
        end = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self.database.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the disk in one sentence; rows that violate the tables are errors of the program."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise
        except sqlite3.DatabaseError as error:
            raise SteelyardError(
                f"cannot write the record {self.path}: {error}; mend that, then resume the run."
            ) from None

    def note(self, **values: str) -> None:
        """Facts about the run as a whole, within a transaction."""
        self.database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def forget(self, *keys: str) -> None:
        self.database.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key in keys])

    def add(self, round: "Round") -> None:
        self._insert("rounds", [{"round": round.number, **round.metrics}])
        self._insert("clients", [{"round": round.number, **row} for row in round.clients])
        self._insert("timings", [{"round": round.number, **round.seconds}])
        if round.calibration:  # of the last model only
            self.note(calibration=json.dumps({"round": round.number, "bins": round.calibration}))

    def write_verdicts(self, verdicts: "Iterable[Verdict]") -> None:
        self.database.execute(VERDICTS_TABLE)  # not in records of earlier versions
        self.database.execute("DELETE FROM verdicts")
        rows = [(each.client, each.share, each.text) for each in verdicts]
        self.database.executemany("INSERT INTO verdicts VALUES (?, ?, ?)", rows)

    def delete_after(self, number: int) -> None:
        for table in TABLES:
            self.database.execute(f"DELETE FROM {table} WHERE round > ?", (number,))

    def close(self, merge: bool = True) -> None:
        """If asked, leave one plain file, which can also be read where nothing can be written.

        SQLite would remove the log of whatever is now at this path, so a folder that was replaced is left.
        """
        end = time.monotonic() + 2.0
        while merge and time.monotonic() < end:  # others may be reading
            with suppress(sqlite3.DatabaseError):
                self.database.execute("PRAGMA journal_mode = DELETE")
                break
        self.database.close()

    def _insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
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


def other_version(folder: Path, version: int) -> str:
    """The sentence for a record that another version of steelyard wrote."""
    age = "a newer" if version > VERSION else "an older"
    return (
        f"{folder} was recorded by {age} version of steelyard (format {version}, not {VERSION}); use that "
        "version."
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
