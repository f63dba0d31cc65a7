"""A recorded run, read back from its folder. Reading changes nothing, also beside a process that writes."""

import json
import shutil
import sqlite3
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steelyard.errors import InputError
from steelyard.frames import frame
from steelyard.runs.folder import DATABASE, SPEC
from steelyard.runs.record import TABLES, VERSION, other_version
from steelyard.verdicts.batch import TEXTS, Batch, Names, make_batch
from steelyard.verdicts.reasons import Reason, from_json
from steelyard.verdicts.sentences import Verdict, verdicts
from steelyard.verdicts.tally import Tally

MAX_CELLS = 2**20  # of each matrix that is read at once
FIRST_ROWS = 2**12
FIRST = "first_round"
"""The key in the record of a run that went on from a state, and has no rows before this round."""


class Run:
    """A recorded run, finished or not, read back from its folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / DATABASE).is_file():
            raise InputError(f"{self.path} is not a recorded run: {_why_no_run(self.path)}.")

    @property
    def meta(self) -> dict[str, str]:
        """Facts about the run as a whole: name, status, version, when it began and ended."""
        return {row["key"]: row["value"] for row in self._read("SELECT * FROM meta")}

    def is_readable(self) -> bool:
        try:
            return bool(self.meta)
        except InputError:
            return False

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved spec, if the run came from one."""
        path = self.path / SPEC
        return tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """A row for each round: its number and metrics."""
        return list(self._read("SELECT * FROM rounds ORDER BY round"))

    @property
    def clients(self) -> list[dict[str, Any]]:
        """A row for each client in each round: weight, evidence, norm, loss, scores, why it was rejected."""
        return list(self._read("SELECT * FROM clients ORDER BY round, client"))

    def rounds_frame(self) -> Any:
        """The rounds as a data frame: of pandas or, where it is not installed, of polars or pyarrow.

        Without any of them: a dict with a list for each column.
        """
        return frame(self.rounds)

    def clients_frame(self) -> Any:
        """The clients as a data frame, like `rounds_frame`: a row for each client in each round."""
        return frame(self.clients)

    @property
    def timings(self) -> list[dict[str, Any]]:
        """Seconds of each stage of each round."""
        return list(self._read("SELECT * FROM timings ORDER BY round"))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Words for the evidence of the weighing rule, as the run recorded them."""
        return from_json(self.meta.get("reasons"))

    @property
    def own_metrics(self) -> list[str]:
        """The names of the user's own metrics, as the run recorded them."""
        found = json.loads(self.meta.get("metrics") or "[]")
        return [str(name) for name in found] if isinstance(found, list) else []

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """How much each client counted, and why, by client id; made from the rows of the record."""
        tally = Tally(self.reasons, self.own_metrics)
        for batch in self.batches(tally.names):
            tally.add(batch)
        return verdicts(tally)

    def batches(self, names: Names, after: int = 0, until: int | None = None) -> Iterator[Batch]:
        """The table of clients as matrices, some rounds at a time, from the round after `after` on."""
        query = "SELECT * FROM clients WHERE round > ? AND round <= ? ORDER BY round, client"
        with self._connected() as database:
            cursor = database.execute(query, (after, 2**62 if until is None else until))
            heads = [column[0] for column in cursor.description]
            size, rest = FIRST_ROWS, list[Any]()
            while rows := rest + cursor.fetchmany(size):
                whole = _whole_rounds(rows, heads.index("round"), done=len(rows) < len(rest) + size)
                rest = rows[whole:]
                if whole:
                    batch = make_batch(names, dict(zip(heads, zip(*rows[:whole], strict=True), strict=True)))
                    size = max(1, MAX_CELLS // len(names.clients)) * -(-whole // len(batch.rounds))
                    yield batch

    def rows(self, table: str, after: int, until: int) -> list[dict[str, Any]]:
        """The rows of some rounds in a table."""
        return list(
            self._read(f"SELECT * FROM {table} WHERE round > {after:d} AND round <= {until:d} ORDER BY round")
        )

    def client_ids(self, after: int = 0) -> list[str]:
        """The clients that have a row after a round, sorted."""
        return [
            row["client"]
            for row in self._read(
                f"SELECT DISTINCT client FROM clients WHERE round > {after:d} ORDER BY client"
            )
        ]

    def client_columns(self) -> list[str]:
        """The names of the figures in the table of clients."""
        names = [row["name"] for row in self._read("PRAGMA table_info(clients)")]
        return [name for name in names if name not in TEXTS]

    def last_round(self, complete: bool = False) -> int:
        """The last recorded round, 0 if there is none; if asked, the last one that has its scores."""
        condition = ""
        if complete and any(row["name"] == "evaluate" for row in self._read("PRAGMA table_info(timings)")):
            condition = " WHERE evaluate IS NOT NULL"
        return next(self._read(f"SELECT max(round) AS last FROM timings{condition}"))["last"] or 0

    def has_rounds_up_to(self, number: int) -> bool:
        """Whether every round from the first to this one is recorded."""
        noted = self.meta.get(FIRST, "1")
        first = int(noted) if noted.isdecimal() else 1
        query = f"SELECT count(*) AS count FROM rounds WHERE round BETWEEN {first:d} AND {number:d}"
        return bool(next(self._read(query))["count"] == max(number - first + 1, 0))

    def rows_of(self, round: int) -> dict[str, list[dict[str, Any]]]:
        """The rows of one round, by table, in the order in which they were recorded."""
        query = f"SELECT * FROM {{}} WHERE round = {round:d} ORDER BY rowid"
        return {table: list(self._read(query.format(table))) for table in TABLES}

    def _read(self, query: str) -> Iterator[dict[str, Any]]:
        with self._connected() as database:
            cursor = database.execute(query)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with _reading(self.path / DATABASE) as database:
                yield database
        except (sqlite3.DatabaseError, OSError) as error:
            raise InputError(f"cannot read the record of {self.path}: {error}.") from None


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing. Rounds that are still in the write-ahead log are read, too."""
    log = path.with_name(f"{path.name}-wal")
    with ExitStack() as stack:
        if not log.exists():
            database = _connect(path, "mode=ro" if _has_no_log(path) else "immutable=1")
        else:
            try:
                database = _connect(path, "mode=ro")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    raise
                folder = stack.enter_context(TemporaryDirectory())
                for file in (path, log):  # on read-only media, SQLite cannot read the log in its place
                    shutil.copy(file, folder)
                database = _connect(Path(folder, path.name), "mode=rw")
        yield stack.enter_context(closing(database))


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30.0)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
        if version > VERSION:
            raise InputError(other_version(path.parent, version))
    except BaseException:
        database.close()
        raise
    return database


def _has_no_log(path: Path) -> bool:
    """Whether the record is one plain file (and not a copy that was made without its log)."""
    with open(path, "rb") as file:
        return file.read(20)[18:19] != b"\x02"


def _whole_rounds(rows: Sequence[Sequence[Any]], place: int, done: bool) -> int:
    """How many of the rows belong to rounds that are there to their end. The round is at `place` in a row."""
    if done:
        return len(rows)
    last = rows[-1][place]
    return next((number for number in range(len(rows), 0, -1) if rows[number - 1][place] != last), 0)


def runs_in(folder: Path) -> list[Run]:
    """Every readable run in a folder, oldest first."""
    paths = sorted(path.parent for path in folder.glob(f"*/{DATABASE}"))
    runs = [Run(path) for path in paths if not path.name.startswith(".")]
    return [run for run in runs if run.is_readable()]


def _why_no_run(path: Path) -> str:
    if not path.exists():
        return "there is no such folder"
    runs = sorted(path.glob(f"*/{DATABASE}"))
    return f"name one in it, such as {runs[-1].parent}" if runs else f"it has no {DATABASE}"
