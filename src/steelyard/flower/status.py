"""Who is there, who is late, which round: kept in a file, so that another process can show it."""

import json
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steelyard.errors import InputError
from steelyard.types import ClientId, Round

STALE_SECONDS = 30.0
"""A status that is older is that of a server that was killed."""


@dataclass
class SiteStatus:
    """One site, as the server sees it."""

    admitted: bool = False
    connected: bool = False
    seen: float | None = None
    """When it was last connected, in seconds since 1970."""
    waiting: bool = False
    """Whether the server waits for its answer."""
    answered: int = 0
    """The last round that it answered."""
    weight: float | None = None
    """In the last round that it took part in."""
    last_answer: str = ""
    """What became of its last answer."""


@dataclass
class Status:
    """A deployment, as the server sees it."""

    deployment: str
    phase: str = "starting"
    round: int = 0
    """The round that is complete."""
    rounds: int = 0
    process: int = field(default_factory=os.getpid)
    updated: float = 0.0
    run: str = ""
    """The folder of the run."""
    sites: dict[ClientId, SiteStatus] = field(default_factory=dict)

    def see(self, connected: Collection[ClientId], admitted: Collection[ClientId]) -> None:
        now = time.time()
        for name, site in self.sites.items():
            site.admitted, site.connected = name in admitted, name in connected
            site.seen = now if site.connected else site.seen

    def wait_for(self, clients: Collection[ClientId]) -> None:
        for name, site in self.sites.items():
            site.waiting = name in clients

    def complete(self, round: Round) -> None:
        """Take over what the record says of a round."""
        self.round = round.number
        for row in round.clients:
            site = self.sites.get(str(row["client"]))
            if site is None or row["status"] == "idle":
                continue
            weight = row.get("weight")
            site.weight = float(weight) if isinstance(weight, float | int) else None
            site.last_answer = str(row["status"])
            if site.last_answer == "used" or not site.last_answer.startswith("failed"):
                site.answered = round.number

    @property
    def missing(self) -> list[ClientId]:
        return [name for name, site in self.sites.items() if not site.connected]

    def write(self, path: Path) -> None:
        self.updated = time.time()
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        partial.replace(path)


def read_status(path: Path) -> Status:
    """The last status of a server; if it was killed, its phase says so."""
    try:
        table: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
        sites = {name: SiteStatus(**site) for name, site in table["sites"].items()}
        status = Status(**{**table, "sites": sites})
    except FileNotFoundError:
        raise InputError(f"{path.parent} was never served: `steelyard deploy serve {path.parent}`.") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"cannot read {path}: {error}.") from None
    if status.phase not in ("finished", "stopped") and time.time() - status.updated > STALE_SECONDS:
        status.phase = "not running"
    return status
