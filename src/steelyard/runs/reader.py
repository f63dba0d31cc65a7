"""A recorded run, read back from its folder."""

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

from steelyard.errors import InputError

DATABASE = "record.sqlite"
MODEL = "model.safetensors"
SPEC = "spec.toml"
ENVIRONMENT = "environment.json"
STATE = "state.safetensors"


class Run:
    """A recorded run, finished or not, read back from its folder."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / DATABASE).is_file():
            raise InputError(f"{self.path} is not a recorded run: it has no {DATABASE}.")

    @property
    def meta(self) -> dict[str, str]:
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
        return self._read("SELECT * FROM rounds ORDER BY round")

    @property
    def clients(self) -> list[dict[str, Any]]:
        return self._read("SELECT * FROM clients ORDER BY round, client")

    @property
    def timings(self) -> list[dict[str, Any]]:
        return self._read("SELECT * FROM timings ORDER BY round")

    def _read(self, query: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path / DATABASE)) as database:
            database.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in database.execute(query)]
            except sqlite3.DatabaseError as error:
                raise InputError(f"cannot read the record of {self.path}: {error}.") from None


def runs_in(folder: Path) -> list[Run]:
    """Every readable run in a folder, oldest first."""
    runs = [Run(path.parent) for path in sorted(folder.glob(f"*/{DATABASE}"))]
    return [run for run in runs if run.is_readable()]
