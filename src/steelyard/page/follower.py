"""A run that goes on, as messages for a browser."""

from pathlib import Path

from steelyard.page.run_page import RunPage
from steelyard.page.series import Json

FORMAT = 1


class Follower:
    """Reads a run's record again and again, also while another process writes it."""

    def __init__(self, path: Path) -> None:
        self.page = RunPage(path, live=True)

    def snapshot(self) -> Json:
        """A message with everything recorded so far."""
        self.page.read()
        return {"type": "snapshot", "data": page_json([self.page.json()], live=True)}

    def update(self) -> Json | None:
        """A message with what is new since the last one, or None."""
        if not self.page.read():
            return None
        if self.page.is_new:
            return {"type": "snapshot", "data": page_json([self.page.json()], live=True)}
        return {"type": "update", "key": self.page.run.path.name, **self.page.changes()}


def page_json(runs: list[Json], comparison: Json | None = None, live: bool = False) -> Json:
    return {"format": FORMAT, "runs": runs, "comparison": comparison, "live": live}
